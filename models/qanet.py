"""QANet: a passage and a question read by convolutions and self-attention, without recurrence.

Source: Yu et al. 2018, "QANet: Combining Local Convolution with Global Self-Attention for Reading
Comprehension" (arXiv 1804.09541), section 2.2, layers 1 to 5. As in later implementations, a
convolution comes before the maximum over characters, and attention projections have no biases.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.arithmetic import Arithmetic, Dense, arithmetic_of
from dawnjax.models.configs.qanet import (
    CHARACTER_TAPS,
    EMBEDDING_CONVOLUTIONS,
    EMBEDDING_TAPS,
    MODEL_CONVOLUTIONS,
    MODEL_TAPS,
    NUM_HIGHWAY_LAYERS,
    NUM_PASSES,
    QANet,
)
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.layer_norm import LayerNorm
from dawnjax.models.pure_model import split_module
from dawnjax.models.spans import (
    CharacterCNN,
    Highway,
    Tokens,
    Trilinear,
    WordEmbedding,
    end_scores,
    masked_softmax,
    multiply,
)
from dawnjax.models.transformer import Attention, FeedForward, position_encoding

_PARTS, _LAYER_DROPOUT = 10**6, 2 * 10**6
"""Folded into a key for the parts of the network, and for whole sublayers that are left out; masks
have smaller numbers."""


class QANetModule(nnx.Module):
    """The five layers of the paper."""

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
        self.similarity = Trilinear(width, width**-0.5, arithmetic, rngs)
        self.join = Dense(4 * width, width, arithmetic, rngs)
        blocks = config.num_model_blocks
        self.model = Stack(config, blocks, MODEL_CONVOLUTIONS, MODEL_TAPS, arithmetic, rngs)
        self.start_score = Dense(2 * width, 1, arithmetic, rngs, use_bias=False)
        self.end_score = Dense(2 * width, 1, arithmetic, rngs, use_bias=False)

    def __call__(
        self, passage: Tokens, question: Tokens, *, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Scores of each token as the answer's first and last: float32 [batch, T], padding -1e9."""
        dropout, rate, real = Dropout(dropout_key), self.config.dropout_rate, passage.real
        training = Training(dropout_key, self.config.layer_survival)
        c, q = (
            self._read(tokens, dropout, training.at(_PARTS + number))
            for number, tokens in enumerate((passage, question))
        )
        hidden = self.join(dropout(self._attend(c, q, real, question.real), rate))
        arrays, model_of = split_module(self.model)

        def one_pass(hidden: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
            hidden = model_of(arrays)(hidden, real, training.at(_PARTS + 2 + number))
            return hidden, hidden

        _, passes = jax.lax.scan(one_pass, hidden, jnp.arange(NUM_PASSES))
        # [passes, batch, T, width]
        passes, float32 = dropout(passes, rate), jnp.dtype("float32")
        starts = self.start_score(jnp.concatenate([passes[0], passes[1]], axis=-1), float32)
        ends = self.end_score(jnp.concatenate([passes[0], passes[2]], axis=-1), float32)
        return end_scores(starts, real), end_scores(ends, real)

    def _read(self, tokens: Tokens, dropout: Dropout, training: "Training") -> jax.Array:
        rate = self.config.dropout_rate
        embedded = self.embedding(tokens, dropout, rate, rate / 2)
        hidden = self.narrow(dropout(self.highway(embedded, dropout, rate), rate))
        return self.reader(hidden, tokens.real, training)

    def _attend(
        self, c: jax.Array, q: jax.Array, real: jax.Array, question_real: jax.Array
    ) -> jax.Array:
        """Join passage and question: [batch, T, 4 x width], section 2.2, layer 3."""
        scores, arithmetic = self.similarity(c, q), self.arithmetic
        to_question = masked_softmax(scores, question_real[:, None], axis=2)
        to_passage = masked_softmax(scores, real[..., None], axis=1)
        attended = multiply("btj,bjw->btw", to_question, q, arithmetic).astype(c.dtype)
        summaries = multiply("btj,btw->bjw", to_passage, c, arithmetic).astype(c.dtype)
        back = multiply("btj,bjw->btw", to_question, summaries, arithmetic).astype(c.dtype)
        return jnp.concatenate([c, attended, c * attended, c * back], axis=-1)


class Training(NamedTuple):
    """Randomness of a training step; evaluation has no key.

    `survival` is the probability that the last sublayer of a stack takes part.
    """

    key: jax.Array | None
    survival: float

    def at(self, number: jax.Array | int) -> "Training":
        key = None if self.key is None else jax.random.fold_in(self.key, number)
        return self._replace(key=key)

    def kept(self, result: jax.Array, place: jax.Array, places: int) -> jax.Array:
        """Sublayer's result, or zeros for the whole batch; `place` is 1 to `places`."""
        if self.key is None or self.survival == 1:
            return result
        probability = 1 - place / places * (1 - self.survival)
        key = jax.random.fold_in(jax.random.fold_in(self.key, _LAYER_DROPOUT), place)
        survives = jax.random.bernoulli(key, probability)
        return jnp.where(survives, result, jnp.zeros((), result.dtype))


class Stack(nnx.Module):
    """Blocks of one shape, one after the other."""

    def __init__(
        self,
        config: QANet,
        num_blocks: int,
        num_convolutions: int,
        taps: int,
        arithmetic: Arithmetic,
        rngs: nnx.Rngs,
    ):
        self.num_blocks = num_blocks

        @nnx.split_rngs(splits=num_blocks)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def blocks(rngs: nnx.Rngs) -> Block:
            return Block(config, num_convolutions, taps, arithmetic, rngs)

        self.blocks = blocks(rngs)
        self.last_norm = LayerNorm(config.width)

    def __call__(self, hidden: jax.Array, real: jax.Array, training: Training) -> jax.Array:
        """Map [batch, length, width] to the same; `real` is bool [batch, length]."""
        arrays, block_of = split_module(self.blocks)

        def step(hidden: jax.Array, now: tuple[jax.Array, Any]) -> tuple[jax.Array, None]:
            number, arrays = now
            return block_of(arrays)(
                hidden, real, training.at(number), number, self.num_blocks
            ), None

        # One scan over parameters that lie side by side: XLA compiles one block, and not each of
        # them.
        numbers = jnp.arange(self.num_blocks)
        hidden, _ = jax.lax.scan(step, hidden, (numbers, arrays))
        return self.last_norm(hidden)


class Block(nnx.Module):
    """Positions, convolutions, self-attention and a feed-forward layer (pre-norm residuals)."""

    def __init__(
        self,
        config: QANet,
        num_convolutions: int,
        taps: int,
        arithmetic: Arithmetic,
        rngs: nnx.Rngs,
    ):
        self.dropout_rate, width = config.dropout_rate, config.width
        self.convolutions = nnx.List(
            [SeparableConvolution(width, taps, arithmetic, rngs) for _ in range(num_convolutions)]
        )
        self.attention = Attention(config.attention, arithmetic, rngs)
        self.feed_forward = FeedForward(config.attention, arithmetic, rngs)
        self.norms = nnx.List([LayerNorm(width) for _ in range(num_convolutions + 2)])

    def __call__(
        self,
        hidden: jax.Array,
        real: jax.Array,
        training: Training,
        number: jax.Array,
        num_blocks: int,
    ) -> jax.Array:
        """Map [batch, length, width] to the same, as block `number` (from 0) of `num_blocks`."""
        dropout = Dropout(training.key)
        positions = position_encoding(*hidden.shape[1:])
        hidden = hidden + jnp.asarray(positions).astype(hidden.dtype)
        sublayers = [
            *(functools.partial(convolution, real=real) for convolution in self.convolutions),
            lambda normed: self.attention(normed, normed, real[:, None]),
            self.feed_forward,
        ]
        for place, (sublayer, norm) in enumerate(zip(sublayers, self.norms, strict=True), 1):
            result = dropout(sublayer(norm(hidden)), self.dropout_rate)
            place_in_stack = number * len(sublayers) + place
            places = num_blocks * len(sublayers)
            hidden = hidden + training.kept(result, place_in_stack, places)
        return hidden


class SeparableConvolution(nnx.Module):
    """A convolution of each channel alone, then one over channels, and a ReLU.

    Source: Chollet 2017, "Xception" (arXiv 1610.02357), section 1.
    """

    def __init__(self, width: int, taps: int, arithmetic: Arithmetic, rngs: nnx.Rngs):
        bound = (3 / taps) ** 0.5
        kernel = jax.random.uniform(rngs.params(), (taps, width), jnp.float32, -bound, bound)
        self.kernel = nnx.Param(kernel)
        self.over_channels = Dense(width, width, arithmetic, rngs)

    def __call__(self, hidden: jax.Array, real: jax.Array) -> jax.Array:
        """Map [batch, length, width] to the same; what is not `real` counts as zeros."""
        kernel, (taps, _) = self.kernel[...].astype(hidden.dtype), self.kernel.shape
        length, side = hidden.shape[1], taps // 2
        hidden = jnp.where(real[..., None], hidden, 0)
        padded = jnp.pad(hidden, ((0, 0), (side, taps - 1 - side), (0, 0)))
        # XLA adds up the moved copies in one pass.
        moved = (padded[:, tap : tap + length] * kernel[tap] for tap in range(taps))
        return jax.nn.relu(self.over_channels(sum(moved, jnp.zeros_like(hidden))))
