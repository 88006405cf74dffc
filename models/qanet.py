"""QANet: a passage and a question read by convolutions and self-attention, without recurrence.

Source: Yu et al. 2018, "QANet: Combining Local Convolution with Global Self-Attention for Reading
Comprehension" (arXiv 1804.09541), section 2.2, layers 1 to 5. Two choices are those of its later
implementations: a word's vector from its characters comes from a convolution before the maximum,
as in BiDAF, and projections of the attention have no biases.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dawnjax.limits import Fraction, FractionBelowOne, OneOrMore, check_fields
from dawnjax.models.arithmetic import Arithmetic, arithmetic_of
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.spans import (
    CharacterCNN,
    Dense,
    Highway,
    Tokens,
    Trilinear,
    WordEmbedding,
    character_multiply_adds,
    end_scores,
    masked_softmax,
    multiply,
)
from dawnjax.models.transformer import (
    Attention,
    FeedForward,
    LayerNorm,
    Transformer,
    position_encoding,
)

CHARACTER_TAPS = 5
EMBEDDING_TAPS, MODEL_TAPS = 7, 5
"""Tokens that a convolution sees. Source: section 4.1.1."""

EMBEDDING_CONVOLUTIONS, MODEL_CONVOLUTIONS = 4, 2
"""Convolutions of a block. Source: section 4.1.1."""

NUM_HIGHWAY_LAYERS = 2
NUM_PASSES = 3
"""How often the blocks after the attention are passed, with the same weights."""

_LAYER_DROPOUT = 7
"""Folded into the step's key for whole sublayers that are left out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QANet:
    """The size of the network; the defaults are the paper's.

    Attributes:
      word_width: Values of a word's vector.
      character_width: Values of a character.
      filters: Values of a word from its characters.
      width: Values of a token between layers.
      num_heads: Heads of each attention.
      num_model_blocks: Blocks after the attention.
      dropout_rate: Dropout of words and of each sublayer's input; characters have half of it.
      layer_survival: Probability that the last sublayer of a stack takes part in a training step;
        that of earlier ones is nearer to 1 (Huang et al. 2016, arXiv 1603.09382, equation 4).
    """

    TAG: ClassVar[str] = "qanet"

    word_width: OneOrMore[int] = 300
    character_width: OneOrMore[int] = 64
    filters: OneOrMore[int] = 200
    width: OneOrMore[int] = 128
    num_heads: OneOrMore[int] = 8
    num_model_blocks: OneOrMore[int] = 7
    dropout_rate: FractionBelowOne = 0.1
    layer_survival: Fraction = 0.9

    @property
    def attention(self) -> Transformer:
        """The attention and the feed-forward layer of a block, in the Transformer's words."""
        return Transformer(
            num_layers=1, width=self.width, hidden_width=self.width, num_heads=self.num_heads
        )

    def check_together(self, prefix: str) -> None:
        """Refuses a width that the heads cannot share."""
        self.attention.check_together(prefix)

    def build(self, *, vocabulary_size: int, execution: Execution, rngs: nnx.Rngs) -> "QANetModule":
        """Makes the network; a vocabulary of 0 says that words come as vectors."""
        check_fields(self, "model.")
        return QANetModule(self, vocabulary_size, execution, rngs)

    def multiply_adds(
        self, context_lengths: np.ndarray, question_lengths: np.ndarray, words: np.ndarray
    ) -> int:
        """Multiply-adds of the forward pass's matrix products and convolutions, without padding.

        Args:
          context_lengths: int [questions], tokens of each passage.
          question_lengths: int [questions], tokens of each question.
          words: int [longest + 1], how many of all these tokens have so many characters.
        """
        contexts, questions = (x.astype(np.int64) for x in (context_lengths, question_lengths))
        passage, question = int(contexts.sum()), int(questions.sum())
        pairs = int((contexts * questions).sum())
        # From passage to passage, by way of the question: the smaller product first.
        both_ways = pairs
        embedded, w = self.word_width + self.filters, self.width

        def block(lengths: np.ndarray, convolutions: int, taps: int) -> int:
            windows = sum(
                int(np.maximum(0, lengths - abs(t - taps // 2)).sum()) for t in range(taps)
            )
            tokens, squares = int(lengths.sum()), int((lengths**2).sum())
            convolved = convolutions * (windows * w + tokens * w**2)
            return convolved + tokens * 6 * w**2 + 2 * squares * w

        total = (passage + question) * (2 * NUM_HIGHWAY_LAYERS * embedded**2 + embedded * w)
        for lengths in (contexts, questions):
            total += block(lengths, EMBEDDING_CONVOLUTIONS, EMBEDDING_TAPS)
        total += w * (passage + question + 2 * pairs + 2 * both_ways) + passage * 4 * w * w
        blocks = NUM_PASSES * self.num_model_blocks
        total += blocks * block(contexts, MODEL_CONVOLUTIONS, MODEL_TAPS) + passage * 4 * w
        characters = (CHARACTER_TAPS, self.character_width, self.filters)
        return total + character_multiply_adds(words, *characters)


class QANetModule(nnx.Module):
    """The five layers."""

    def __init__(self, config: QANet, vocabulary_size: int, execution: Execution, rngs: nnx.Rngs):
        self.config = config
        self.arithmetic = arithmetic = arithmetic_of(execution)
        characters = CharacterCNN(
            config.character_width, config.filters, CHARACTER_TAPS, arithmetic, rngs
        )
        self.embedding = WordEmbedding(
            vocabulary_size, config.word_width, characters, arithmetic, rngs
        )
        embedded, width = config.word_width + config.filters, config.width
        self.highway = Highway(embedded, NUM_HIGHWAY_LAYERS, arithmetic, rngs)
        self.narrow = Dense(embedded, width, arithmetic, rngs)
        self.reader = Stack(config, 1, EMBEDDING_CONVOLUTIONS, EMBEDDING_TAPS, arithmetic, rngs)
        self.similarity = Trilinear(width, arithmetic, rngs)
        self.join = Dense(4 * width, width, arithmetic, rngs)
        blocks = config.num_model_blocks
        self.model = Stack(config, blocks, MODEL_CONVOLUTIONS, MODEL_TAPS, arithmetic, rngs)
        self.start_score = Dense(2 * width, 1, arithmetic, rngs, use_bias=False)
        self.end_score = Dense(2 * width, 1, arithmetic, rngs, use_bias=False)

    def __call__(
        self, passage: Tokens, question: Tokens, *, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Scores every token of the passage as the first and as the last of the answer.

        Args:
          passage: Of [batch, T] tokens.
          question: Of [batch, J] tokens.
          dropout_key: The step's key in training, else None.

        Returns:
          Two arrays float32 [batch, T]; padding has -1e9.
        """
        dropout, rate, real = Dropout(dropout_key), self.config.dropout_rate, passage.real
        survival = Survival(dropout_key, self.config.layer_survival)
        c, q = (self._read(tokens, dropout, survival) for tokens in (passage, question))
        hidden = self.join(dropout(self._attend(c, q, real, question.real), rate))
        passes = []
        for _ in range(NUM_PASSES):
            hidden = self.model(hidden, real, dropout, survival)
            passes.append(dropout(hidden, rate))
        float32 = jnp.dtype("float32")
        starts = self.start_score(jnp.concatenate(passes[:2], axis=-1), float32)
        ends = self.end_score(jnp.concatenate(passes[::2], axis=-1), float32)
        return end_scores(starts, real), end_scores(ends, real)

    def _read(self, tokens: Tokens, dropout: Dropout, survival: "Survival") -> jax.Array:
        """Embeds tokens and reads them: [batch, length, width]."""
        rate = self.config.dropout_rate
        embedded = self.embedding(tokens, dropout, rate, rate / 2)
        hidden = self.narrow(dropout(self.highway(embedded, dropout, rate), rate))
        return self.reader(hidden, tokens.real, dropout, survival)

    def _attend(
        self, c: jax.Array, q: jax.Array, real: jax.Array, question_real: jax.Array
    ) -> jax.Array:
        """Joins passage and question: [batch, T, 4 x width], section 2.2, layer 3."""
        scores, arithmetic = self.similarity(c, q), self.arithmetic
        to_question = masked_softmax(scores, question_real[:, None], axis=2)
        to_passage = masked_softmax(scores, real[..., None], axis=1)
        attended = multiply("btj,bjw->btw", to_question, q, arithmetic).astype(c.dtype)
        summaries = multiply("btj,btw->bjw", to_passage, c, arithmetic).astype(c.dtype)
        back = multiply("btj,bjw->btw", to_question, summaries, arithmetic).astype(c.dtype)
        return jnp.concatenate([c, attended, c * attended, c * back], axis=-1)


class Survival:
    """Says which sublayers take part in a step: one draw each for the whole batch."""

    def __init__(self, key: jax.Array | None, last: float):
        """Args:
        key: The step's key; None takes all.
        last: Probability of the last sublayer of a stack.
        """
        self._key = None if key is None else jax.random.fold_in(key, 2**31 + _LAYER_DROPOUT)
        self._last, self._count = last, 0

    def __call__(self, result: jax.Array, place: int, places: int) -> jax.Array:
        """A sublayer's result, or zeros; `place` counts from 1 to `places`."""
        probability = 1 - place / places * (1 - self._last)
        if self._key is None or probability == 1:
            return result
        key = jax.random.fold_in(self._key, self._count)
        self._count += 1
        survives = jax.random.bernoulli(key, probability)
        return jnp.where(survives, result, jnp.zeros((), result.dtype))


class Stack(nnx.Module):
    """Blocks one after the other: convolutions, self-attention, a feed-forward layer.

    Each sublayer takes normalized values, and its result is added to the values themselves.
    """

    def __init__(
        self,
        config: QANet,
        num_blocks: int,
        num_convolutions: int,
        taps: int,
        arithmetic: Arithmetic,
        rngs: nnx.Rngs,
    ):
        self.dropout_rate, width = config.dropout_rate, config.width

        def layers(block: int) -> list[nnx.Module]:
            del block
            convolutions = [
                SeparableConvolution(width, taps, arithmetic, rngs) for _ in range(num_convolutions)
            ]
            attention = Attention(config.attention, arithmetic, rngs)
            return [*convolutions, attention, FeedForward(config.attention, arithmetic, rngs)]

        self.in_block = num_convolutions + 2
        self.layers = nnx.List([layer for n in range(num_blocks) for layer in layers(n)])
        self.norms = nnx.List([LayerNorm(width, arithmetic) for _ in self.layers])
        self.last_norm = LayerNorm(width, arithmetic)

    def __call__(
        self, hidden: jax.Array, real: jax.Array, dropout: Dropout, survival: Survival
    ) -> jax.Array:
        """Maps [batch, length, width] to the same; `real` is bool [batch, length]."""
        positions = jnp.asarray(position_encoding(*hidden.shape[1:])).astype(hidden.dtype)
        pairs = zip(self.layers, self.norms, strict=True)
        for place, (layer, norm) in enumerate(pairs):
            if place % self.in_block == 0:
                hidden = hidden + positions
            normed = dropout(norm(hidden), self.dropout_rate)
            if isinstance(layer, SeparableConvolution):
                result = layer(normed, real)
            elif isinstance(layer, Attention):
                result = layer(normed, normed, real[:, None], dropout)
            else:
                result = layer(normed, dropout)
            result = dropout(result, self.dropout_rate)
            hidden = hidden + survival(result, place + 1, len(self.layers))
        return self.last_norm(hidden)


class SeparableConvolution(nnx.Module):
    """A convolution of each channel alone, then one over channels, and a ReLU.

    Source: Chollet 2017, "Xception" (arXiv 1610.02357), section 1. The first is a sum of moved
    copies, which XLA makes in one pass; padding counts as zeros.
    """

    def __init__(self, width: int, taps: int, arithmetic: Arithmetic, rngs: nnx.Rngs):
        bound = (3 / taps) ** 0.5
        kernel = jax.random.uniform(rngs.params(), (taps, width), jnp.float32, -bound, bound)
        self.kernel = nnx.Param(kernel)
        self.over_channels = Dense(width, width, arithmetic, rngs)

    def __call__(self, hidden: jax.Array, real: jax.Array) -> jax.Array:
        """Maps [batch, length, width] to the same; `real` is bool [batch, length]."""
        kernel, (taps, _) = self.kernel[...].astype(hidden.dtype), self.kernel.shape
        length, side = hidden.shape[1], taps // 2
        hidden = jnp.where(real[..., None], hidden, 0)
        padded = jnp.pad(hidden, ((0, 0), (side, taps - 1 - side), (0, 0)))
        moved = (padded[:, tap : tap + length] * kernel[tap] for tap in range(taps))
        return jax.nn.relu(self.over_channels(sum(moved, jnp.zeros_like(hidden))))
