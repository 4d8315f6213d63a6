"""Recurrent layers by their formula: PyTorch's own kernels neither run for several batches nor differentiate twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.models.copies import copied

_State = tuple[Tensor, ...]
_Step = Callable[[Tensor, _State, Tensor, Tensor | None], _State]


def by_formula(module: nn.Module) -> nn.Module:
    """Return the module, or a copy in which PyTorch's recurrent layers compute the same by their formula.

    Layers with dropout between them, or with projections, stay as they are.
    """
    if not any(_form(part) is not None for part in module.modules()):
        return module
    copy = copied(module)
    for part in copy.modules():
        form = _form(part)
        if form is not None:
            # Not a bound method, which worker processes would look up in the layer by its name.
            part.forward = partial(form, part)
    return copy


def _form(part: nn.Module) -> Callable[..., object] | None:
    """Return the formula of a layer, None where it has another one or runs by it already."""
    if "forward" in vars(part):
        return None
    if isinstance(part, nn.RNNCellBase):
        plain = type(part).forward in (nn.GRUCell.forward, nn.LSTMCell.forward, nn.RNNCell.forward)
        return _cell if plain else None
    if isinstance(part, nn.RNNBase) and part.proj_size == 0 and (part.dropout == 0 or part.num_layers == 1):
        return _layers if type(part).forward in (nn.GRU.forward, nn.LSTM.forward, nn.RNN.forward) else None
    return None


def _cell(part: nn.RNNCellBase, input: Tensor, hx: Any = None) -> Any:
    """Return the next state of a cell, (record, hidden) or (hidden,)."""
    memory = isinstance(part, nn.LSTMCell)
    rows = input if input.dim() == 2 else input[None]
    state = _given(hx, memory) or _nothing(rows.new_zeros(len(rows), part.hidden_size), memory)
    state = tuple(tensor if tensor.dim() == 2 else tensor[None] for tensor in state)
    entering = functional.linear(rows, part.weight_ih, part.bias_ih)
    state = _step(part)(entering, state, part.weight_hh, part.bias_hh)
    state = state if input.dim() == 2 else tuple(tensor[0] for tensor in state)
    return state if memory else state[0]


def _layers(part: nn.RNNBase, input: Any, hx: Any = None) -> Any:
    """Return outputs and last states of recurrent layers on (record, step, input), or with steps first."""
    if not isinstance(input, Tensor) or input.dim() != 3:
        return type(part).forward(part, input, hx)  # pyright: ignore[reportArgumentType]
    rows = input if part.batch_first else input.transpose(0, 1)
    memory, directions, step = isinstance(part, nn.LSTM), 2 if part.bidirectional else 1, _step(part)
    first = _given(hx, memory)
    ends: list[_State] = []
    for layer in range(part.num_layers):
        outputs = []
        for direction in range(directions):
            name = f"_l{layer}{'_reverse' * direction}"
            weights = [getattr(part, kind + name) for kind in ("weight_ih", "weight_hh")]
            biases = [getattr(part, kind + name) if part.bias else None for kind in ("bias_ih", "bias_hh")]
            entering = functional.linear(rows, weights[0], biases[0]).unbind(1)
            state = _nothing(rows.new_zeros(len(rows), part.hidden_size), memory)
            if first is not None:
                state = tuple(entry[len(ends)] for entry in first)
            states: list[Tensor] = []
            for entry in reversed(entering) if direction else entering:
                state = step(entry, state, weights[1], biases[1])
                states.append(state[0])
            ends.append(state)
            outputs.append(torch.stack(states[::-1] if direction else states, 1))
        rows = torch.cat(outputs, 2)
    last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    return rows if part.batch_first else rows.transpose(0, 1), last if memory else last[0]


def _given(hx: Any, memory: bool) -> _State | None:
    return None if hx is None else tuple(hx) if memory else (hx,)


def _nothing(zeros: Tensor, memory: bool) -> _State:
    return (zeros, zeros) if memory else (zeros,)


def _step(part: nn.Module) -> _Step:
    if isinstance(part, nn.GRU | nn.GRUCell):
        return _gru
    if isinstance(part, nn.LSTM | nn.LSTMCell):
        return _lstm
    return partial(_plain, torch.relu if getattr(part, "nonlinearity", "tanh") == "relu" else torch.tanh)


def _gru(entering: Tensor, state: _State, weight: Tensor, bias: Tensor | None) -> _State:
    before = state[0]
    (r, z, n), (own_r, own_z, own_n) = entering.chunk(3, -1), functional.linear(before, weight, bias).chunk(3, -1)
    stays = torch.sigmoid(z + own_z)
    new = torch.tanh(n + torch.sigmoid(r + own_r) * own_n)
    return (new + stays * (before - new),)


def _lstm(entering: Tensor, state: _State, weight: Tensor, bias: Tensor | None) -> _State:
    i, f, g, o = (entering + functional.linear(state[0], weight, bias)).chunk(4, -1)
    memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(memory), memory


def _plain(
    activation: Callable[[Tensor], Tensor], entering: Tensor, state: _State, weight: Tensor, bias: Tensor | None
) -> _State:
    return (activation(entering + functional.linear(state[0], weight, bias)),)
