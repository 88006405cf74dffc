"""The small language model in PyTorch: same network, data, recipe, evaluations and clock.

    python -m benchmarks pytorch_language_model --seeds=3

It finds the prepared data as `dawnjax train` does: `squad_text` in $DAWNJAX_DATA or in `./data`.
Every number of the recipe is read from the experiment; the code is what a PyTorch user would write
for speed: fused attention, one product for query, key and value, Muon's matrices of one shape in
one chain of batched products, a fused Adam, and where it is compiled, network and loss as one
program and the orthogonalization as another. One JSON line a seed. The clock is DawnJAX's: it
starts when every shape is warmed up and compiled (on random data and a state that is thrown away)
and stops at the end of the first evaluation that reaches the target; reading the data and all
evaluations count. Needs PyTorch, which DawnJAX itself does not.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import program_start, pytorch_settings
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment import MuonAdam as Config
from dawnjax.experiments.wikipedia_bytes_small import EXPERIMENT
from dawnjax.models.language_model import INITIAL_STD, ROTARY_BASE, LanguageModel
from dawnjax.optim.muon_adam import polynomials
from dawnjax.optim.optimizers import relative_schedule

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("pytorch_language_model: PyTorch is not installed: pip install torch")

EPSILON = 1e-5


class Attention(nn.Module):
    """Causal attention with rotary positions, and normalized queries and keys."""

    def __init__(self, config: LanguageModel, length: int):
        super().__init__()
        self.num_heads = config.num_heads
        self.query_key_value = nn.Parameter(torch.empty(3, config.width, config.width))
        self.projection = nn.Parameter(torch.empty(config.width, config.width))
        half = config.width // config.num_heads // 2
        angles = torch.arange(length)[:, None] * ROTARY_BASE ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        rows, length, width = hidden.shape
        merged = F.linear(hidden, self.query_key_value.flatten(0, 1))
        query, key, value = merged.view(rows, length, 3, self.num_heads, -1).unbind(2)
        query, key = self.rotated(normalized(query)), self.rotated(normalized(key))
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=mask,
            is_causal=mask is None,
        )
        return F.linear(mixed.transpose(1, 2).reshape(rows, length, width), self.projection)

    def rotated(self, heads: torch.Tensor) -> torch.Tensor:
        first, second = heads.chunk(2, dim=-1)
        cos, sin = self.cos, self.sin
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Block(nn.Module):
    """Attention and MLP, each added to the residual stream."""

    def __init__(self, config: LanguageModel, length: int):
        super().__init__()
        self.attention = Attention(config, length)
        self.mlp = nn.Parameter(torch.empty(config.mlp_factor * config.width, config.width))
        self.mlp_projection = nn.Parameter(torch.empty(config.width, len(self.mlp)))

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        hidden = hidden + self.attention(normalized(hidden), mask)
        middle = F.relu(F.linear(normalized(hidden), self.mlp)).square()
        return hidden + F.linear(middle, self.mlp_projection)


class Network(nn.Module):
    """The language model, with those parts that the experiment has."""

    def __init__(self, experiment: Experiment, spec: Any):
        super().__init__()
        config = experiment.model
        self.config, self.separator = config, spec.separator
        length = spec.sequence_length
        self.embedding = nn.Embedding(spec.vocabulary_size, config.width)
        self.blocks = nn.ModuleList(Block(config, length) for _ in range(config.num_layers))
        self.skip_weights = nn.Parameter(torch.ones(config.num_layers // 2))
        self.classifier = nn.Parameter(torch.zeros(spec.vocabulary_size, config.width))
        self.register_buffer(
            "causal", torch.ones(length, length, dtype=torch.bool).tril(), persistent=False
        )
        for name, parameter in self.named_parameters():
            if name.endswith("projection"):
                nn.init.zeros_(parameter)
            elif name not in ("skip_weights", "classifier"):
                nn.init.normal_(parameter, std=INITIAL_STD)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The losses, in nats, of the tokens [batch, 1 + length] but the first."""
        seen = tokens[:, :-1]
        mask = None
        if self.config.masks_documents:
            documents = (seen == self.separator).cumsum(1)
            mask = (self.causal & (documents[:, :, None] == documents[:, None]))[:, None]
        hidden = self.embedding(seen)
        half, count = len(self.blocks) // 2, len(self.blocks)
        skips = []
        for layer, block in enumerate(self.blocks):
            if layer >= count - half:
                hidden = hidden + self.skip_weights[layer - (count - half)] * skips.pop()
            hidden = block(hidden, mask)
            if layer < half:
                skips.append(hidden)
        logits = F.linear(normalized(hidden), self.classifier)
        logits = self.config.logit_soft_cap * torch.tanh(logits / self.config.logit_soft_cap)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")


def normalized(hidden: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(hidden, hidden.shape[-1:], eps=EPSILON)


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
        """What to subtract from the matrices, divided by the rate: [matrices, rows, columns]."""
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
        """Moves the matrices by their gradients."""
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
        self.adam = torch.optim.Adam(
            rest,
            lr=config.adam_learning_rate,
            betas=(config.beta_1, config.beta_2),
            eps=config.epsilon,
            fused=True,
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients."""
        assert set_to_none
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, rate: float = 1.0) -> None:
        """Updates all parameters, at a fraction of the peak rates."""
        self.muon.step(self.config.base_learning_rate * rate)
        self.adam.param_groups[0]["lr"] = self.config.adam_learning_rate * rate
        self.adam.step()

    def forget(self) -> None:
        """Sets the running means to zero, in their memory."""
        for momentum in self.muon.momenta:
            momentum.zero_()
        self.adam.state.clear()


def renamed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """DawnJAX's parameters, by path, as those of `Network`: matrices [outputs, inputs]."""
    given = {}
    for path, array in arrays.items():
        name = path.removesuffix("/kernel").replace("/", ".")
        given[name] = array.T if path.endswith("/kernel") else array
    for prefix in {name.rpartition(".")[0] for name in given if name.endswith(".query")}:
        parts = [given.pop(f"{prefix}.{name}") for name in ("query", "key", "value")]
        given[f"{prefix}.attention.query_key_value"] = np.stack(parts)
        given[f"{prefix}.attention.projection"] = given.pop(f"{prefix}.attention_projection")
    given["embedding.weight"] = given.pop("embedding")
    return given


class Trainer:
    """Model, optimizers and the functions that may be compiled."""

    def __init__(self, experiment: Experiment, settings: pytorch_settings.Settings):
        self.experiment, self.spec = experiment, experiment.data.spec()
        self.model = Network(experiment, self.spec)
        self.optimizer = MuonAdam(self.model, experiment.optimizer, bool(settings.mode))
        self.losses = self.model
        if settings.mode:
            self.losses = torch.compile(self.model, mode=settings.mode, dynamic=False)
        self.relative_rate = relative_schedule(experiment, self.spec)

    def reset(self, seed: int) -> None:
        """Draws a fresh state in the memory of the old one."""
        torch.manual_seed(seed)
        self.model.load_state_dict(Network(self.experiment, self.spec).state_dict())
        self.optimizer.forget()

    def train(self, tokens: torch.Tensor, rate: float) -> None:
        """Trains one step."""
        self.optimizer.zero_grad()
        self.losses(tokens).mean().backward()
        self.optimizer.step(rate)

    @torch.no_grad()
    def bits_per_byte(self, rows: torch.Tensor, counts: np.ndarray) -> float:
        """Of the rows to evaluate; no separator counts as a byte."""
        size = self.experiment.evaluation.global_batch_size
        nats, num_bytes = 0.0, 0
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            filling = size - len(batch)
            losses = self.losses(F.pad(batch, (0, 0, 0, filling))).view(size, -1)[: len(batch)]
            is_real = torch.arange(losses.shape[1]) < torch.from_numpy(
                counts[start : start + size, None]
            )
            nats += (losses.double() * is_real).sum().item()
            num_bytes += (is_real & (batch[:, 1:] != self.spec.separator)).sum().item()
        return nats / math.log(2) / num_bytes

    def warm_up(self) -> None:
        """Runs every shape."""
        self.reset(0)
        length = self.spec.sequence_length + 1
        for _ in range(5):
            self.train(torch.randint(256, (self.experiment.global_batch_size, length)), 1.0)
            rows = torch.randint(256, (self.experiment.evaluation.global_batch_size, length))
            self.bits_per_byte(rows, np.full(len(rows), length - 1))

    def trial(self, seed: int) -> dict[str, Any]:
        """Trains one seed to the target and gives its record."""
        experiment, spec = self.experiment, self.spec
        self.reset(seed)
        num_steps = experiment.num_steps(spec)
        evaluation_steps = set(experiment.evaluation_steps(spec))
        rates = np.asarray(self.relative_rate(np.arange(num_steps)), np.float64)
        target = np.float32(experiment.targets[0].value)
        evaluations, train_seconds, reached_seconds = [], 0.0, None
        run_start = time.perf_counter()
        stream = batches(experiment)
        split = experiment.data.load("eval")
        count = spec.num_eval_examples
        evaluated = torch.from_numpy(split["tokens"][np.arange(count)].astype(np.int64))
        stretch_start = time.perf_counter()
        step = 0
        while step < num_steps and reached_seconds is None:
            self.train(next(stream), rates[step])
            step += 1
            if step in evaluation_steps:
                train_seconds += time.perf_counter() - stretch_start
                measured = self.bits_per_byte(evaluated, split["num_targets"])
                stretch_start = time.perf_counter()
                evaluations.append(
                    {
                        "step": step,
                        "epoch": experiment.epoch_of_step(step, spec),
                        "seconds_since_run_start": stretch_start - run_start,
                        "bits_per_byte": measured,
                    }
                )
                if np.float32(measured) <= target:
                    reached_seconds = stretch_start - run_start
        return {
            "seed": seed,
            "reached": reached_seconds is not None,
            "time_to_accuracy_seconds": reached_seconds,
            "train_seconds": train_seconds,
            "run_seconds": time.perf_counter() - run_start,
            "best": min(entry["bits_per_byte"] for entry in evaluations),
            "epochs": experiment.epoch_of_step(step, spec),
            "steps": step,
            "step_seconds": train_seconds / step,
            "evaluations": evaluations,
        }


def batches(experiment: Experiment) -> Iterator[torch.Tensor]:
    """Yields rows [batch, 1 + length] of the endless stream of epochs, each in a new order."""
    rows = experiment.data.load("train")["tokens"]
    size = experiment.global_batch_size
    left = np.empty(0, np.int64)
    while True:
        left = np.concatenate([left, torch.randperm(len(rows)).numpy()])
        while len(left) >= size:
            yield torch.from_numpy(rows[left[:size]].astype(np.int64))
            left = left[size:]


def main() -> int:
    """Runs the seeds and prints a JSON line for each."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="trials")
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--target", type=float, help="bits a byte, in place of the experiment's")
    parser.add_argument("--max_steps", type=int, help="in place of the experiment's")
    parser.add_argument("--settings", choices=pytorch_settings.SETTINGS, default="eager")
    options = parser.parse_args()
    experiment = EXPERIMENT
    if options.target is not None:
        target = dataclasses.replace(EXPERIMENT.targets[0], value=options.target)
        experiment = dataclasses.replace(experiment, targets=(target,))
    if options.max_steps is not None:
        experiment = dataclasses.replace(experiment, max_steps=options.max_steps)
    config, plain = experiment.model, LanguageModel()
    sizes = {name: getattr(config, name) for name in ("num_layers", "width", "num_heads")}
    has_other_parts = config != dataclasses.replace(plain, **sizes)
    if has_other_parts or not isinstance(experiment.optimizer, Config) or experiment.task.window:
        sys.exit("pytorch_language_model: only the experiment's own parts are written here")
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
