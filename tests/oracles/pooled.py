"""Joint models trained one after another by PyTorch's own modules and optimiser."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.shadow.stacked import Dense


def one_after_another(
    recipe: Dense, inputs: Tensor, labels: Tensor, chosen: Tensor, seeds: Sequence[int]
) -> list[nn.Sequential]:
    """Train a module for each line of ``chosen``, from the same first weights and in the same order of rows."""
    modules = []
    for line, seed in zip(chosen, seeds, strict=True):
        first, (generator,) = recipe.initial(inputs.shape[1], [seed])
        layers: list[nn.Module] = []
        for weight, bias in zip(first.weights, first.biases, strict=True):
            layer = nn.Linear(weight.shape[2], weight.shape[1])
            with torch.no_grad():
                layer.weight.copy_(weight[0])
                layer.bias.copy_(bias[0])
            layers += [layer, nn.ReLU()]
        module = nn.Sequential(*layers[:-1])
        optimiser = torch.optim.Adam(module.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        size = recipe.batch_size or len(line)
        for _ in range(recipe.epochs):
            order = line[torch.randperm(len(line), generator=generator)]
            for batch in order.split(size):
                optimiser.zero_grad()
                if recipe.clip is None:
                    functional.cross_entropy(module(inputs[batch]), labels[batch]).backward()
                else:
                    clipped = [torch.zeros_like(p) for p in module.parameters()]
                    for i in batch:
                        loss = functional.cross_entropy(module(inputs[i : i + 1]), labels[i : i + 1])
                        gradients = torch.autograd.grad(loss, list(module.parameters()))
                        norm = torch.cat([g.flatten() for g in gradients]).norm()
                        for total, gradient in zip(clipped, gradients, strict=True):
                            total += gradient * min(1.0, recipe.clip / float(norm)) / len(batch)
                    for parameter, gradient in zip(module.parameters(), clipped, strict=True):
                        parameter.grad = gradient
                optimiser.step()
        modules.append(module)
    return modules
