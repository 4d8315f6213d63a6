"""Arrays of messages are paired with a network's tensors, or it is said what they may be."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.models.pairing import Pairing, pair, shapes_of
from seepage.models.states import is_buffer, is_sent, state_digest


def numbered(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    return {str(i): tensor for i, tensor in enumerate(tensors)}


def paired(came: dict[str, Tensor], state: dict[str, Tensor]) -> Pairing:
    buffers = [name for name, tensor in state.items() if is_buffer(name, tensor)]
    return pair(shapes_of(came), shapes_of(state), "the update", buffers)


def refused(came: dict[str, Tensor], state: dict[str, Tensor]) -> str:
    with pytest.raises(BadInputError) as raised:
        paired(came, state)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def state_of(*widths: int, normalised: bool = False) -> dict[str, Tensor]:
    """A chain of layers named as in a user's class, every number another one."""
    parts: dict[str, nn.Module] = {}
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        parts[f"layer{i}"] = nn.Linear(inputs, outputs)
        if normalised and i + 2 < len(widths):
            parts[f"bn{i}"] = nn.BatchNorm1d(outputs)
    state = nn.ModuleDict(parts).state_dict()
    return {name: torch.rand(t.shape) if t.dtype.is_floating_point else t for name, t in state.items()}


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Tensor]:
    widths = draw(st.lists(st.integers(2, 9), min_size=3, max_size=5))
    return state_of(*widths, normalised=draw(st.booleans()))


@given(state=networks(), data=st.data())
def test_what_is_named_is_paired_whatever_is_left_out_and_however_it_is_wrapped(
    state: dict[str, Tensor], data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.sampled_from(list(state)), max_size=len(state) - 1))
    sent = {name: tensor for name, tensor in state.items() if name not in kept}
    prefix = data.draw(st.sampled_from(["", "module.", "model.", "_orig_mod.", "net.", "module._orig_mod.model."]))
    order = data.draw(st.permutations(list(sent)))
    found = paired({prefix + name: sent[name] for name in order}, state)
    assert set(found.left_out) == kept
    read = found.read({prefix + name: sent[name] for name in order})
    assert list(read) == list(sent)
    assert all(torch.equal(read[name], sent[name]) for name in sent)


def test_the_networks_own_prefix_may_be_the_one_that_is_missing() -> None:
    inner = state_of(3, 4, 2)
    found = paired(inner, {f"model.{name}": tensor for name, tensor in inner.items()})
    assert found.left_out == ()
    assert "begin with 'model.'" in found.notes[0]
    compiled = {name.replace("layer1", "layer1._orig_mod"): tensor for name, tensor in inner.items()}
    assert paired(compiled, inner).left_out == paired(inner, compiled).left_out == ()


@given(state=networks(), kind=st.sampled_from(["state", "parameters", "without counters"]))
def test_lists_of_a_whole_network_are_paired_in_its_order(state: dict[str, Tensor], kind: str) -> None:
    dropped = {
        "state": [],
        "parameters": [name for name, tensor in state.items() if is_buffer(name, tensor)],
        "without counters": [name for name in state if name.endswith("num_batches_tracked")],
    }[kind]
    sent = {name: tensor for name, tensor in state.items() if name not in dropped}
    found = paired(numbered(list(sent.values())), state)
    assert set(found.left_out) == set(dropped)
    read = found.read(numbered(list(sent.values())))
    assert all(torch.equal(read[name], sent[name]) for name in sent)


def naive_readings(shapes: Sequence[tuple[int, ...]], state: dict[str, Tensor]) -> set[tuple[str, ...]]:
    """All choices of whole layers whose arrays have these shapes in order, by trying every subset."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in state))
    found = set()
    for chosen in range(2 ** len(layers)):
        own = {layer for i, layer in enumerate(layers) if chosen >> i & 1}
        names = tuple(name for name in state if name.rpartition(".")[0] in own)
        if [tuple(state[name].shape) for name in names] == list(shapes):
            found.add(names)
    return found


@given(widths=st.lists(st.integers(2, 4), min_size=3, max_size=6), data=st.data())
def test_a_list_of_some_layers_is_paired_where_every_subset_tried_leaves_one_reading(
    widths: list[int], data: st.DataObject
) -> None:
    state = state_of(*widths)
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in state))
    kept = data.draw(st.sets(st.sampled_from(layers), max_size=len(layers) - 1))
    sent = {name: tensor for name, tensor in state.items() if name.rpartition(".")[0] not in kept}
    readings = naive_readings([tuple(tensor.shape) for tensor in sent.values()], state)
    came = numbered(list(sent.values()))
    if len(readings) == 1:
        assert list(paired(came, state).places) == list(sent)
    else:
        assert "do not say which were left out" in refused(came, state)


def test_batch_normalisation_that_stays_is_told_by_its_layers() -> None:
    """Its entries have the shape of the bias before it: single tensors would leave several readings."""
    state = state_of(5, 7, 6, 2, normalised=True)
    sent = {name: tensor for name, tensor in state.items() if not name.startswith("bn")}
    assert list(paired(numbered(list(sent.values())), state).places) == list(sent)


@pytest.mark.parametrize("widths", [(9, 1), (9, 3), (9, 12, 2), (9, 5, 5, 2), (5, 5, 2)])
def test_scikit_learns_lists_are_turned(widths: tuple[int, ...]) -> None:
    """MLPClassifier has coefs_ (input, output) before intercepts_; linear models have coef_ (output, input)."""
    state = state_of(*widths)
    weights = [tensor for name, tensor in state.items() if name.endswith("weight")]
    biases = [tensor for name, tensor in state.items() if name.endswith("bias")]
    turned = [weight.T for weight in weights] if len(widths) > 2 else weights
    came = numbered([*turned, *biases])
    found = paired(came, state)
    assert found.left_out == ()
    assert all(torch.equal(read, state[name]) for name, read in found.read(came).items())
    back = found.written(state, shapes_of(came))
    assert all(torch.equal(back[name], came[name]) for name in came)


def test_a_linear_regressions_flat_coefficients_are_taken() -> None:
    state = state_of(4, 1)
    came = numbered([state["layer0.weight"].flatten(), state["layer0.bias"].reshape(())])
    assert all(torch.equal(read, state[name]) for name, read in paired(came, state).read(came).items())


def test_square_weights_of_scikit_learn_do_not_show_their_orientation() -> None:
    state = state_of(4, 4, 4)
    came = numbered([state[f"layer{i}.{part}"] for part in ("weight", "bias") for i in (0, 1)])
    assert "whether they are (input, output) does not show" in refused(came, state)
    # In the network's own order they are the network's.
    assert paired(numbered(list(state.values())), state).notes[0].startswith("the arrays have no names")


@pytest.mark.long
@given(state=networks(), interleaved=st.booleans(), times=st.sampled_from([2, 3]))
def test_two_or_three_sets_of_arrays_are_named(state: dict[str, Tensor], interleaved: bool, times: int) -> None:
    sent = [tensor for name, tensor in state.items() if not is_buffer(name, tensor)]
    came = [tensor for tensor in sent for _ in range(times)] if interleaved else sent * times
    text = refused(numbered(came), state)
    assert ("SCAFFOLD" if times == 2 else "Adam") in text
    assert f"{len(came)} arrays, {'twice' if times == 2 else 'three times'} the {len(sent)}" in text


def test_control_variates_of_a_part_are_named_too() -> None:
    state = state_of(5, 7, 6, 2)
    body = list(state.values())[:4]
    assert "8 arrays, twice the 4" in refused(numbered(body * 2), state)


@pytest.mark.parametrize("spelling", ["control.{}", "{}_control", "c.{}"])
def test_named_control_variates_are_scaffolds(spelling: str) -> None:
    state = state_of(5, 4, 2)
    came = state | {spelling.format(name): tensor for name, tensor in state.items()}
    assert "8 arrays, twice the 4 of the model that are expected" in (text := refused(came, state))
    assert "SCAFFOLD" in text
    weights = {f"weights.{name}": tensor for name, tensor in state.items()}
    both = weights | {f"control.{name}": tensor for name, tensor in state.items()}
    assert "SCAFFOLD" in refused(both, state)


def test_one_number_more_is_fednovas() -> None:
    state = state_of(5, 4, 2)
    assert "FedNova" in refused(numbered([*state.values(), torch.tensor(3.0)]), state)
    assert "FedNova" in refused(state | {"tau": torch.tensor(3.0)}, state)


def test_what_does_not_fit_is_listed_with_shapes_ten_of_each() -> None:
    state = state_of(*range(3, 12))
    text = refused({f"other{i}": torch.zeros(i + 1) for i in range(14)}, state)
    assert "'layer0.weight' (4, 3), 'layer0.bias' (4,)" in text
    assert "and 6 more. Came: 'other0' (1,)" in text
    assert text.endswith("'other9' (10,) and 4 more")
    assert "a list of 1 arrays, which are not the model's 16 tensors" in refused(numbered([torch.ones(3, 3, 3)]), state)


@given(state=networks(), kind=st.sampled_from([torch.float64, torch.float32, torch.float16]), data=st.data())
def test_a_digest_knows_the_same_values_in_other_types_and_no_others(
    state: dict[str, Tensor], kind: torch.dtype, data: st.DataObject
) -> None:
    sent = {name: t.to(kind) if t.dtype.is_floating_point else t for name, t in state.items()}
    own = {name: t.float() if t.dtype.is_floating_point else t for name, t in sent.items()}
    part = data.draw(st.sets(st.sampled_from(list(state)), min_size=1))
    assert is_sent(own, state_digest(sent), state)
    assert is_sent(own, state_digest({name: sent[name] for name in sent if name in part}), part)
    moved = {name: t + 1 if name == "layer0.weight" else t for name, t in own.items()}
    assert not is_sent(moved, state_digest(sent), state)
    # Values that the other type rounds are other values.
    fine = {name: t + 2**-20 if t.dtype.is_floating_point else t for name, t in own.items()}
    if kind == torch.float16:
        assert not is_sent(fine, state_digest(sent), state)
