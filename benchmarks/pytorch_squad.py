"""The small SQuAD experiment in PyTorch: same network, data, recipe, evaluations and clock.

    python -m benchmarks pytorch_squad --seeds=2

It finds the prepared data as `dawnjax train` does: `squad` in $DAWNJAX_DATA or in `./data`. Every
number of the recipe is read from the experiment; the code is what a PyTorch user would write for
speed. Each direction of an LSTM layer is `nn.LSTM` over whole padded rows, which oneDNN computes;
rows are turned round within their own lengths for the backward direction, so that padding comes
last and changes nothing. The two biases of `nn.LSTM` are one: the second stays zero. The optimizer
is fused. One JSON line a seed.

The clock is DawnJAX's: it starts when every shape is warmed up and compiled (on random data and a
state that is thrown away) and stops at the end of the first evaluation that reaches the target;
reading the data and all evaluations count. Needs PyTorch, which DawnJAX itself does not.
"""

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks import program_start, pytorch_settings
from dawnjax.config.experiment import Adam, Experiment, WarmupLinear
from dawnjax.experiments.squad_small import EXPERIMENT
from dawnjax.input_pipeline.batches import ExampleOrder
from dawnjax.tasks import span_scores

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("pytorch_squad: PyTorch is not installed: pip install torch")

TAPS, NUM_CHARACTERS, MASKED = 5, 200, -1e9
INPUTS = ("context", "context_characters", "question", "question_characters")


class LSTM(nn.Module):
    """One layer in both directions over rows of their own lengths."""

    def __init__(self, in_width: int, width: int):
        super().__init__()
        self.directions = nn.ModuleList(
            nn.LSTM(in_width, width, batch_first=True) for _ in range(2)
        )
        for layer in self.directions:
            for name, parameter in layer.named_parameters():
                if name == "bias_hh_l0":
                    nn.init.zeros_(parameter)
                    parameter.requires_grad_(False)
                else:
                    nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, inputs: torch.Tensor, turned: torch.Tensor) -> torch.Tensor:
        """`turned` int [batch, length]: places in the opposite order, padding in its place."""
        forward, backward = self.directions
        order = turned[..., None]
        back = backward(inputs.gather(1, order.expand_as(inputs)))[0]
        return torch.cat([forward(inputs)[0], back.gather(1, order.expand_as(back))], dim=-1)


class BiDAF(nn.Module):
    """Embedding, contextual layer, attention, modelling layers and scores of both ends."""

    def __init__(self, experiment: Experiment, spec: Any):
        super().__init__()
        config = experiment.model
        d, width = config.hidden_width, config.embedded_width
        assert config.has_match, "a network without matches is not written here"
        self.rate = config.dropout_rate
        self.words = nn.Embedding(spec.vocabulary_size, config.word_width)
        self.characters = nn.Embedding(NUM_CHARACTERS, config.character_width)
        self.convolution = nn.Linear(TAPS * config.character_width, config.filters)
        self.transforms = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.contextual = LSTM(width, d)
        self.of_passage = nn.Linear(2 * d, 1, bias=False)
        self.of_question = nn.Linear(2 * d, 1, bias=False)
        self.of_product = nn.Linear(2 * d, 1, bias=False)
        widths = [8 * d] + (config.num_modelling_layers - 1) * [2 * d]
        self.modelling = nn.ModuleList(LSTM(in_width, d) for in_width in widths)
        self.last_token = LSTM(14 * d, d)
        self.start_score = nn.Linear(10 * d, 1, bias=False)
        self.end_score = nn.Linear(10 * d, 1, bias=False)
        nn.init.normal_(self.words.weight, std=0.5)
        nn.init.normal_(self.characters.weight, std=0.1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for gate in self.gates:
            nn.init.constant_(gate.bias, -1.0)
        nn.init.ones_(self.of_product.weight)

    def forward(
        self,
        context: torch.Tensor,
        context_characters: torch.Tensor,
        question: torch.Tensor,
        question_characters: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores [batch, length] of each token as the first and as the last of the answer."""
        real, asked = context_characters[..., 0] > 0, question_characters[..., 0] > 0
        turned = _turned(real)
        same = (context_characters[:, :, None] == question_characters[:, None]).all(-1)
        of_passage, of_question = (same & asked[:, None]).any(2), (same & real[:, :, None]).any(1)
        h = self.read(context, context_characters, of_passage, real, turned)
        u = self.read(question, question_characters, of_question, asked, _turned(asked))
        scores = torch.bmm(h * self.of_product.weight, u.transpose(1, 2))
        scores = scores + self.of_passage(h) + self.of_question(u).transpose(1, 2)
        attended = torch.bmm(scores.masked_fill(~asked[:, None], MASKED).softmax(2), u)
        closest = scores.masked_fill(~asked[:, None], MASKED).amax(2).masked_fill(~real, MASKED)
        summary = torch.bmm(closest.softmax(1)[:, None], h)
        joined = torch.cat([h, attended, h * attended, h * summary], dim=-1)
        modelled = joined
        for layer in self.modelling:
            modelled = self.masked(layer(self.dropout(modelled), turned), real)
        both = self.dropout(torch.cat([joined, modelled], dim=-1))
        starts = self.start_score(both)[..., 0].masked_fill(~real, MASKED)
        chosen = torch.bmm(starts.softmax(1)[:, None], modelled).expand_as(modelled)
        inputs = torch.cat([joined, modelled, chosen, chosen * modelled], dim=-1)
        last = self.masked(self.last_token(self.dropout(inputs), turned), real)
        both = self.dropout(torch.cat([joined, last], dim=-1))
        return starts, self.end_score(both)[..., 0].masked_fill(~real, MASKED)

    def read(
        self,
        words: torch.Tensor,
        characters: torch.Tensor,
        matches: torch.Tensor,
        real: torch.Tensor,
        turned: torch.Tensor,
    ) -> torch.Tensor:
        """Embeds tokens and reads them in both directions: [batch, length, 2d]."""
        is_character = (characters > 0)[..., None]
        embedded = self.dropout(self.characters(characters)) * is_character
        padded = F.pad(embedded, (0, 0, TAPS // 2, TAPS // 2))
        places = characters.shape[-1]
        windows = torch.cat([padded[:, :, tap : tap + places] for tap in range(TAPS)], dim=-1)
        values = (F.relu(self.convolution(windows)) * is_character).amax(2)
        parts = [self.words(words) * real[..., None], values, matches[..., None].float()]
        hidden = torch.cat(parts, dim=-1)
        for transform, gate in zip(self.transforms, self.gates, strict=True):
            share = torch.sigmoid(gate(hidden))
            hidden = share * F.relu(transform(hidden)) + (1 - share) * hidden
        return self.masked(self.contextual(self.dropout(hidden), turned), real)

    def dropout(self, values: torch.Tensor) -> torch.Tensor:
        return F.dropout(values, self.rate, self.training)

    @staticmethod
    def masked(values: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        return values * real[..., None]


def _turned(real: torch.Tensor) -> torch.Tensor:
    """Each token's place were its row turned round; padding stays where it is."""
    places = torch.arange(real.shape[1]).expand_as(real)
    return torch.where(real, real.sum(1, keepdim=True) - 1 - places, places)


def best_spans(starts: torch.Tensor, ends: torch.Tensor, most: int) -> torch.Tensor:
    """First and last token of the best spans of at most `most` tokens: int [batch, 2]."""
    length = starts.shape[1]
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    allowed = (distance >= 0) & (distance < most)
    sums = (starts[:, :, None] + ends[:, None]).masked_fill(~allowed, -torch.inf)
    flat = sums.flatten(1).argmax(1)
    return torch.stack([flat // length, flat % length], dim=1)


class Trainer:
    """Model, optimizer and the two functions that may be compiled."""

    def __init__(self, experiment: Experiment, settings: pytorch_settings.Settings):
        self.experiment, self.spec = experiment, experiment.data.spec()
        self.model = BiDAF(experiment, self.spec)
        self.forward, self.loss_of = self.model, self.loss
        if settings.mode:
            self.forward = torch.compile(self.model, mode=settings.mode, dynamic=False)
            self.loss_of = torch.compile(self.loss, mode=settings.mode, dynamic=False)

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        *inputs, start, end = batch
        starts, ends = self.model(*inputs)
        return F.cross_entropy(starts, start) + F.cross_entropy(ends, end)

    def reset(self, seed: int) -> None:
        """Draws a fresh state in the memory of the old one."""
        torch.manual_seed(seed)
        self.model.load_state_dict(BiDAF(self.experiment, self.spec).state_dict())
        config, schedule = self.experiment.optimizer, self.experiment.schedule
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(
            self.parameters,
            lr=config.base_learning_rate,
            betas=(config.beta_1, config.beta_2),
            eps=config.epsilon,
            fused=True,
        )
        last = self.experiment.num_steps(self.spec)
        warm_up = schedule.warmup_epochs * self.experiment.steps_per_epoch(self.spec)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda step: min(step / warm_up, (last - step) / (last - warm_up)),
        )

    def train(self, *batch: torch.Tensor) -> None:
        """Trains one step."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(*batch).backward()
        clip = self.experiment.optimizer.clip_global_norm
        torch.nn.utils.clip_grad_norm_(self.parameters, clip)
        self.optimizer.step()
        self.schedule.step()

    @torch.inference_mode()
    def evaluate(self, arrays: list[torch.Tensor], texts: Any) -> float:
        """F1 over all questions."""
        self.model.eval()
        rows, spans = self.experiment.evaluation.global_batch_size, []
        for start in range(0, len(arrays[0]), rows):
            batch = [array[start : start + rows] for array in arrays]
            missing = rows - len(batch[0])
            if missing:  # the compiled shape
                batch = [
                    torch.cat([part, part[:1].repeat_interleave(missing, 0)]) for part in batch
                ]
            found = best_spans(*self.forward(*batch), self.experiment.task.max_answer_tokens)
            spans += found[: rows - missing].tolist()
        answers = [texts.answer(row, first, last) for row, (first, last) in enumerate(spans)]
        return span_scores.scores(answers, texts.references)[1]

    def warm_up(self) -> None:
        """Runs every shape on made-up rows."""
        self.reset(0)
        shapes = {split: self.spec.example_shapes(split) for split in ("train", "eval")}
        rows = self.experiment.global_batch_size, self.experiment.evaluation.global_batch_size
        train = [
            torch.ones(rows[0], *shapes["train"][n][0], dtype=torch.int64)
            for n in (*INPUTS, "start", "end")
        ]
        evaluated = [torch.ones(rows[1], *shapes["eval"][n][0], dtype=torch.int64) for n in INPUTS]
        for _ in range(3):
            self.train(*train)
        self.model.eval()
        with torch.inference_mode():
            best_spans(*self.forward(*evaluated), self.experiment.task.max_answer_tokens)

    def trial(self, seed: int) -> dict[str, Any]:
        """Trains one seed to the target and gives its record."""
        experiment, spec = self.experiment, self.spec
        self.reset(seed)
        num_steps, batch_size = experiment.num_steps(spec), experiment.global_batch_size
        evaluation_steps = set(experiment.evaluation_steps(spec))
        target = np.float32(experiment.targets[0].value)
        evaluations, train_seconds, reached_seconds = [], 0.0, None
        run_start = time.perf_counter()
        train, evaluated = (
            {n: torch.from_numpy(np.asarray(a)) for n, a in experiment.data.load(split).items()}
            for split in ("train", "eval")
        )
        evaluated = [evaluated[name].long() for name in INPUTS]
        texts = experiment.data.evaluated_texts()
        order = ExampleOrder(seed=seed, num_train_examples=spec.num_train_examples)
        stretch_start = time.perf_counter()
        step = 0
        while step < num_steps and reached_seconds is None:
            index = torch.from_numpy(order.steps(step, 1, batch_size).index[0]).long()
            self.train(*(train[name][index].long() for name in (*INPUTS, "start", "end")))
            step += 1
            if step in evaluation_steps:
                train_seconds += time.perf_counter() - stretch_start
                f1 = self.evaluate(evaluated, texts)
                stretch_start = time.perf_counter()
                evaluations.append(
                    {
                        "step": step,
                        "epoch": experiment.epoch_of_step(step, spec),
                        "seconds_since_run_start": stretch_start - run_start,
                        "f1_score": f1,
                    }
                )
                if np.float32(f1) >= target:
                    reached_seconds = stretch_start - run_start
        return {
            "seed": seed,
            "reached": reached_seconds is not None,
            "time_to_accuracy_seconds": reached_seconds,
            "train_seconds": train_seconds,
            "run_seconds": time.perf_counter() - run_start,
            "best": max(entry["f1_score"] for entry in evaluations),
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
    parser.add_argument("--target", type=float, help="F1, in place of the experiment's")
    parser.add_argument("--steps", type=int, help="end after so many steps, to choose settings")
    parser.add_argument("--settings", choices=pytorch_settings.SETTINGS, default="eager")
    options = parser.parse_args()
    experiment = EXPERIMENT
    if options.target is not None:
        target = dataclasses.replace(EXPERIMENT.targets[0], value=options.target)
        experiment = dataclasses.replace(experiment, targets=(target,))
    is_known = isinstance(experiment.optimizer, Adam) and not experiment.optimizer.weight_decay
    if not is_known or not isinstance(experiment.schedule, WarmupLinear) or experiment.ema_decay:
        sys.exit("pytorch_squad: only plain Adam with warm-up and a straight line is written here")
    trainer = Trainer(experiment, pytorch_settings.SETTINGS[options.settings])
    trainer.warm_up()
    if options.steps:
        shorter = dataclasses.replace(experiment.evaluation, first_epoch=0.0)
        trainer.experiment = dataclasses.replace(
            experiment, num_epochs=0.0, max_steps=options.steps, evaluation=shorter
        )
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
