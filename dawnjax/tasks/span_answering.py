"""Answers to questions as spans of a passage: first and last token, exact match and F1.

Source: Seo et al. 2017, "Bidirectional Attention Flow for Machine Comprehension" (arXiv
1611.01603), section 2, "Training" and "Test"; `span_scores` for the metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.limits import within
from dawnjax.tasks import span_scores
from dawnjax.tasks.metric import F1, fraction
from dawnjax.tasks.task import (
    MODEL,
    Answering,
    Arrays,
    Compiled,
    Moment,
    Setting,
    Task,
    at_places,
)

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import spans
    from dawnjax.profile import model_flops

EXACT_MATCH = fraction("exact_match", "exact match", is_proportion=True)

NO_ANSWER = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanAnswering(Task):
    """Spans of passages that answer questions.

    Attributes:
      max_answer_tokens: spans.Tokens of the longest answer that an evaluation gives. Source of the
        default: QANet (arXiv 1804.09541), section 4.1.1. BiDAF's paper has no limit.
    """

    TAG: ClassVar[str] = "span_answering"
    metrics: ClassVar = (F1, EXACT_MATCH)
    arrays: ClassVar = (
        *("context", "context_characters", "question", "question_characters"),
        *("start", "end"),
    )
    inputs: ClassVar = ("context", "context_characters", "question", "question_characters")
    example_unit: ClassVar[str] = "questions"
    evaluation_fields: ClassVar = ("max_answer_tokens",)

    max_answer_tokens: Annotated[int, within(1, 10_000)] = 30

    def validate(self, model: Any, spec: Any) -> None:
        width = getattr(model, "word_width", spec.vector_width)
        if spec.vector_width not in (0, width):
            raise ConfigError(
                f"model.word_width={width}, and the vectors of data.word_vectors have "
                f"{spec.vector_width} values; give --model.word_width={spec.vector_width}"
            )

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        return {"vocabulary_size": spec.vocabulary_size}

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, int]:
        """Cross entropies of each question's first and last token, added, in nats; the count."""
        scores = module(*_passage_and_question(batch), dropout_key=moment.key(MODEL))
        losses = [
            _cross_entropy(of_end, batch[name].astype(jnp.int32))
            for of_end, name in zip(scores, ("start", "end"), strict=True)
        ]
        return losses[0] + losses[1], len(batch["start"])

    def zero_totals(self, setting: Setting) -> Arrays:
        return {"spans": jnp.full((setting.spec.num_eval_examples, 2), NO_ANSWER, jnp.int32)}

    def add_batch(self, module: Any, batch: Arrays, totals: Arrays, setting: Setting) -> Arrays:
        return {"spans": at_places(totals["spans"], self.answer(module, batch, setting), batch)}

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> jax.Array:
        """Spans int32 [batch, 2], first and last token; -1 where a score is not a number."""
        starts, ends = module(*_passage_and_question(inputs))
        return best_spans(starts, ends, self.max_answer_tokens)

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        texts = setting.data.evaluated_texts()
        spans = np.asarray(totals["spans"]).tolist()
        answers = [texts.answer(row, start, end) for row, (start, end) in enumerate(spans)]
        return _metrics(answers, texts.references)

    def answering(
        self, compiled: Compiled, examples: Mapping[str, Any], setting: Setting
    ) -> Answering:
        tokens = super().answering(compiled, examples, setting)
        texts = setting.data.evaluated_texts()

        def example(index: int) -> tuple[int, Any]:
            return index, tokens.example(index)

        def answer(example: tuple[int, Any]) -> str | None:
            index, arrays = example
            return texts.answer(index, *tokens.answer(arrays)[0].tolist())

        def quality(answers: list[Any], positions: list[int]) -> dict[str, Any]:
            return _metrics(answers, [texts.references[position] for position in positions])

        timed = (
            "from the tokens of a passage and a question on the host to the text of the answer; "
            f"passages padded to {setting.spec.eval_context_length} tokens"
        )
        return Answering(example=example, answer=answer, quality=quality, timed=timed)

    def train_flops_per_example(self, setting: Setting) -> float:
        """Model FLOPs of the mean question in a train step, at its own length."""
        lengths = setting.data.train_lengths()
        forward = 2 * setting.model.multiply_adds(
            lengths.contexts, lengths.questions, lengths.words
        )
        return model_flops.TRAINING_FACTOR * forward / len(lengths.contexts)


def _passage_and_question(batch: Arrays) -> tuple[spans.Tokens, spans.Tokens]:
    passage = spans.Tokens(batch["context"], batch["context_characters"])
    return passage, spans.Tokens(batch["question"], batch["question_characters"])


def _cross_entropy(scores: jax.Array, places: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), places[:, None], axis=-1)[:, 0]


def _metrics(answers: list[str | None], references: Any) -> dict[str, float | str]:
    matches, f1 = span_scores.scores(answers, references)
    return {F1.name: f1, EXACT_MATCH.name: matches}


def best_spans(starts: jax.Array, ends: jax.Array, max_tokens: int) -> jax.Array:
    """Spans with the greatest sum of scores [batch, length] of both ends: int32 [batch, 2].

    Of equal sums the one that ends first is taken, then the one that begins first. Where a score is
    NaN there is no span: -1.
    """
    length = starts.shape[1]
    width = min(max_tokens, length)
    # The best first token that each last token may have, among those before it and itself.
    best = jax.lax.reduce_window(
        starts, -jnp.inf, jax.lax.max, (1, width), (1, 1), ((0, 0), (width - 1, 0))
    )
    end = jnp.argmax(best + ends, axis=1)
    distance = end[:, None] - jnp.arange(length)
    start = jnp.argmax(jnp.where((distance >= 0) & (distance < width), starts, -jnp.inf), axis=1)
    are_numbers = jnp.isfinite(starts).all(1) & jnp.isfinite(ends).all(1)
    spans = jnp.stack([start, end], axis=1).astype(jnp.int32)
    return jnp.where(are_numbers[:, None], spans, NO_ANSWER)
