"""PyTorch's side of the small SQuAD experiment; `pytorch_trial.py` runs its trials.

Each direction of an LSTM layer is `nn.LSTM` over whole padded rows, which oneDNN computes. The
backward direction reverses rows within their own lengths, so that padding comes last and changes
nothing. The second bias of `nn.LSTM` stays zero.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import pytorch_trial
from benchmarks.pytorch_settings import Settings
from dawnjax.config.experiment import Experiment
from dawnjax.experiments.squad_small import EXPERIMENT as EXPERIMENT
from dawnjax.input_pipeline.reading.batches import ExampleOrder
from dawnjax.tasks import span_scores

TAPS, NUM_CHARACTERS, MASKED = 5, 200, -1e9
INPUTS = ("context", "context_characters", "question", "question_characters")
TRAINED = (*INPUTS, "start", "end")


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
        """`turned` int [batch, length]: places in reverse order, padding in its place."""
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
        """Scores [batch, length] of each token as the first and as the last of the answer."""
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
        """Tokens embedded and read in both directions: [batch, length, 2d]."""
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
    """Each token's place in its reversed row; padding stays where it is."""
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


class Trainer(pytorch_trial.Trainer):
    def __init__(self, experiment: Experiment, settings: Settings):
        spec = experiment.data.spec()
        super().__init__(experiment, settings, lambda: BiDAF(experiment, spec))

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        *inputs, start, end = batch
        starts, ends = self.model(*inputs)
        return F.cross_entropy(starts, start) + F.cross_entropy(ends, end)

    def warm_up(self) -> None:
        self.reset(0)

        def rows(split: str, count: int, names: tuple[str, ...]) -> list[torch.Tensor]:
            shapes = self.spec.example_shapes(split)
            return [torch.ones(count, *shapes[n][0], dtype=torch.int64) for n in names]

        train = rows("train", self.experiment.global_batch_size, TRAINED)
        for _ in range(3):
            self.train(tuple(train), 0.0)
        self.model.eval()
        evaluated = rows("eval", self.experiment.evaluation.global_batch_size, INPUTS)
        with torch.inference_mode():
            best_spans(*self.forward(*evaluated), self.experiment.task.max_answer_tokens)

    def load(self, seed: int) -> tuple[Iterator[tuple[torch.Tensor, ...]], tuple[Any, ...]]:
        """Training questions, in DawnJAX's order, and evaluation questions."""
        train, evaluated = (
            {
                n: torch.from_numpy(np.asarray(a))
                for n, a in self.experiment.data.load(split).items()
            }
            for split in ("train", "eval")
        )
        order = ExampleOrder(seed=seed, num_train_examples=self.spec.num_train_examples)

        def stream() -> Iterator[tuple[torch.Tensor, ...]]:
            for step in itertools.count():
                rows = order.steps(step, 1, self.experiment.global_batch_size).index[0]
                index = torch.from_numpy(rows).long()
                yield tuple(train[name][index].long() for name in TRAINED)

        inputs = [evaluated[name].long() for name in INPUTS]
        return stream(), (inputs, self.experiment.data.evaluated_texts())

    @torch.inference_mode()
    def evaluate(self, arrays: list[torch.Tensor], texts: Any) -> dict[str, float]:
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
        return {"f1_score": span_scores.scores(answers, texts.references)[1]}
