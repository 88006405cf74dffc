"""The Multi30K GNMT experiment in PyTorch: same network, text, recipe, evaluations and clock.

    python -m benchmarks pytorch_gnmt --seeds=3

It finds the prepared text as `dawnjax train` does: `multi30k_en_de` in $DAWNJAX_DATA or in
`./data`. Every number of the recipe is read from the experiment; the code is what a PyTorch user
would write for speed. A batch holds as many sentence pairs as the experiment's rows do on average,
of about one length each, so little of it is padding; `nn.LSTM` runs over whole sequences; losses
are computed of real tokens alone; the optimizer is fused. Two things differ: `nn.LSTM` has two
biases a layer, and pairs are drawn anew each epoch, while our rows keep theirs.

One JSON line a seed. The clock is DawnJAX's: it starts when the shapes are warmed up (on a state
that is thrown away) and stops at the end of the first evaluation that reaches the target; reading
the text, batching and all evaluations count. Needs PyTorch, which DawnJAX itself does not.
"""

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import program_start, pytorch_settings
from dawnjax.config.experiment import Adam, Experiment, WarmupLinear
from dawnjax.experiments.multi30k_gnmt import EXPERIMENT
from dawnjax.tasks import bleu

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("pytorch_gnmt: PyTorch is not installed: pip install torch")

BATCHES_A_POOL = 20
"""So many batches of pairs in random order are sorted by length, cut, and shuffled."""

Pair = tuple[np.ndarray, np.ndarray]
"""Source and target tokens, int64, the end token last."""


class GNMT(nn.Module):
    """Encoder, decoder with additive attention, and classifier; modules are named as ours."""

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
        nn.init.zeros_(self.query.bias)
        nn.init.constant_(self.length, config.attention_length or width**-0.5)

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
        """The output [batch, length, width], and the layers' states after it."""
        first, *later = self.decoder
        hidden, state = first(self.drop(self.embedding(inputs)), states[0])
        after = [state]
        direction = self.direction * (self.length / self.direction.norm())
        scores = torch.tanh(self.query(hidden)[:, :, None] + keys[:, None]) @ direction
        weights = scores.float().masked_fill(~mask[:, None], -torch.inf).softmax(-1)
        attended = weights.to(encoded.dtype) @ encoded
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
        return F.cross_entropy(logits.float(), target[real], label_smoothing=self.smoothing)

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
    """The training pairs, out of their rows."""
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
    """Yields source and target of the endless stream of epochs."""
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


class Trainer:
    """Model, its moving average, and the optimizer."""

    def __init__(self, experiment: Experiment, is_mixed: bool):
        self.experiment, self.spec = experiment, experiment.data.spec()
        self.is_mixed = is_mixed
        self.num_steps = experiment.num_steps(self.spec)
        self.model = GNMT(experiment, self.spec.vocabulary_size)
        self.average = GNMT(experiment, self.spec.vocabulary_size).eval()

    def autocast(self) -> Any:
        if not self.is_mixed:
            return contextlib.nullcontext()
        return torch.autocast("cpu", torch.bfloat16)

    def reset(self, seed: int) -> None:
        """Draws a fresh state in the memory of the old one."""
        torch.manual_seed(seed)
        state = GNMT(self.experiment, self.spec.vocabulary_size).state_dict()
        self.model.load_state_dict(state)
        self.average.load_state_dict(state)
        config = self.experiment.optimizer
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=config.base_learning_rate,
            betas=(config.beta_1, config.beta_2),
            eps=config.epsilon,
            fused=True,
        )

    def learning_rate(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        config, peak = self.experiment.schedule, self.experiment.optimizer.base_learning_rate
        warmup = round(config.warmup_epochs * self.experiment.steps_per_epoch(self.spec))
        if step < warmup:
            return peak * (config.initial_fraction + (1 - config.initial_fraction) * step / warmup)
        left = 1 - (step - warmup) / max(1, self.num_steps - warmup)
        return peak * (config.final_fraction + (1 - config.final_fraction) * left)

    def train(self, source: torch.Tensor, target: torch.Tensor, step: int) -> torch.Tensor:
        """Trains one step; gives its loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self.model(source, target)
        loss.backward()
        parameters = list(self.model.parameters())
        if self.experiment.optimizer.clip_global_norm:
            nn.utils.clip_grad_norm_(parameters, self.experiment.optimizer.clip_global_norm)
        self.optimizer.param_groups[0]["lr"] = self.learning_rate(step)
        self.optimizer.step()
        with torch.no_grad():
            averages = list(self.average.parameters())
            torch._foreach_lerp_(averages, parameters, 1 - self.experiment.ema_decay)
        return loss.detach()

    def translations(self, examples: Any, rows: int | None = None) -> list[np.ndarray]:
        """The averaged model's translations of the evaluated sentences, in their order."""
        size, decoding = self.experiment.evaluation.global_batch_size, self.experiment.task.decoding
        source, texts = torch.from_numpy(examples["source"].astype(np.int64))[:rows], []
        with torch.inference_mode(), self.autocast():
            for start in range(0, len(source), size):
                batch = source[start : start + size]
                batch = batch[:, : int((batch != 0).sum(1).max())]
                texts.append(
                    self.average.translate(batch, decoding.max_extra_tokens, self.spec.end).numpy()
                )
        return texts

    def warm_up(self) -> None:
        """Runs steps and one translated batch, of a state that is thrown away."""
        self.reset(0)
        tokens = torch.full((64, 16), 3)
        for step in range(3):
            self.train(tokens, tokens, step)
        sentence = np.full((self.experiment.evaluation.global_batch_size, 16), 3)
        self.translations({"source": sentence})

    def trial(self, seed: int, steps: int) -> dict[str, Any]:
        """Trains one seed to the target, or for some steps; gives its record."""
        experiment, spec = self.experiment, self.spec
        self.reset(seed)
        num_steps = min(steps or self.num_steps, self.num_steps)
        evaluation_steps = set(experiment.evaluation_steps(spec))
        target = np.float32(experiment.targets[0].value)
        evaluations, losses, train_seconds, reached_seconds = [], [], 0.0, None
        run_start = time.perf_counter()
        pairs, examples = read_pairs(experiment), experiment.data.load("eval")
        words, references = experiment.data.vocabulary(), experiment.data.references()
        pairs_a_row = spec.num_train_pairs / spec.num_train_examples
        size = round(experiment.global_batch_size * pairs_a_row)
        stream = batches(pairs, size, np.random.default_rng(seed))
        stretch_start = time.perf_counter()
        step = 0
        while step < num_steps and reached_seconds is None:
            loss = self.train(*next(stream), step)
            step += 1
            if step <= 10 or step % 100 == 0:
                losses.append([step, float(loss)])
            if step in evaluation_steps:
                train_seconds += time.perf_counter() - stretch_start
                texts = [
                    text for part in self.translations(examples) for text in words.decode(part)
                ]
                score, signature = bleu.corpus_bleu(texts, references, experiment.task.scoring)
                stretch_start = time.perf_counter()
                evaluations.append(
                    {
                        "step": step,
                        "epoch": experiment.epoch_of_step(step, spec),
                        "seconds_since_run_start": stretch_start - run_start,
                        "bleu": score,
                        "bleu_signature": signature,
                    }
                )
                print(json.dumps(evaluations[-1]), file=sys.stderr, flush=True)
                if np.float32(score) >= target:
                    reached_seconds = stretch_start - run_start
        train_seconds += time.perf_counter() - stretch_start
        return {
            "seed": seed,
            "reached": reached_seconds is not None,
            "time_to_accuracy_seconds": reached_seconds,
            "train_seconds": train_seconds,
            "run_seconds": time.perf_counter() - run_start,
            "best": max((entry["bleu"] for entry in evaluations), default=None),
            "epochs": experiment.epoch_of_step(step, spec),
            "steps": step,
            "step_seconds": train_seconds / step,
            "pairs_a_step": size,
            "losses": losses,
            "evaluations": evaluations,
        }


def main() -> int:
    """Runs the seeds and prints a JSON line for each."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="trials")
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--target", type=float, help="BLEU, in place of the experiment's")
    parser.add_argument("--steps", type=int, default=0, help="of a trial, to compare speeds")
    parser.add_argument("--settings", choices=pytorch_settings.SETTINGS, default="eager")
    options = parser.parse_args()
    experiment = EXPERIMENT
    if options.target is not None:
        target = dataclasses.replace(EXPERIMENT.targets[0], value=options.target)
        experiment = dataclasses.replace(experiment, targets=(target,))
    is_known = isinstance(experiment.optimizer, Adam) and not experiment.optimizer.weight_decay
    is_known &= isinstance(experiment.schedule, WarmupLinear) and experiment.ema_decay > 0
    settings = pytorch_settings.SETTINGS[options.settings]
    if not is_known or settings.mode:
        sys.exit("pytorch_gnmt: only Adam, a linear schedule, averaging and eager are written here")
    trainer = Trainer(experiment, settings.is_mixed)
    trainer.warm_up()
    setup_seconds = time.perf_counter() - program_start
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        record = trainer.trial(seed, options.steps)
        record["total_seconds"] = setup_seconds + record["run_seconds"]
        record["setup_seconds"] = setup_seconds
        record["settings"] = options.settings
        record["threads"] = torch.get_num_threads()
        record["torch"] = torch.__version__
        print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
