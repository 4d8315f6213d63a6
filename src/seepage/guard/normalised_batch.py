"""How the batch behind an update was normalised, and which layers' gradients span only differences from its mean."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.traced import frozen
from seepage.learning import mean_loss
from seepage.models.batch_norm import Moments, inputs_seen, moments_of_steps, normalisations
from seepage.models.calling import plain_attention
from seepage.models.model import Model

_PROBED = 64  # decoys of a batch by which layers are found whose errors add up to zero
_ADDS_UP = 1e-3  # share of the errors' lengths up to which their sum is rounding
_MOST = 1000  # decoys whose moments stand for those of a batch that is not known


@dataclass(frozen=True)
class NormalisedBatch:
    """A network as it treated the records behind an update, one by one.

    Attributes:
        module: the network in evaluation mode, whose normalisations by the batch use the moments of that batch.
        centred: affine layers whose errors add up to zero over any batch, as where such a normalisation follows.
        outputs: mean outputs of such layers over the batch less their biases, where running statistics give them away.
        complete: whether the client's rows are as many as the records, so that their mean is that of the batch.
        unmoved: whether running statistics came back as they were sent, as of a client that normalises by these.
    """

    module: nn.Module
    centred: frozenset[str]
    outputs: Mapping[str, Float[Tensor, " unit"]]
    complete: bool
    unmoved: bool

    @classmethod
    def of(
        cls,
        model: Model,
        rows: Float[Tensor, "record encoded"],
        decoys: Float[Tensor, "decoy encoded"],
        records: int,
        running: Mapping[str, Tensor],
    ) -> NormalisedBatch:
        """Return how rows were normalised: by running statistics, else by the rows as a batch, else as decoys are."""
        layers, revealed = normalisations(model.module), moments_of_steps(model.module, running)
        # Those of a client that froze a layer, or holds its statistics back.
        unmoved = any(buffer.rpartition(".")[0] in layers.keys() - revealed.keys() for buffer in running)
        complete = len(rows) == records > 1
        moments = dict(revealed)
        if len(revealed) < len(layers):
            moments = _moments(model, rows if complete else decoys[:_MOST]) | moments
        # Running statistics hold the unbiased variance.
        applied = {
            name: normalised._replace(variance=normalised.variance * (1 - 1 / max(2, records)))
            for name, normalised in moments.items()
        }
        module = frozen(model.module, applied) if applied else model.module
        follows = _centred(model, decoys[:_PROBED])
        outputs = {}
        for name, norm in follows.items():
            if norm in revealed:
                layer = model.module.get_submodule(name)
                assert isinstance(layer, nn.Linear)
                outputs[name] = revealed[norm].mean.double()
                if layer.bias is not None:
                    outputs[name] = outputs[name] - layer.bias.detach().double()
        return cls(module, frozenset(follows), outputs, complete, unmoved)

    def means(
        self,
        name: str,
        weights: Float[Tensor, "unit input"] | None,
        inputs: Sequence[Float[Tensor, "record *part input"]],
    ) -> list[Float[Tensor, "*part input"]]:
        """Return what the mean of a layer's inputs over the batch may be, from those of decoys, others and own rows."""
        usual = torch.cat(list(inputs[:2])).mean(0)
        candidates = []
        if name in self.outputs and weights is not None and usual.ndim == 1:
            # The nearest to that of decoys among those that give the mean output.
            off = self.outputs[name] - weights @ usual
            candidates.append(usual + torch.linalg.pinv(weights) @ off)
        if self.complete:
            candidates.append(inputs[2].mean(0))
        return candidates or [usual]


def _moments(model: Model, rows: Float[Tensor, "record encoded"]) -> dict[str, Moments]:
    """Return the moments of each normalisation by the batch, if the rows were the batch."""
    if len(rows) < 2:
        return {}
    module = _by_batch(model)
    watched = inputs_seen(module)
    with torch.no_grad(), plain_attention(), watched as inputs:
        module(rows.to(next(module.parameters()).dtype))
    channels = {name: entered.transpose(0, 1).flatten(1) for name, entered in inputs.items()}
    return {name: Moments(channel.mean(1), channel.var(1)) for name, channel in channels.items()}


def _by_batch(model: Model) -> nn.Module:
    """Return a copy in evaluation mode, but for normalisations by the batch."""
    module = copy.deepcopy(model.module).eval()
    for name in normalisations(model.module):
        module.get_submodule(name).train()
    return module


def _centred(model: Model, rows: Float[Tensor, "record encoded"]) -> dict[str, str | None]:
    """Return the affine layers whose errors add up to zero, with the normalisation that takes their outputs, if any.

    That is seen in the errors of a batch, whatever normalises there: a layer of PyTorch, or a few lines of a user's.
    """
    if len(rows) < 2:
        return {}
    module = _by_batch(model)
    outputs: dict[str, Tensor] = {}
    taken: dict[str, int] = {}

    def listen(name: str, part: nn.Linear) -> object:
        def note(_: nn.Module, __: object, given: Tensor) -> None:
            outputs[name] = given

        return part.register_forward_hook(note)

    def listen_before(name: str) -> object:
        def note(_: nn.Module, entering: tuple[Tensor, ...]) -> None:
            taken[name] = id(entering[0])

        return module.get_submodule(name).register_forward_pre_hook(note)

    handles = [listen(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    handles += [listen_before(name) for name in normalisations(module)]
    try:
        with torch.enable_grad(), plain_attention():
            predicted = module(rows.to(next(module.parameters()).dtype).requires_grad_())
            outputs = {name: output for name, output in outputs.items() if output.requires_grad}
            if not outputs:
                return {}
            loss = mean_loss(model.head, predicted, predicted.new_zeros(len(predicted)))
            given = torch.autograd.grad(loss, list(outputs.values()), allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()  # pyright: ignore[reportAttributeAccessIssue]
    follows: dict[str, str | None] = {}
    for (name, output), error in zip(outputs.items(), given, strict=True):
        if error is None or not bool(error.any()):
            continue
        errors = error.double().reshape(-1, error.shape[-1])
        if float(errors.sum(0).norm()) <= _ADDS_UP * float(errors.norm(dim=1).sum()):
            follows[name] = next((norm for norm, entered in taken.items() if entered == id(output)), None)
    return follows
