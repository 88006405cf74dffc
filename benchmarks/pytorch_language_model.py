"""PyTorch's side of the small language model; `pytorch_trial.py` runs its trials.

It has fused attention, one product for query, key and value, and one batched product for Muon's
matrices of one shape. `torch.compile` makes one program of network and loss, another of the
orthogonalization.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import pytorch_optimizers, pytorch_trial
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.wikipedia_bytes_small import EXPERIMENT as EXPERIMENT
from dawnjax.models.configs.language_model import LanguageModel
from dawnjax.models.language_model import INITIAL_STD, ROTARY_BASE

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
    """The language model, with the parts that the experiment enables."""

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
        """Losses, in nats, of the tokens [batch, 1 + length] except the first."""
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


class Trainer(pytorch_trial.Trainer):
    def __init__(self, experiment: Experiment, settings: Settings):
        config, plain = experiment.model, LanguageModel()
        sizes = {name: getattr(config, name) for name in ("num_layers", "width", "num_heads")}
        if config != dataclasses.replace(plain, **sizes) or experiment.task.window:
            sys.exit("pytorch_language_model: only the experiment's own parts are written here")
        spec = experiment.data.spec()
        super().__init__(experiment, settings, lambda: Network(experiment, spec))
        # One for all trials: it holds a compiled program.
        self.optimizer = pytorch_optimizers.optimizer_of(
            experiment.optimizer, self.model, bool(settings.mode)
        )

    def reset(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model.load_state_dict(self.network().state_dict())
        self.optimizer.forget()

    def warm_up(self) -> None:
        self.reset(0)
        length = self.spec.sequence_length + 1
        for _ in range(5):
            rows = torch.randint(256, (self.experiment.global_batch_size, length))
            self.train((rows,), 1.0)
            rows = torch.randint(256, (self.experiment.evaluation.global_batch_size, length))
            self.evaluate(rows, np.full(len(rows), length - 1))

    def load(self, seed: int) -> tuple[Iterator[tuple[torch.Tensor]], tuple[Any, ...]]:
        """Rows [batch, 1 + length], each epoch in a new order, and the evaluation split."""
        rows = self.experiment.data.load("train")["tokens"]
        order = pytorch_trial.endless_rows(len(rows), self.experiment.global_batch_size)
        stream = ((torch.from_numpy(rows[index.numpy()].astype(np.int64)),) for index in order)
        split = self.experiment.data.load("eval")
        evaluated = split["tokens"][np.arange(self.spec.num_eval_examples)].astype(np.int64)
        return stream, (torch.from_numpy(evaluated), split["num_targets"])

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        return self.model(rows).mean()

    def train(self, batch: tuple[torch.Tensor, ...], rate: float) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss_of(*batch)
        loss.backward()
        self.optimizer.step(rate)
        return loss

    @torch.no_grad()
    def evaluate(self, rows: torch.Tensor, counts: np.ndarray) -> dict[str, float]:
        """Bits a byte of the evaluation rows; separators do not count as bytes."""
        size = self.experiment.evaluation.global_batch_size
        nats, num_bytes = 0.0, 0
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            filling = size - len(batch)
            losses = self.forward(F.pad(batch, (0, 0, 0, filling))).view(size, -1)[: len(batch)]
            is_real = torch.arange(losses.shape[1]) < torch.from_numpy(
                counts[start : start + size, None]
            )
            nats += (losses.double() * is_real).sum().item()
            num_bytes += (is_real & (batch[:, 1:] != self.spec.separator)).sum().item()
        return {"bits_per_byte": nats / math.log(2) / num_bytes}
