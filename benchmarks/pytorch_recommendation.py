"""PyTorch's side of the MovieLens experiment; `pytorch_trial.py` runs its trials.

Negatives of an epoch are drawn at once. Adam is PyTorch's dense one, as in MLPerf's reference:
every row of an embedding moves at every step. `torch.compile` makes one program of network and
loss.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import pytorch_trial
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.movielens_ml100k_neumf import EXPERIMENT as EXPERIMENT


class NeuMF(nn.Module):
    """Embeddings, a matrix factorization, a perceptron, and the layer that joins them."""

    def __init__(self, experiment: Experiment, spec: Any):
        super().__init__()
        width, (first, *widths) = experiment.model.gmf_width, experiment.model.layer_widths
        self.gmf_users = nn.Embedding(spec.num_users, width)
        self.gmf_items = nn.Embedding(spec.num_items, width)
        self.mlp_users = nn.Embedding(spec.num_users, first // 2)
        self.mlp_items = nn.Embedding(spec.num_items, first // 2)
        sizes = zip((first, *widths), widths, strict=False)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in sizes)
        self.last = nn.Linear(width + widths[-1], 1)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.01)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        limit = math.sqrt(3 / self.last.in_features)
        nn.init.uniform_(self.last.weight, -limit, limit)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """Logits [batch, items] of users [batch] with items [batch, items]."""
        product = self.gmf_users(users)[:, None] * self.gmf_items(items)
        # A user's half of the first layer's kernel is applied once for all its items.
        first, half = self.layers[0], self.mlp_users.embedding_dim
        hidden = F.linear(self.mlp_users(users), first.weight[:, :half], first.bias)[:, None]
        hidden = F.relu(hidden + F.linear(self.mlp_items(items), first.weight[:, half:]))
        for layer in self.layers[1:]:
            hidden = F.relu(layer(hidden))
        return self.last(torch.cat([product, hidden], dim=-1))[..., 0]


def batches(examples: "Examples", batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield users [batch] and items [batch, 1 + negatives] of an endless stream of epochs."""
    users = torch.empty(0, dtype=torch.int64)
    items = torch.empty(0, examples.num_negatives + 1, dtype=torch.int64)
    while True:
        while len(users) < batch_size:
            more_users, more_items = examples.epoch()
            users, items = torch.cat([users, more_users]), torch.cat([items, more_items])
        yield users[:batch_size], items[:batch_size]
        users, items = users[batch_size:], items[batch_size:]


class Examples:
    """The training split, and the items that each user rated."""

    def __init__(self, experiment: Experiment, spec: Any):
        arrays = experiment.data.load("train")
        self.num_negatives, self.num_items = experiment.task.num_negatives, spec.num_items
        self.users = torch.from_numpy(arrays["user"].astype(np.int64))
        self.items = torch.from_numpy(arrays["item"].astype(np.int64))
        self.is_rated = torch.zeros(spec.num_users, spec.num_items, dtype=torch.bool)
        self.is_rated[self.users, self.items] = True

    def epoch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All ratings in a new order, each with new negatives."""
        order = torch.randperm(len(self.users))
        users, items = self.users[order], self.items[order]
        flat = users.repeat_interleave(self.num_negatives)
        negatives = torch.randint(self.num_items, flat.shape)
        (again,) = torch.nonzero(self.is_rated[flat, negatives], as_tuple=True)
        while len(again):
            negatives[again] = torch.randint(self.num_items, again.shape)
            again = again[self.is_rated[flat[again], negatives[again]]]
        return users, torch.cat([items[:, None], negatives.reshape(len(users), -1)], dim=1)


class Trainer(pytorch_trial.Trainer):
    def __init__(self, experiment: Experiment, settings: Settings):
        self.signs = torch.ones(experiment.task.num_negatives + 1)
        self.signs[0] = -1
        spec = experiment.data.spec()
        super().__init__(experiment, settings, lambda: NeuMF(experiment, spec))

    def loss(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return F.softplus(self.signs * self.model(users, items)).mean()

    def warm_up(self) -> None:
        self.reset(0)
        rows, columns = self.experiment.global_batch_size, len(self.signs)
        users = torch.zeros(rows, dtype=torch.int64)
        more = torch.zeros(self.spec.num_eval_examples, dtype=torch.int64)
        candidates = 1 + self.spec.num_eval_negatives
        for _ in range(5):
            self.train((users, users[:, None].repeat(1, columns)), 1.0)
            self.evaluate(more, more[:, None].repeat(1, candidates))

    def load(self, seed: int) -> tuple[Iterator[tuple[torch.Tensor, ...]], tuple[Any, ...]]:
        """Training ratings, and each evaluated user's items."""
        examples = Examples(self.experiment, self.spec)
        arrays = self.experiment.data.load("eval")
        evaluated = [torch.from_numpy(arrays[name].astype(np.int64)) for name in ("user", "items")]
        return batches(examples, self.experiment.global_batch_size), tuple(evaluated)

    @torch.inference_mode()
    def evaluate(self, users: torch.Tensor, items: torch.Tensor) -> dict[str, float]:
        """HR@10; ties count against the held-out item, and repeated items count once."""
        scores = self.forward(users, items.clamp(min=0))
        is_before = ~(scores[:, 1:] < scores[:, :1]) & (items[:, 1:] >= 0)
        return {"hit_rate_at_10": (is_before.sum(1) < 10).float().mean().item()}
