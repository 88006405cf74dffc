"""PyTorch's optimizers with an experiment's numbers: fused SGD and Adam, and Muon.

Muon is written for speed, as a PyTorch expert would: matrices of one shape in one chain of batched
products, which may be compiled.
"""

import math
import sys
from collections import defaultdict
from typing import Any

import torch
from torch import nn

from benchmarks import recipe_import  # noqa: F401 - it times the first import of JAX
from dawnjax.config.experiment import Adam, Sgd
from dawnjax.config.experiment import MuonAdam as Config
from dawnjax.optim.muon_adam import polynomials


def optimizer_of(config: Any, model: nn.Module, is_compiled: bool = False) -> Any:
    """Optimizer of a config for all trained parameters of a model."""
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]
    match config:
        case Config():
            return MuonAdam(model, config, is_compiled)
        case Adam(weight_decay=0):
            return fused_adam(params, config, config.base_learning_rate)
        case Sgd():
            is_decayed = [p.ndim > 1 or config.decay_norm_and_bias for p in params]
            decayed = [p for p, is_one in zip(params, is_decayed, strict=True) if is_one]
            others = [p for p, is_one in zip(params, is_decayed, strict=True) if not is_one]
            return torch.optim.SGD(
                [
                    {"params": decayed, "weight_decay": config.weight_decay},
                    {"params": others, "weight_decay": 0.0},
                ],
                lr=config.base_learning_rate,
                momentum=config.momentum,
                nesterov=config.nesterov,
                fused=True,
            )
    sys.exit(f"pytorch_optimizers: only SGD, plain Adam and Muon are written here, not {config}")


def fused_adam(params: list[nn.Parameter], config: Adam | Config, rate: float) -> torch.optim.Adam:
    betas = (config.beta_1, config.beta_2)
    return torch.optim.Adam(params, lr=rate, betas=betas, eps=config.epsilon, fused=True)


class Muon:
    """Muon for matrices; those of one shape are orthogonalized in one chain of products."""

    def __init__(self, matrices: list[nn.Parameter], config: Config, is_compiled: bool):
        self.config = config
        shapes = defaultdict(list)
        for matrix in matrices:
            shapes[tuple(matrix.shape[-2:])].append(matrix)
        self.groups = list(shapes.values())
        self.momenta = [
            group[0].new_zeros(sum(m.numel() for m in group) // (rows * columns), rows, columns)
            for (rows, columns), group in shapes.items()
        ]
        self.quintics = polynomials(config)
        self.orthogonal = torch.compile(self.update) if is_compiled else self.update

    def update(self, gradients: torch.Tensor, momentum: torch.Tensor) -> torch.Tensor:
        """Step of the matrices divided by the rate: [matrices, rows, columns], to subtract."""
        momentum.mul_(self.config.momentum).add_(gradients)
        x = gradients + self.config.momentum * momentum
        is_tall = x.shape[1] > x.shape[2]
        x = x.mT if is_tall else x
        x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
        for a, b, c in self.quintics:
            gram = x @ x.mT
            x = a * x + torch.baddbmm(b * gram, gram, gram, beta=1, alpha=c) @ x
        x = x.mT if is_tall else x
        return x * math.sqrt(max(1.0, x.shape[1] / x.shape[2]))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the matrices by their gradients."""
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradients = [matrix.grad.view(-1, *momentum.shape[1:]) for matrix in group]
            update = self.orthogonal(torch.cat(gradients), momentum)
            parts = update.split([len(gradient) for gradient in gradients])
            moved = [part.reshape(m.shape) for part, m in zip(parts, group, strict=True)]
            torch._foreach_add_(group, moved, alpha=-rate)


class MuonAdam:
    """Muon for the blocks' matrices, a fused Adam for the rest."""

    def __init__(self, model: nn.Module, config: Config, is_compiled: bool):
        self.config = config
        hidden = [p for name, p in model.named_parameters() if name.startswith("blocks.")]
        rest = [p for name, p in model.named_parameters() if not name.startswith("blocks.")]
        self.parameters = [*hidden, *rest]
        self.muon = Muon(hidden, config, is_compiled)
        self.adam = fused_adam(rest, config, config.adam_learning_rate)

    def zero_grad(self, set_to_none: bool = True) -> None:
        assert set_to_none
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, rate: float = 1.0) -> None:
        """Update all parameters, at a fraction of the peak rates."""
        self.muon.step(self.config.base_learning_rate * rate)
        self.adam.param_groups[0]["lr"] = self.config.adam_learning_rate * rate
        self.adam.step()

    def forget(self) -> None:
        """Set the running means to zero, in place."""
        for momentum in self.muon.momenta:
            momentum.zero_()
        self.adam.state.clear()
