"""Facts on a model's outputs, units and gradients on some of a client's rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage import protocols
from seepage.learning import gradient
from seepage.seeds import stream
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.horizontal.subject import Subject
from seepage.settings.setting import Gradients, Layer, Probe

_ROWS = 1024
_BATCHES = 5
# Beyond this a sigmoid's or tanh's derivative is below a five-hundredth of its greatest.
_FLAT = 0.999


def look(spec: HorizontalSpec, subject: Subject) -> Probe:
    """Return facts on a random thousand of the client's rows and the first batches of each size."""
    table = subject.dataset.train
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(stream(spec.seed, 0, "probe")))
    cells, _ = table.take(order[:_ROWS])
    encoded = subject.encoder.encode(cells.to(subject.encoder.mean.device))
    outputs, layers = _watched(subject, encoded)
    gradients = tuple(_gradients(spec, subject, size) for size in spec.batch_sizes)
    return Probe(len(encoded), _certain(subject.model.head, outputs), layers, gradients)


def _certain(head: str, outputs: Float[Tensor, "record output"]) -> float | None:
    if head == "regression":
        return None
    likeliest = outputs.double()
    likeliest = likeliest.softmax(-1).amax(-1) if head == "softmax" else likeliest.abs().sigmoid()[:, 0]
    return float((likeliest > _FLAT).double().mean())


def _is_flat(kind: type[nn.Module], output: Tensor) -> Tensor:
    if kind is nn.ReLU:
        return output <= 0
    return output.abs() > _FLAT if kind is nn.Tanh else (output - 0.5).abs() > _FLAT - 0.5


def _watched(subject: Subject, encoded: Tensor) -> tuple[Tensor, tuple[Layer, ...]]:
    """Return the outputs, and facts on each activation layer; a layer that runs twice must be flat both times."""
    flat: dict[str, Tensor] = {}
    kinds: dict[str, type[nn.Module]] = {}

    def listen(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def note(layer: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
            always = _is_flat(type(layer), output).all(0)
            kinds[name] = type(layer)
            flat[name] = flat[name] & always if name in flat and flat[name].shape == always.shape else always

        return note

    named = subject.model.module.named_modules()
    activations = [(name, layer) for name, layer in named if type(layer) in (nn.ReLU, nn.Tanh, nn.Sigmoid)]
    handles = [layer.register_forward_hook(listen(name)) for name, layer in activations]
    try:
        outputs = subject.model.outputs(encoded)
    finally:
        # A module with hooks is one that the fast engine does not take.
        for handle in handles:
            handle.remove()
    counts = {name: (always.numel(), int(always.sum())) for name, always in flat.items()}
    return outputs, tuple(Layer(name, kinds[name].__name__, *counted) for name, counted in counts.items())


def _gradients(spec: HorizontalSpec, subject: Subject, size: int) -> Gradients:
    protocol = protocols.create(spec.protocol, batch_size=size, replacement=spec.replacement, **spec.protocol_options)
    seeds = [stream(spec.seed, victim, "batch") for victim in range(min(_BATCHES, spec.victims))]
    # The first of several rounds; where a client holds more than a batch, what is laid beside is all that it holds.
    ran = protocol.run_rounds([subject.model], subject.dataset.train, subject.encoder, seeds)
    norms = _norms(ran.view.rounds[0].message)
    encoded = subject.encoder.encode(ran.secret.cells.to(subject.encoder.mean.device))
    labels = ran.secret.labels.to(encoded.device)[0]
    # One batch at a time: gradients of a wide network on several large batches may not fit.
    alike = [gradient(subject.model, rows[None], labels[None]) for rows in encoded]
    largest = max(_norms(g)[0] for g in alike)
    if largest == 0 or bool((encoded == encoded[0]).all()):
        return Gradients(size, norms, None)
    apart = ({name: g[name] - alike[0][name] for name in g} for g in alike)
    return Gradients(size, norms, max(_norms(g)[0] for g in apart) / largest)


def _norms(gradients: dict[str, Tensor]) -> tuple[float, ...]:
    squares = torch.stack([g.flatten(1).double().square().sum(1) for g in gradients.values()])
    return tuple(squares.sum(0).sqrt().tolist())
