"""Parts of networks that find spans: embedded words, highway layers, attention, end scores."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.arithmetic import Arithmetic, Dense, glorot, linear
from dawnjax.models.dropout import Dropout

NUM_CHARACTERS = 200
"""Rows of an embedding of characters; `input_pipeline.reading.questions` numbers them."""

WORD_STD = 0.5
"""Deviation of trained vectors at the start: about that of GloVe's values, so that equal words of
passage and question stand out before anything is learnt."""

MASKED = -1e9
"""Score of padding; finite, so that a row of padding alone has no NaN."""


class Tokens(NamedTuple):
    """Tokens of a passage or a question; characters, int [batch, length, characters], pad with 0.

    `words` are int [batch, length], rows of an embedding, or float [batch, length, N], vectors.
    """

    words: jax.Array
    characters: jax.Array

    @property
    def real(self) -> jax.Array:
        """Mask of the tokens that are no padding, bool [batch, length]."""
        return self.characters[..., 0] > 0

    def are_in(self, others: "Tokens") -> jax.Array:
        """Mask of the tokens that the other text has, by their characters: bool [batch, length]."""
        pairs = self.characters[:, :, None] == others.characters[:, None]
        return (pairs.all(-1) & others.real[:, None]).any(-1)


class CharacterCNN(nnx.Module):
    """A vector for each word from its characters: a convolution and a maximum over its places.

    Source: Kim 2014 (arXiv 1408.5882), equations 2 to 4, on characters.
    """

    def __init__(
        self, character_width: int, width: int, taps: int, arithmetic: Arithmetic, rngs: nnx.Rngs
    ):
        self.taps = taps
        shape = (NUM_CHARACTERS, character_width)
        self.embedding = nnx.Param(0.1 * jax.random.normal(rngs.params(), shape, jnp.float32))
        self.convolution = Dense(taps * character_width, width, arithmetic, rngs)

    def __call__(self, characters: jax.Array, dropout: Dropout, rate: float) -> jax.Array:
        """Map int [batch, length, characters] to [batch, length, width]; padding has zeros."""
        real = characters > 0
        embedded = self.embedding[...][characters.astype(jnp.int32)]
        embedded = jnp.where(real[..., None], dropout(embedded, rate), 0.0)
        side = self.taps // 2
        padded = jnp.pad(embedded, ((0, 0), (0, 0), (side, self.taps - 1 - side), (0, 0)))
        places = characters.shape[-1]
        windows = [padded[:, :, first : first + places] for first in range(self.taps)]
        values = jax.nn.relu(self.convolution(jnp.concatenate(windows, axis=-1)))
        return jnp.where(real[..., None], values, 0).max(axis=2)


class Highway(nnx.Module):
    """Layers that pass a learned share of their input on unchanged.

    Source: Srivastava et al. 2015, "Highway Networks" (arXiv 1505.00387), equation 3.
    """

    def __init__(self, width: int, num_layers: int, arithmetic: Arithmetic, rngs: nnx.Rngs):
        self.transforms = nnx.List(Dense(width, width, arithmetic, rngs) for _ in range(num_layers))
        # Section 2.2 of the source: with a bias of -1, most is passed on at first.
        self.gates = nnx.List(
            Dense(width, width, arithmetic, rngs, bias=-1.0) for _ in range(num_layers)
        )

    def __call__(self, hidden: jax.Array, dropout: Dropout, rate: float) -> jax.Array:
        for transform, gate in zip(self.transforms, self.gates, strict=True):
            share = jax.nn.sigmoid(gate(hidden))
            hidden = share * dropout(jax.nn.relu(transform(hidden)), rate) + (1 - share) * hidden
        return hidden


class WordEmbedding(nnx.Module):
    """Each token's word, trained unless it comes as a vector, beside its characters."""

    def __init__(
        self,
        vocabulary_size: int,
        word_width: int,
        character_cnn: CharacterCNN,
        arithmetic: Arithmetic,
        rngs: nnx.Rngs,
    ):
        self.arithmetic, self.characters = arithmetic, character_cnn
        shape = (vocabulary_size, word_width)
        values = WORD_STD * jax.random.normal(rngs.params(), shape, jnp.float32)
        self.words = nnx.Param(values) if vocabulary_size else None

    def __call__(
        self, tokens: Tokens, dropout: Dropout, word_rate: float, character_rate: float
    ) -> jax.Array:
        """Map to [batch, length, word width + character width]; padding has zeros."""
        words = tokens.words if self.words is None else self.words[...][tokens.words]
        words = dropout(words.astype(self.arithmetic.activations), word_rate)
        words = jnp.where(tokens.real[..., None], words, 0)
        characters = self.characters(tokens.characters, dropout, character_rate)
        return jnp.concatenate([words, characters.astype(words.dtype)], axis=-1)


class Trilinear(nnx.Module):
    """Scores of each pair of a passage's and a question's token: w . [h; u; h * u].

    Source: Seo et al. 2017 (arXiv 1611.01603), equation 1.
    """

    def __init__(self, width: int, start: float, arithmetic: Arithmetic, rngs: nnx.Rngs):
        self.arithmetic = arithmetic
        self.passage_kernel = nnx.Param(glorot(rngs.params(), (width, 1), jnp.float32))
        self.question_kernel = nnx.Param(glorot(rngs.params(), (width, 1), jnp.float32))
        # Our choice, as papers name none: the score is at first a scaled dot product,
        # greatest for equal words before anything is learnt.
        self.product_kernel = nnx.Param(jnp.full((width, 1), start, jnp.float32))

    def __call__(self, passage: jax.Array, question: jax.Array) -> jax.Array:
        """Map [batch, T, width] and [batch, J, width] to float32 [batch, T, J]."""
        float32 = jnp.dtype("float32")
        sides = ((passage, self.passage_kernel), (question, self.question_kernel))
        of_passage, of_question = (
            jnp.asarray(linear(side, kernel[...], self.arithmetic, "io", float32))
            for side, kernel in sides
        )
        weighted = passage * self.product_kernel[...][:, 0].astype(passage.dtype)
        # The parts of w apart make no array [batch, T, J, 3 x width].
        products = multiply("btw,bjw->btj", weighted, question, self.arithmetic)
        return products + of_passage + of_question.swapaxes(1, 2)


def multiply(axes: str, left: jax.Array, right: jax.Array, arithmetic: Arithmetic) -> jax.Array:
    left, right = (part.astype(arithmetic.products) for part in (left, right))
    return jnp.einsum(axes, left, right, preferred_element_type=jnp.dtype("float32"))


def masked_softmax(scores: jax.Array, real: jax.Array, axis: int) -> jax.Array:
    """Float32 softmax over what is not a padding, in the shape of the scores."""
    return jax.nn.softmax(jnp.where(real, scores, MASKED), axis=axis)


def end_scores(scores: jax.Array, real: jax.Array) -> jax.Array:
    """Scores float32 [batch, length] from [batch, length, 1], those of padding masked."""
    return jnp.where(real, scores[..., 0].astype(jnp.float32), MASKED)
