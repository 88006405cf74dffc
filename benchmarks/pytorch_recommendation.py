"""The MovieLens experiment in PyTorch: same network, data, recipe, evaluations and clock.

    python -m benchmarks pytorch_recommendation --seeds=20

It finds the prepared data as `dawnjax train` does: `ml-100k` in $DAWNJAX_DATA or in `./data`.
Every number of the recipe is read from the experiment; the code is what a PyTorch user would write
for speed: the negatives of an epoch are drawn at once, the optimizer is fused, and where it is
compiled, network and loss are one program. Adam is PyTorch's dense one, as in MLPerf's reference:
every row of an embedding moves at every step. One JSON line a seed. The clock is DawnJAX's: it
starts when every shape is warmed up and compiled (on random data and a state that is thrown away)
and stops at the end of the first evaluation that reaches the target; reading the data, drawing
negatives and all evaluations count. Needs PyTorch, which DawnJAX itself does not.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import program_start, pytorch_settings
from dawnjax.config.experiment import Adam, Constant, Experiment
from dawnjax.experiments.movielens_ml100k_neumf import EXPERIMENT

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("pytorch_recommendation: PyTorch is not installed: pip install torch")


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
        """The logits [batch, items] of users [batch] with items [batch, items]."""
        product = self.gmf_users(users)[:, None] * self.gmf_items(items)
        # A user's half of the first layer's kernel is applied once for all its items.
        first, half = self.layers[0], self.mlp_users.embedding_dim
        hidden = F.linear(self.mlp_users(users), first.weight[:, :half], first.bias)[:, None]
        hidden = F.relu(hidden + F.linear(self.mlp_items(items), first.weight[:, half:]))
        for layer in self.layers[1:]:
            hidden = F.relu(layer(hidden))
        return self.last(torch.cat([product, hidden], dim=-1))[..., 0]


def batches(examples: "Examples", batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields users [batch] and items [batch, 1 + negatives] of the endless stream of epochs."""
    users = torch.empty(0, dtype=torch.int64)
    items = torch.empty(0, examples.num_negatives + 1, dtype=torch.int64)
    while True:
        while len(users) < batch_size:
            more_users, more_items = examples.epoch()
            users, items = torch.cat([users, more_users]), torch.cat([items, more_items])
        yield users[:batch_size], items[:batch_size]
        users, items = users[batch_size:], items[batch_size:]


class Examples:
    """The training split, and what each user rated."""

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


class Trainer:
    """Model, optimizer and the two functions that may be compiled."""

    def __init__(self, experiment: Experiment, settings: pytorch_settings.Settings):
        self.experiment, self.spec = experiment, experiment.data.spec()
        self.model = NeuMF(experiment, self.spec)
        self.signs = torch.ones(experiment.task.num_negatives + 1)
        self.signs[0] = -1
        self.forward, self.loss_of = self.model, self.loss
        if settings.mode:
            self.forward = torch.compile(self.model, mode=settings.mode, dynamic=False)
            self.loss_of = torch.compile(self.loss, mode=settings.mode, dynamic=False)

    def loss(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return F.softplus(self.signs * self.model(users, items)).mean()

    def reset(self, seed: int) -> None:
        """Draws a fresh state in the memory of the old one."""
        torch.manual_seed(seed)
        self.model.load_state_dict(NeuMF(self.experiment, self.spec).state_dict())
        config = self.experiment.optimizer
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=config.base_learning_rate,
            betas=(config.beta_1, config.beta_2),
            eps=config.epsilon,
            fused=True,
        )

    def train(self, users: torch.Tensor, items: torch.Tensor) -> None:
        """Trains one step."""
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(users, items).backward()
        self.optimizer.step()

    @torch.inference_mode()
    def evaluate(self, users: torch.Tensor, items: torch.Tensor) -> float:
        """HR@10; ties count against the held-out item, and an item that comes again once."""
        scores = self.forward(users, items.clamp(min=0))
        is_before = ~(scores[:, 1:] < scores[:, :1]) & (items[:, 1:] >= 0)
        return (is_before.sum(1) < 10).float().mean().item()

    def load_evaluation(self) -> tuple[torch.Tensor, torch.Tensor]:
        arrays = self.experiment.data.load("eval")
        return tuple(torch.from_numpy(arrays[name].astype(np.int64)) for name in ("user", "items"))

    def warm_up(self) -> None:
        """Runs every shape on zeros."""
        self.reset(0)
        rows, columns = self.experiment.global_batch_size, len(self.signs)
        users = torch.zeros(rows, dtype=torch.int64)
        more = torch.zeros(self.spec.num_eval_examples, dtype=torch.int64)
        candidates = 1 + self.spec.num_eval_negatives
        for _ in range(5):
            self.train(users, users[:, None].repeat(1, columns))
            self.evaluate(more, more[:, None].repeat(1, candidates))

    def trial(self, seed: int) -> dict[str, Any]:
        """Trains one seed to the target and gives its record."""
        experiment, spec = self.experiment, self.spec
        self.reset(seed)
        num_steps = experiment.num_steps(spec)
        evaluation_steps = set(experiment.evaluation_steps(spec))
        target = np.float32(experiment.targets[0].value)
        evaluations, train_seconds, reached_seconds = [], 0.0, None
        run_start = time.perf_counter()
        examples = Examples(experiment, spec)
        evaluated = self.load_evaluation()
        stream = batches(examples, experiment.global_batch_size)
        stretch_start = time.perf_counter()
        step = 0
        while step < num_steps and reached_seconds is None:
            self.train(*next(stream))
            step += 1
            if step in evaluation_steps:
                train_seconds += time.perf_counter() - stretch_start
                hit_rate = self.evaluate(*evaluated)
                stretch_start = time.perf_counter()
                evaluations.append(
                    {
                        "step": step,
                        "epoch": experiment.epoch_of_step(step, spec),
                        "seconds_since_run_start": stretch_start - run_start,
                        "hit_rate_at_10": hit_rate,
                    }
                )
                if np.float32(hit_rate) >= target:
                    reached_seconds = stretch_start - run_start
        return {
            "seed": seed,
            "reached": reached_seconds is not None,
            "time_to_accuracy_seconds": reached_seconds,
            "train_seconds": train_seconds,
            "run_seconds": time.perf_counter() - run_start,
            "best": max(entry["hit_rate_at_10"] for entry in evaluations),
            "epochs": experiment.epoch_of_step(step, spec),
            "steps": step,
            "step_seconds": train_seconds / step,
            "evaluations": evaluations,
        }


def main() -> int:
    """Runs the seeds and prints a JSON line for each."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="trials")
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--target", type=float, help="HR@10, in place of the experiment's")
    parser.add_argument("--settings", choices=pytorch_settings.SETTINGS, default="eager")
    options = parser.parse_args()
    experiment = EXPERIMENT
    if options.target is not None:
        target = dataclasses.replace(EXPERIMENT.targets[0], value=options.target)
        experiment = dataclasses.replace(experiment, targets=(target,))
    is_known = isinstance(experiment.optimizer, Adam) and not experiment.optimizer.weight_decay
    if not is_known or not isinstance(experiment.schedule, Constant) or experiment.ema_decay:
        sys.exit("pytorch_recommendation: only plain Adam at a constant rate is written here")
    trainer = Trainer(experiment, pytorch_settings.SETTINGS[options.settings])
    trainer.warm_up()
    setup_seconds = time.perf_counter() - program_start
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        record = trainer.trial(seed)
        record["total_seconds"] = setup_seconds + record["run_seconds"]
        record["setup_seconds"] = setup_seconds
        record["settings"] = options.settings
        record["threads"] = torch.get_num_threads()
        record["torch"] = torch.__version__
        print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
