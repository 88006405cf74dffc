"""BiDAF: a passage and a question read by LSTMs, with attention from each to the other.

Source: Seo et al. 2017, "Bidirectional Attention Flow for Machine Comprehension" (arXiv
1611.01603), section 2, layers 1 to 6. The input of the last token's LSTM is that of the authors'
code (allenai/bi-att-flow, `basic/model.py`), which the paper's number of parameters fits.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.arithmetic import Dense, arithmetic_of
from dawnjax.models.configs.bidaf import NUM_HIGHWAY_LAYERS, TAPS, BiDAF
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.lstm import BidirectionalLSTM
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

LSTM_BOUND = 0.1
"""Kernels and biases of the LSTMs start uniform between plus and minus this: our own choice."""


class BiDAFModule(nnx.Module):
    """The six layers of the paper."""

    def __init__(self, config: BiDAF, vocabulary_size: int, execution: Execution, rngs: nnx.Rngs):
        self.config = config
        self.arithmetic = arithmetic = arithmetic_of(execution)
        d = config.hidden_width

        def lstm(in_width: int) -> BidirectionalLSTM:
            return BidirectionalLSTM(in_width, d, arithmetic, LSTM_BOUND, rngs)

        characters = CharacterCNN(config.character_width, config.filters, TAPS, arithmetic, rngs)
        self.embedding = WordEmbedding(
            vocabulary_size, config.word_width, characters, arithmetic, rngs
        )
        width = config.embedded_width
        self.highway = Highway(width, NUM_HIGHWAY_LAYERS, arithmetic, rngs)
        self.contextual = lstm(width)
        self.similarity = Trilinear(2 * d, 1.0, arithmetic, rngs)
        widths = [8 * d] + (config.num_modelling_layers - 1) * [2 * d]
        self.modelling = nnx.List(lstm(in_width) for in_width in widths)
        self.last_token = lstm(14 * d)
        self.start_score = Dense(10 * d, 1, arithmetic, rngs, use_bias=False)
        self.end_score = Dense(10 * d, 1, arithmetic, rngs, use_bias=False)

    def __call__(
        self, passage: Tokens, question: Tokens, *, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Scores of each token as the answer's first and last: float32 [batch, T], padding -1e9."""
        dropout, rate = Dropout(dropout_key), self.config.dropout_rate
        real = passage.real
        segments = real.astype(jnp.int32)
        h, u = self._read(passage, question, dropout), self._read(question, passage, dropout)
        joined = self.attend(h, u, real, question.real)
        modelled = joined
        for layer in self.modelling:
            modelled = layer(dropout(modelled, rate), segments)
        float32 = jnp.dtype("float32")
        both = dropout(jnp.concatenate([joined, modelled], axis=-1), rate)
        starts = end_scores(self.start_score(both, float32), real)
        # The mean of the modelling layer under the first token's distribution, beside each token.
        chosen = multiply("bt,btw->bw", jax.nn.softmax(starts), modelled, self.arithmetic)
        chosen = jnp.broadcast_to(chosen[:, None].astype(modelled.dtype), modelled.shape)
        inputs = jnp.concatenate([joined, modelled, chosen, chosen * modelled], axis=-1)
        last = self.last_token(dropout(inputs, rate), segments)
        both = dropout(jnp.concatenate([joined, last], axis=-1), rate)
        return starts, end_scores(self.end_score(both, float32), real)

    def _read(self, tokens: Tokens, others: Tokens, dropout: Dropout) -> jax.Array:
        rate = self.config.dropout_rate
        embedded = self.embedding(tokens, dropout, 0.0, rate)
        if self.config.has_match:
            matches = tokens.are_in(others)[..., None].astype(embedded.dtype)
            embedded = jnp.concatenate([embedded, matches], axis=-1)
        # [batch, length, embedded width] to [batch, length, 2d]
        hidden = self.highway(embedded, dropout, 0.0)
        return self.contextual(dropout(hidden, rate), tokens.real.astype(jnp.int32))

    def attend(
        self, h: jax.Array, u: jax.Array, real: jax.Array, question_real: jax.Array
    ) -> jax.Array:
        """Join passage and question: [batch, T, 8d], equations 1 to 4 of the paper."""
        scores = self.similarity(h, u)
        to_question = masked_softmax(scores, question_real[:, None], axis=2)
        attended = multiply("btj,bjw->btw", to_question, u, self.arithmetic).astype(h.dtype)
        closest = jnp.where(question_real[:, None], scores, -jnp.inf).max(axis=2)
        to_passage = masked_softmax(closest, real, axis=1)
        summary = multiply("bt,btw->bw", to_passage, h, self.arithmetic)[:, None].astype(h.dtype)
        return jnp.concatenate([h, attended, h * attended, h * summary], axis=-1)
