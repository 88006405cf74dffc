"""PyTorch's side of the Multi30K GNMT experiment; `pytorch_trial.py` runs its trials.

A batch holds as many sentence pairs as the experiment's rows do on average, of about one length
each, so little is padding. `nn.LSTM` runs over whole sequences, and losses cover real tokens alone.
The second bias of `nn.LSTM` stays zero. One difference: pairs are drawn anew each epoch, while our
rows keep theirs.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import pytorch_trial
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.multi30k_gnmt import EXPERIMENT as EXPERIMENT
from dawnjax.tasks import bleu

BATCHES_A_POOL = 20
"""So many batches of pairs in random order are sorted by length, cut, and shuffled."""

Pair = tuple[np.ndarray, np.ndarray]
"""Source and target tokens, int64, the end token last."""


class GNMT(nn.Module):
    def __init__(self, experiment: Experiment, vocabulary_size: int):
        super().__init__()
        config = experiment.model
        width, self.rate = config.width, config.dropout_rate
        self.smoothing = experiment.task.label_smoothing
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.encoder_forward = nn.LSTM(width, width, batch_first=True)
        self.encoder_backward = nn.LSTM(width, width, batch_first=True)
        widths = [2 * width] + [width] * (config.num_layers - 2)
        self.encoder = nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in widths)
        widths = [width] + [2 * width] * (config.num_layers - 1)
        self.decoder = nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in widths)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.direction = nn.Parameter(torch.empty(width))
        self.length = nn.Parameter(torch.empty(()))
        self.classifier = nn.Linear(width, vocabulary_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.initial_bound, config.initial_bound)
        nn.init.uniform_(self.embedding.weight, -config.embedding_bound, config.embedding_bound)
        for layer in (self.encoder_forward, self.encoder_backward, *self.encoder, *self.decoder):
            nn.init.zeros_(layer.bias_hh_l0).requires_grad_(False)  # only ever added to the first
        nn.init.zeros_(self.query.bias)
        nn.init.constant_(self.length, width**-0.5)

    def drop(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.dropout(hidden, self.rate, self.training)

    def encode(self, source: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] of tokens [batch, length]; padding comes last."""
        embedded = self.drop(self.embedding(source))
        # The backward layer reads each sentence from its own end.
        places = torch.arange(source.shape[1]).expand_as(source)
        lengths = (source != 0).sum(1, keepdim=True)
        order = torch.where(places < lengths, lengths - 1 - places, places)[..., None]
        order = order.expand_as(embedded)
        backward, _ = self.encoder_backward(embedded.gather(1, order))
        forward, _ = self.encoder_forward(embedded)
        hidden = torch.cat([forward, backward.gather(1, order)], dim=-1)
        for number, layer in enumerate(self.encoder):
            output, _ = layer(self.drop(hidden))
            hidden = output if number == 0 else hidden + output
        return hidden

    def decode(
        self,
        inputs: torch.Tensor,
        encoded: torch.Tensor,
        keys: torch.Tensor,
        mask: torch.Tensor,
        states: list[Any],
    ) -> tuple[torch.Tensor, list[Any]]:
        """Output [batch, length, width], and the layers' states after it."""
        first, *later = self.decoder
        hidden, state = first(self.drop(self.embedding(inputs)), states[0])
        after = [state]
        direction = self.direction * (self.length / self.direction.norm())
        scores = torch.tanh(self.query(hidden)[:, :, None] + keys[:, None]) @ direction
        weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1)
        attended = weights @ encoded
        for number, layer in enumerate(later):
            joined = self.drop(torch.cat([hidden, attended], dim=-1))
            output, state = layer(joined, states[number + 1])
            after.append(state)
            hidden = output if number == 0 else hidden + output
        return hidden, after

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Mean smoothed loss of the target's tokens, in nats."""
        encoded = self.encode(source)
        inputs = F.pad(target[:, :-1], (1, 0))
        nothing = [None] * len(self.decoder)
        hidden, _ = self.decode(inputs, encoded, self.key(encoded), source != 0, nothing)
        real = target != 0
        logits = self.classifier(hidden[real])
        return F.cross_entropy(logits, target[real], label_smoothing=self.smoothing)

    def translate(self, source: torch.Tensor, extra_tokens: int, end: int) -> torch.Tensor:
        """Greedy translations: tokens [batch, length], 0 past their ends."""
        encoded = self.encode(source)
        keys, mask = self.key(encoded), source != 0
        limits = mask.sum(1) + extra_tokens
        states: list[Any] = [None] * len(self.decoder)
        token = torch.zeros(len(source), dtype=torch.int64)
        alive, tokens = torch.ones_like(token, dtype=torch.bool), []
        while alive.any():
            hidden, states = self.decode(token[:, None], encoded, keys, mask, states)
            logits = self.classifier(hidden[:, 0])
            logits[:, 0] = -torch.inf
            token = torch.where(alive, logits.argmax(-1), 0)
            tokens.append(token)
            alive = alive & (token != end) & (len(tokens) < limits)
        return torch.stack(tokens, 1)


def read_pairs(experiment: Experiment) -> list[Pair]:
    """Training pairs, taken out of their packed rows."""
    arrays = experiment.data.load("train")
    sides = []
    for side in ("source", "target"):
        tokens, segments = (
            arrays[side].astype(np.int64),
            arrays[f"{side}_segments"].astype(np.int64),
        )
        real = segments > 0
        row_and_segment = (np.arange(len(tokens))[:, None] * 256 + segments)[real]
        cuts = np.flatnonzero(np.diff(row_and_segment)) + 1
        sides.append(np.split(tokens[real], cuts))
    return list(zip(*sides, strict=True))


def padded(rows: list[np.ndarray]) -> torch.Tensor:
    """Tokens [rows, longest], 0 past a row's end."""
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = row
    return torch.from_numpy(tokens)


def batches(
    pairs: list[Pair], size: int, random: np.random.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield source and target of an endless stream of epochs."""
    while True:
        order = random.permutation(len(pairs))
        cut = []
        for start in range(0, len(order), BATCHES_A_POOL * size):
            pool = order[start : start + BATCHES_A_POOL * size]
            pool = sorted(pool, key=lambda place: (len(pairs[place][0]), len(pairs[place][1])))
            cut += [pool[first : first + size] for first in range(0, len(pool), size)]
        for number in random.permutation(len(cut)):
            sources, targets = zip(*(pairs[place] for place in cut[number]), strict=True)
            yield padded(list(sources)), padded(list(targets))


class Trainer(pytorch_trial.Trainer):
    """The network and its moving average, which is evaluated."""

    def __init__(self, experiment: Experiment, settings: Settings):
        if settings.mode or not experiment.ema_decay:
            sys.exit("pytorch_gnmt: only eager, and averaged weights, are written here")
        size = experiment.data.spec().vocabulary_size
        super().__init__(experiment, settings, lambda: GNMT(experiment, size))
        self.average = GNMT(experiment, size).eval()

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.average.load_state_dict(self.model.state_dict())

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.model(source, target)

    def train(self, batch: tuple[torch.Tensor, ...], rate: float) -> torch.Tensor:
        loss = super().train(batch, rate)
        (group,) = self.optimizer.param_groups
        with torch.no_grad():
            averages = [part for part in self.average.parameters() if part.requires_grad]
            torch._foreach_lerp_(averages, group["params"], 1 - self.experiment.ema_decay)
        return loss

    def translations(self, examples: Any, rows: int | None = None) -> list[np.ndarray]:
        """The averaged model's translations of the evaluation sentences, in order."""
        size, decoding = self.experiment.evaluation.global_batch_size, self.experiment.task.decoding
        source, texts = torch.from_numpy(examples["source"].astype(np.int64))[:rows], []
        with torch.inference_mode():
            for start in range(0, len(source), size):
                batch = source[start : start + size]
                batch = batch[:, : int((batch != 0).sum(1).max())]
                texts.append(
                    self.average.translate(batch, decoding.max_extra_tokens, self.spec.end).numpy()
                )
        return texts

    def warm_up(self) -> None:
        self.reset(0)
        tokens = torch.full((64, 16), 3)
        for _ in range(3):
            self.train((tokens, tokens), 0.0)
        sentence = np.full((self.experiment.evaluation.global_batch_size, 16), 3)
        self.translations({"source": sentence})

    def load(self, seed: int) -> tuple[Iterator[tuple[torch.Tensor, ...]], tuple[Any, ...]]:
        """Training pairs, and evaluation sentences with their references."""
        data, spec = self.experiment.data, self.spec
        pairs_a_row = spec.num_train_pairs / spec.num_train_examples
        size = round(self.experiment.global_batch_size * pairs_a_row)
        stream = batches(read_pairs(self.experiment), size, np.random.default_rng(seed))
        return stream, (data.load("eval"), data.vocabulary(), data.references())

    def evaluate(self, examples: Any, words: Any, references: Any) -> dict[str, Any]:
        texts = [text for part in self.translations(examples) for text in words.decode(part)]
        score, signature = bleu.corpus_bleu(texts, references, self.experiment.task.scoring)
        return {"bleu": score, "bleu_signature": signature}
