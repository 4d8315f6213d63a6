"""The one rule that pairs the arrays of a message with a network's tensors, by names or by order and shapes.

A client need not send all that it trains: personal heads, batch normalisation and frozen layers stay with it. What a
message leaves out is read off here, and so is a message with more arrays than the network has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from torch import Tensor

from seepage.errors import BadInputError, nearest

Shape = tuple[int, ...]
Layout = Literal["as it is", "reshaped", "turned"]

# Parts of names that wrappers put in: data parallelism, ``torch.compile``, Opacus, and names of adapters.
_WRAPPERS = frozenset({"module", "_orig_mod", "_module", "default"})
_COUNTER = "num_batches_tracked"
_LISTED = 10  # names that an error lists
_LAYOUTS: tuple[Layout, ...] = ("as it is", "reshaped", "turned")
_BY_HAND = "give names=[...], the network's name of each array"
_SCAFFOLD = (
    "So does SCAFFOLD, which sends control variates beside the weights, and so does a client that sends a momentum "
    "buffer for each. Give the arrays of the weights alone. While all control variates are 0, as in SCAFFOLD's first "
    "round, their change is that of plain SGD. Later each local step is corrected by c - c_i, which no recipe "
    "declares. The sum of all changes of its control variate that a client has sent is the mean gradient of its local "
    "steps; where it takes one step, or the gradient at the model as sent, capture that sum as a gradient"
)
_MOMENTS = (
    "So does a client that sends the two moments of Adam beside the weights. Give the arrays of the weights alone, "
    "with training=LocalTraining(optimizer='adam', ...)"
)
_NUMBER = (
    "One is a single number, such as FedNova's number of local steps or the number of examples. Leave it out. "
    "FedNova divides the change by it: multiply the change by it again, so that it is what local training makes"
)


@dataclass(frozen=True)
class Pairing:
    """The array of a message that each tensor of a network stands in.

    Attributes:
        places: name of the array, by the network's name, in the network's order.
        shapes: shape in the network, by the network's name.
        left_out: names of the network without an array.
        layout: whether arrays are taken as they are, reshaped, or turned, as scikit-learn's weights (input, output).
        notes: clauses on what was taken for what.
    """

    places: Mapping[str, str]
    shapes: Mapping[str, Shape]
    left_out: tuple[str, ...]
    layout: Layout = "as it is"
    notes: tuple[str, ...] = ()

    def read(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the arrays under the network's names and in its shapes."""
        return {name: self._turned(arrays[place]).reshape(self.shapes[name]) for name, place in self.places.items()}

    def written(self, tensors: Mapping[str, Tensor], like: Mapping[str, Shape]) -> dict[str, Tensor]:
        """Return tensors of the network under the message's names and in its shapes, as far as it has them."""
        return {place: self._turned(tensors[name]).reshape(like[place]) for name, place in self.places.items()}

    def _turned(self, tensor: Tensor) -> Tensor:
        return tensor.mT if self.layout == "turned" and tensor.dim() == 2 else tensor


def pair(came: Mapping[str, Shape], expected: Mapping[str, Shape], what: str, buffers: Collection[str] = ()) -> Pairing:
    """Pair arrays with a network's tensors.

    Names decide. A prefix that all of them have, or all of the network's, may be there or not. Names that are numbers
    from 0 on are those of a list: its order and shapes decide, where they leave one reading.

    Args:
        came: shape by name of each array.
        expected: shape by name of each tensor of the network, in the order of its ``state_dict()``.
        what: message in words, for errors.
        buffers: names of running values among the network's tensors.

    Raises:
        BadInputError: an array is none of the network's, or may be several of them.

    Example:
        >>> network = {"a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4), "out.bias": (2,)}
        >>> pair({"net.a.weight": (4, 3), "net.a.bias": (4,)}, network, "the update").left_out
        ('out.weight', 'out.bias')
        >>> pair({"0": (3, 4), "1": (4, 2), "2": (4,), "3": (2,)}, network, "the update").places["out.weight"]
        '1'
    """
    if is_list(came) and not came.keys() <= expected.keys():
        return _listed(came, expected, what, buffers)
    places, notes = _named(came, expected)
    if places is None:
        raise _unknown(came, expected, what)
    ordered = {name: places[name] for name in expected if name in places}
    layout = _layout([came[place] for place in ordered.values()], [expected[name] for name in ordered])
    if layout is None:
        name, place = next((n, p) for n, p in ordered.items() if not _fits(came[p], expected[n], "reshaped"))
        raise BadInputError(
            f"{what} holds {place!r} of shape {came[place]} where the model has {expected[name]}; it belongs to a "
            f"network of another size. {_both(came, expected)}"
        )
    return _paired(ordered, expected, layout, notes)


def is_list(names: Collection[str]) -> bool:
    """Whether names are the numbers from 0 on, as where a list of arrays has none."""
    return bool(names) and set(names) == set(map(str, range(len(names))))


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Return the shape of each tensor by its name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def listing(names: Collection[str], shapes: Mapping[str, Shape]) -> str:
    """Return names with their shapes, for an error."""
    shown = [f"{name!r} {shapes[name]}" for name in list(names)[:_LISTED]]
    return ", ".join(shown) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


def _paired(places: Mapping[str, str], expected: Mapping[str, Shape], layout: Layout, notes: Sequence[str]) -> Pairing:
    left_out = tuple(name for name in expected if name not in places)
    turned = "weights were turned, since they came as (input, output), as in scikit-learn"
    notes = (*notes, turned) if layout == "turned" else notes
    return Pairing(places, {name: expected[name] for name in places}, left_out, layout, tuple(notes))


def _layout(came: Sequence[Shape], expected: Sequence[Shape]) -> Layout | None:
    """Return the layout in which all arrays fit; None where they do not."""
    pairs = list(zip(came, expected, strict=True))
    return next((layout for layout in _LAYOUTS if all(_fits(shape, other, layout) for shape, other in pairs)), None)


def _fits(came: Shape, expected: Shape, layout: Layout) -> bool:
    """Return whether an array has a tensor's shape; axes of length 1 do not count where it may be reshaped."""
    if layout == "as it is":
        return came == expected
    if layout == "turned" and len(came) == len(expected) == 2:
        return came[::-1] == expected
    return [n for n in came if n != 1] == [n for n in expected if n != 1]


def _named(came: Collection[str], expected: Collection[str]) -> tuple[dict[str, str] | None, list[str]]:
    """Return the array of each name of the network, and what was done to names; None where one is unknown."""
    for normal in (str, _plain):
        theirs, ours = {normal(name): name for name in came}, {normal(name): name for name in expected}
        if len(theirs) < len(came) or len(ours) < len(expected):
            continue
        for cut in ("", *_prefixes(theirs)):
            for added in ("", *_prefixes(ours)) if not cut else ("",):
                renamed = {added + name.removeprefix(cut): place for name, place in theirs.items()}
                if renamed.keys() <= ours.keys():
                    notes = [f"the names of all tensors began with {cut!r}, which was taken away"] if cut else []
                    notes += [f"the names of the model's tensors begin with {added!r}, those of the update do not"] * (
                        added != ""
                    )
                    return {ours[name]: place for name, place in renamed.items()}, notes
    return None, []


def _plain(name: str) -> str:
    """Return a name without the parts of wrappers."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _prefixes(names: Collection[str]) -> list[str]:
    """Return the prefixes that all names have, whole parts of them, the shortest first."""
    split = [name.split(".")[:-1] for name in names]
    common = 0
    while split and all(len(parts) > common for parts in split) and len({parts[common] for parts in split}) == 1:
        common += 1
    return [".".join(split[0][: i + 1]) + "." for i in range(common)]


def _listed(came: Mapping[str, Shape], expected: Mapping[str, Shape], what: str, buffers: Collection[str]) -> Pairing:
    """Return the pairing of a list of arrays, by order and shapes."""
    shapes = tuple(came[str(i)] for i in range(len(came)))
    readings = list(_readings(shapes, expected, buffers))
    if not readings:
        _check_surplus(shapes, expected, what, buffers)
        raise BadInputError(
            f"{what} is a list of {len(came)} arrays, which are not the model's {len(expected)} tensors in their "
            f"order, nor some of these; {_BY_HAND}. {_both(came, expected)}"
        )
    names, layout = readings[0]
    if len(readings) > 1:
        names_by_array = [list(dict.fromkeys(reading[0][i] for reading in readings)) for i in range(len(shapes))]
        unclear = [
            f"array {i} {shapes[i]}: {' or '.join(map(repr, choices))}"
            for i, choices in enumerate(names_by_array)
            if len(choices) > 1
        ][:_LISTED]
        raise BadInputError(
            f"{what} is a list of {len(came)} arrays of the model's {len(expected)} tensors, and order and shapes do "
            f"not say which were left out ({'; '.join(unclear)}); {_BY_HAND}."
        )
    apart = list(names) != [name for name in expected if name in names]
    square = all(len(set(shape)) == 1 for shape in shapes if len(shape) == 2)
    if apart and square and any(shape[0] > 1 for shape in shapes if len(shape) == 2):
        raise BadInputError(
            f"{what} is a list of square weights before all others, as scikit-learn's; whether they are (input, "
            f"output) does not show: {_BY_HAND}, and turn them to (output, input)."
        )
    places = {name: str(i) for i, name in enumerate(names)}
    places = {name: places[name] for name in expected if name in places}
    left = len(expected) - len(places)
    note = "the arrays have no names: they were paired with the model's by their order and shapes"
    return _paired(places, expected, layout, [note + (f", {left} of which are not among them" if left else "")])


def _readings(
    shapes: tuple[Shape, ...], expected: Mapping[str, Shape], buffers: Collection[str]
) -> list[tuple[tuple[str, ...], Layout]]:
    """Return what a list may be: names in its order, and the layout in which arrays are taken.

    All of a kind that a network has is what lists hold as a rule; then all of some layers, and then any of its tensors.
    """
    sets = _whole_sets(expected, buffers)
    for layout in _LAYOUTS:
        for whole in sets:
            for names in _orders(whole, expected, layout):
                if len(names) == len(shapes) and _all_fit(shapes, names, expected, layout):
                    return [(names, layout)]
        for groups in (_by_layer, _by_tensor) if layout != "turned" else ():
            subsets = dict.fromkeys(
                names for part in sets for names in _subsets(shapes, groups(part), expected, layout)
            )
            if subsets:
                return [(names, layout) for names in subsets]
    return []


def _whole_sets(expected: Mapping[str, Shape], buffers: Collection[str]) -> list[tuple[str, ...]]:
    """Return what a network may send as a whole: its state, the state without counters, its parameters."""
    sets = [
        tuple(expected),
        tuple(name for name in expected if name.rpartition(".")[2] != _COUNTER),
        tuple(name for name in expected if name not in buffers),
    ]
    return list(dict.fromkeys(whole for whole in sets if whole))


def _orders(names: tuple[str, ...], expected: Mapping[str, Shape], layout: Layout) -> list[tuple[str, ...]]:
    """Return the orders in which arrays are listed: the network's, or that of scikit-learn's coefs_ and intercepts_."""
    matrices = tuple(name for name in names if len(expected[name]) > 1)
    apart = matrices + tuple(name for name in names if len(expected[name]) <= 1)
    return [apart] if layout == "turned" else [names, apart]


def _all_fit(shapes: Sequence[Shape], names: Sequence[str], expected: Mapping[str, Shape], layout: Layout) -> bool:
    return all(_fits(shape, expected[name], layout) for shape, name in zip(shapes, names, strict=True))


def _by_layer(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return names layer by layer."""
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(map(tuple, layers.values()))


def _by_tensor(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


def _subsets(
    shapes: tuple[Shape, ...], groups: tuple[tuple[str, ...], ...], expected: Mapping[str, Shape], layout: Layout
) -> list[tuple[str, ...]]:
    """Return the first readings of a list as some of the groups, in their order; enough to see what they differ in."""

    @cache
    def rest(group: int, array: int) -> tuple[tuple[str, ...], ...]:
        if array == len(shapes):
            return ((),)
        if group == len(groups):
            return ()
        names, without = groups[group], rest(group + 1, array)
        end, within = array + len(names), ()
        if end <= len(shapes) and _all_fit(shapes[array:end], names, expected, layout):
            within = tuple(names + others for others in rest(group + 1, end))
        return (*within, *without)[:_LISTED]

    return list(rest(0, 0))


def _check_surplus(
    shapes: tuple[Shape, ...], expected: Mapping[str, Shape], what: str, buffers: Collection[str]
) -> None:
    """Refuse by its name a list of more than a network's tensors, or of those that are sent."""
    for times, count, who in ((2, "twice", _SCAFFOLD), (3, "three times", _MOMENTS)):
        size, left = divmod(len(shapes), times)
        for part in (shapes[:size], shapes[::times]):
            repeated = part * times, tuple(shape for shape in part for _ in range(times))
            if not left and shapes in repeated and _readings(part, expected, buffers):
                raise BadInputError(
                    f"{what} has {len(shapes)} arrays, {count} the {size} of the model that are expected. {who}."
                )
    for number, others in ((shapes[-1], shapes[:-1]), (shapes[0], shapes[1:])):
        if others and all(n == 1 for n in number) and _readings(others, expected, buffers):
            raise BadInputError(
                f"{what} has {len(shapes)} arrays, one more than the {len(others)} of the model that are expected. "
                f"{_NUMBER}."
            )


def _unknown(came: Mapping[str, Shape], expected: Mapping[str, Shape], what: str) -> BadInputError:
    """Return the error of a message with names that are none of the network's."""
    unknown = [name for name in came if name not in expected]
    known = [name for name in came if name in expected]
    behind = [name.partition(".")[2] for name in came]
    for times, count, who in ((2, "twice", _SCAFFOLD), (3, "three times", _MOMENTS)):
        repeats = {name: behind.count(name) for name in behind}
        fits = all(expected.get(key) == came[name] for name, key in zip(came, behind, strict=True))
        if fits and set(repeats.values()) == {times}:
            return BadInputError(
                f"{what} has {len(came)} arrays, {count} the {len(repeats)} of the model that are expected: "
                f"{listing(unknown, came)}. {who}."
            )
    # A second set of tensors has the shapes of the first.
    surplus = sorted(came[name] for name in unknown)
    for senders in (known, list(expected)):
        for times, who in ((1, _SCAFFOLD), (2, _MOMENTS)):
            if senders and known and surplus == sorted(expected[name] for name in senders for _ in range(times)):
                count = "twice" if times == 1 else "three times"
                return BadInputError(
                    f"{what} has {len(came)} arrays, {count} the {len(known)} of the model that are expected: "
                    f"{listing(unknown, came)} are not the model's. {who}."
                )
    single = [name for name in unknown if all(n == 1 for n in came[name])]
    if known and unknown == single and len(single) == 1:
        return BadInputError(f"{what} holds {unknown[0]!r}, which the model has not, a single number. {_NUMBER}.")
    listed = ", ".join(map(repr, unknown[:3])) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
    near = nearest(unknown[0], expected)
    return BadInputError(
        f"{what} holds {listed}, which the model has not{f'; {near}' if near else '.'} Both must be of the same "
        f"network. {_both(came, expected)}"
    )


def _both(came: Mapping[str, Shape], expected: Mapping[str, Shape]) -> str:
    return f"Expected: {listing(expected, expected)}. Came: {listing(came, came)}"
