"""Networks whose gradient is differentiated in closed form, and their decomposition into layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seepage.attacks.horizontal.exact import layers
from seepage.models.batch_norm import BatchNorm
from seepage.models.calling import watched
from seepage.models.dropout import drops_of
from seepage.models.resnet import Residual

_ROWS = 64  # random rows with which the form of a network is looked at


def parts_of(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of a network with closed-form passes, in order; None where it holds any other layer."""
    # These are affine layers, ReLUs of their outputs, batch normalisations, residual blocks of such layers, and a
    # convolution in front; the last one is affine. Chains of affine layers, normalisations and ReLUs are recognised in
    # any module by what it does with random rows; not where it takes masks of dropout.
    if drops_of(module) is not None or not all(parameter.requires_grad for parameter in module.parameters()):
        return None
    parts = _sequence([module])
    if not parts or type(parts[-1]) is not nn.Linear or not _fits(parts, at_start=True):
        return _rectified(module)
    leaves = [part for part in module.modules() if next(part.children(), None) is None]
    # A layer that runs twice has one gradient for both.
    runs = _leaves(parts)
    distinct = len({id(part) for part in runs}) == len(runs) == len(leaves)
    return parts if distinct and not any(_is_special(part) for part in module.modules()) else None


def _rectified(module: nn.Module) -> list[nn.Module] | None:
    """Return affine layers, normalisations and the ReLUs between them, in the order in which a module runs them."""
    # None unless each layer runs once, takes exactly what the one before returned or the ReLU of it, and the outputs
    # are those of the last one; and unless these layers hold all parameters, in this order.
    leaves = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear | BatchNorm)}
    of_layers = [parameter for layer in leaves.values() for parameter in layer.parameters(recurse=False)]
    parameters = list(module.parameters())
    first = next(iter(leaves.values()), None)
    if not isinstance(first, nn.Linear) or len(of_layers) != len(parameters) or any(map(_is_special, module.modules())):
        return None
    if any(a is not b for a, b in zip(of_layers, parameters, strict=True)):
        return None
    # Rows of several sizes: an activation that only begins as a ReLU does is seen.
    drawn = torch.randn(_ROWS, first.in_features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = (drawn * torch.logspace(-2, 3, _ROWS, dtype=torch.float64)[:, None]).to(parameters[0])
    try:
        runs = watched(module, leaves, rows)
    except Exception:  # A user's module may raise anything; others than plain networks take rows of other widths.
        return None
    if [run.name for run in runs.layers] != list(leaves) or not torch.equal(runs.outputs, runs.layers[-1].returned):
        return None
    parts: list[nn.Module] = []
    before, rectified = rows, rows
    for run in runs.layers:
        if parts and torch.equal(run.entering, rectified):
            parts.append(nn.ReLU())
        elif not torch.equal(run.entering, before):
            return None
        parts.append(leaves[run.name])
        before, rectified = run.returned, run.returned.relu()
    return parts if type(parts[-1]) is nn.Linear and _fits(parts, at_start=True) else None


def affine_layers(module: nn.Module) -> list[nn.Linear] | None:
    """Return the affine layers of a plain ReLU network, or None where the module is anything else."""
    parts = parts_of(module) or []
    affine = [part for part in parts if isinstance(part, nn.Linear)]
    plain = [type(part) for part in parts] == [nn.ReLU if i % 2 else nn.Linear for i in range(2 * len(affine) - 1)]
    return affine if plain and affine else None


def chain_of(
    parts: Sequence[nn.Module], module: nn.Module, parameters: Sequence[Tensor], received: Sequence[Tensor]
) -> layers.Chain:
    """Return the layers of ``parts_of``, ready to run; the module gives the order of parameters."""
    # Parameters are those of all victims or (victim, *parameter); gradients are (victim, *parameter).
    places = {id(parameter): i for i, parameter in enumerate(module.parameters())}
    chain: list[layers.DifferentiatedLayer] = []
    for part in parts:
        if isinstance(part, Residual):
            chain.append(layers.Concatenation(chain_of(branch_of(part), module, parameters, received)))
        elif isinstance(part, nn.ReLU):
            chain.append(layers.rectified)
        elif isinstance(part, nn.Flatten):
            chain.append(layers.flattened)
        elif isinstance(part, nn.Linear | BatchNorm | nn.Conv1d):
            i = places[id(part.weight)]
            weight, sent = parameters[i], received[i]
            if isinstance(part, nn.Conv1d):
                chain.append(layers.Convolution(i, weight[..., 0, :], sent[:, :, 0]))
            elif isinstance(part, BatchNorm):
                chain.append(layers.Normalisation(i, weight, parameters[i + 1], part.eps, sent, received[i + 1]))
            else:
                back = weight.transpose(-2, -1).contiguous(), sent.transpose(1, 2).contiguous()
                chain.append(layers.Affine(i, weight, parameters[i + 1], sent, received[i + 1], *back))
    return layers.Chain(chain)


def _sequence(modules: Sequence[nn.Module]) -> list[nn.Module]:
    return [
        part for module in modules for part in (_sequence(list(module)) if type(module) is nn.Sequential else [module])
    ]


def branch_of(block: Residual) -> list[nn.Module]:
    """Return the layers of a residual block's branch, in order."""
    return _sequence([block.branch])


def _leaves(parts: Sequence[nn.Module]) -> list[nn.Module]:
    return [leaf for part in parts for leaf in (_leaves(branch_of(part)) if isinstance(part, Residual) else [part])]


def _fits(parts: Sequence[nn.Module], at_start: bool) -> bool:
    """Whether all parts are known and in allowed places: ReLUs work in place, convolutions on rows."""
    fresh, flat = False, True
    for i, part in enumerate(parts):
        kind = type(part)
        if kind is nn.Linear and isinstance(part, nn.Linear):
            fits, fresh = flat and part.bias is not None, True
        elif kind is nn.ReLU:
            fits, fresh = fresh, False
        elif isinstance(part, BatchNorm):
            fits, fresh = kind is BatchNorm and part.takes_batch and part.weight is not None, True
        elif isinstance(part, Residual):
            branch = branch_of(part)
            fits, fresh = flat and kind is Residual and bool(branch) and _fits(branch, at_start=False), False
        elif isinstance(part, nn.Unflatten):
            shape = tuple(part.unflattened_size)
            fits = kind is nn.Unflatten and at_start and i == 0 and part.dim == 1 and shape[0] == 1 == len(shape) - 1
            fits, flat = fits and len(parts) > 1, False
            fits = fits and type(parts[1]) is nn.Conv1d
        elif isinstance(part, nn.Conv1d):
            plain = (part.stride, part.padding, part.dilation, part.bias) == ((1,), (0,), (1,), None)
            fits, fresh = kind is nn.Conv1d and i == 1 and not flat and part.in_channels == 1 and plain, True
        elif isinstance(part, nn.Flatten):
            fits = kind is nn.Flatten and not flat and (part.start_dim, part.end_dim) == (1, -1)
            fresh, flat = False, True
        else:
            return False
        if not fits:
            return False
    return flat


def _is_special(part: nn.Module) -> bool:
    """Whether a module does more than its type says: hooks, or parameters computed from others."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    parameters = [name for name, _ in part.named_parameters(recurse=False)]
    return any(hooks) or (isinstance(part, nn.Linear | BatchNorm) and parameters != ["weight", "bias"])
