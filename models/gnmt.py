"""Google's translator of LSTM layers with attention, as in MLPerf v0.5 to v0.7.

The decoder's first layer asks the attention, and all later layers read its answer. Nothing flows
back into the first layer, so each layer runs over a whole target as one scan. Several sentences may
share a row: see `dawnjax.models.lstm`.

Source: Wu et al. 2016, "Google's Neural Machine Translation System" (arXiv 1609.08144), section 3,
in the form of the MLPerf reference (mlcommons/training, `rnn_translator/pytorch`): 4 + 4 layers,
the attention of Bahdanau et al. 2015 (arXiv 1409.0473), normalized as by Luong et al. 2017 (the
`normed_bahdanau` of TensorFlow's NMT tutorial), and a classifier of its own.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dawnjax.models.arithmetic import Arithmetic, arithmetic_of, linear
from dawnjax.models.configs.gnmt import GNMT
from dawnjax.models.cross_entropy import sum_of_losses
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.lstm import LSTM, BidirectionalLSTM, State, uniform
from dawnjax.models.transformer import MASKED, same_segment


class Cache(NamedTuple):
    """Encoded source [batch, source length, width], and the past of each beam.

    `keys` are the attention's; `states` of [batch x beams, width] the decoder's; `seen`, float32
    [batch x beams, source length], sums attention weights.
    """

    source_visible: jax.Array
    encoded: jax.Array
    keys: jax.Array
    states: list[State]
    seen: jax.Array

    def reordered(self, rows: jax.Array) -> "Cache":
        """Cache in which each beam continues the past of a row, int [batch x beams]."""
        states = [State(*(part[rows] for part in state)) for state in self.states]
        return self._replace(states=states, seen=self.seen[rows])

    def coverage(self) -> jax.Array:
        """Sum over source tokens of log(min(weights so far, 1)), float32 [batch, beams].

        Source: Wu et al. 2016, equation 14, the coverage penalty without its factor.
        """
        batch, length = self.source_visible.shape
        # A token without attention must not make the sum minus infinity.
        least = np.finfo(np.float32).tiny
        logs = jnp.log(jnp.clip(self.seen.reshape(batch, -1, length), least, 1.0))
        return jnp.where(self.source_visible[:, None], logs, 0.0).sum(-1)


class GNMTModule(nnx.Module):
    """Embedding, encoder, decoder with attention, and classifier."""

    def __init__(self, config: GNMT, vocabulary_size: int, execution: Execution, rngs: nnx.Rngs):
        self.config = config
        self.execution, self.arithmetic = execution, arithmetic_of(execution)
        width, bound = config.width, config.initial_bound
        self.embedding = uniform((vocabulary_size, width), config.embedding_bound, rngs)

        def layer(in_width: int) -> LSTM:
            return LSTM(in_width, width, self.arithmetic, bound, rngs)

        def layers(first: int, in_width: int) -> nnx.Dict:
            numbers = range(first, config.num_layers + 1)
            return nnx.Dict({f"layer_{number}": layer(in_width) for number in numbers})

        self.encoder_first = BidirectionalLSTM(width, width, self.arithmetic, bound, rngs)
        self.encoder_second = layer(2 * width)
        self.encoder = layers(3, width)
        self.decoder_first = layer(width)
        self.attention = Attention(config, self.arithmetic, rngs)
        self.decoder = layers(2, 2 * width)
        self.classifier = uniform((vocabulary_size, width), bound, rngs)
        self.classifier_bias = uniform((vocabulary_size,), bound, rngs)

    def __call__(
        self,
        source: jax.Array,
        source_segments: jax.Array,
        target_inputs: jax.Array,
        target_segments: jax.Array,
        *,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Decoder's output [batch, target length, width]; arguments as of `TransformerModule`."""
        dropout = Dropout(dropout_key)
        encoded = self.encode(source, source_segments, dropout)
        hidden = dropout(self.embed(target_inputs), self.config.dropout_rate)
        hidden = self.decoder_first(hidden, target_segments)
        visible = same_segment(target_segments, source_segments)
        attended, _ = self.attention(hidden, encoded, self.attention.keys(encoded), visible)
        for number, layer in enumerate(self.decoder.values()):
            joined = jnp.concatenate([hidden, attended], axis=-1)
            output = layer(dropout(joined, self.config.dropout_rate), target_segments)
            hidden = output if number == 0 else hidden + output
        return hidden

    def loss_and_count(
        self, hidden: jax.Array, targets: jax.Array, real: jax.Array, label_smoothing: float
    ) -> jax.Array:
        """Summed loss of real tokens and their number, float32 [2]."""
        logits = self.logits(hidden)
        return sum_of_losses(logits, targets, real, label_smoothing, self.execution)

    def embed(self, tokens: jax.Array) -> jax.Array:
        return self.embedding[...][tokens].astype(self.arithmetic.activations)

    def encode(self, source: jax.Array, segments: jax.Array, dropout: Dropout) -> jax.Array:
        rate = self.config.dropout_rate
        hidden = self.encoder_first(dropout(self.embed(source), rate), segments)
        hidden = self.encoder_second(dropout(hidden, rate), segments)
        for layer in self.encoder.values():
            hidden = hidden + layer(dropout(hidden, rate), segments)
        return hidden

    def logits(self, hidden: jax.Array) -> jax.Array:
        kernel, float32 = self.classifier[...], jnp.dtype("float32")
        product: jax.Array = linear(hidden, kernel, self.arithmetic, "oi", float32)
        return product + self.classifier_bias[...]

    def start_cache(
        self, source: jax.Array, source_segments: jax.Array, num_beams: int, length: int
    ) -> Cache:
        """Cache of encoded sources, one a row, for targets of any length."""
        encoded = self.encode(source, source_segments, Dropout(None))
        rows = len(source) * num_beams
        return Cache(
            source_visible=source_segments > 0,
            encoded=encoded,
            keys=self.attention.keys(encoded),
            states=[layer.start(rows) for layer in (self.decoder_first, *self.decoder.values())],
            seen=jnp.zeros((rows, source.shape[1]), jnp.float32),
        )

    def decode_next(
        self, cache: Cache, tokens: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Logits float32 [batch, beams, vocabulary] after tokens [batch, beams], and the cache."""
        embedded = self.embed(tokens.reshape(-1))
        states = [self.decoder_first.step(embedded, cache.states[0])]
        hidden = states[0].hidden
        queried = hidden.reshape(*tokens.shape, -1)
        visible = cache.source_visible[:, None]
        attended, weights = self.attention(queried, cache.encoded, cache.keys, visible)
        attended = attended.reshape(hidden.shape)
        for number, layer in enumerate(self.decoder.values()):
            joined = jnp.concatenate([hidden, attended], axis=-1)
            states.append(layer.step(joined, cache.states[number + 1]))
            output = states[-1].hidden
            hidden = output if number == 0 else hidden + output
        logits = self.logits(hidden.reshape(queried.shape))
        seen = cache.seen + weights.reshape(cache.seen.shape)
        return logits, cache._replace(states=states, seen=seen)


class Attention(nnx.Module):
    """Additive attention whose score vector has a learned length.

    Source: Bahdanau et al. 2015, appendix A.1.2; the length as in Salimans and Kingma 2016, "Weight
    Normalization" (arXiv 1602.07868), equation 2.
    """

    def __init__(self, config: GNMT, arithmetic: Arithmetic, rngs: nnx.Rngs):
        self.arithmetic = arithmetic
        width, bound = config.width, config.initial_bound
        self.query_kernel = uniform((width, width), bound, rngs)
        self.key_kernel = uniform((width, width), bound, rngs)
        self.direction = uniform((width,), bound, rngs)
        self.length = nnx.Param(jnp.full((), 1 / math.sqrt(width), jnp.float32))
        self.bias = nnx.Param(jnp.zeros(width, jnp.float32))

    def keys(self, encoded: jax.Array) -> jax.Array:
        """Source's part of the scores, [batch, source length, width]."""
        product: jax.Array = linear(encoded, self.key_kernel[...], self.arithmetic)
        return product

    def __call__(
        self, queried: jax.Array, encoded: jax.Array, keys: jax.Array, visible: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Each query's weighted sum of the source [batch, queries, width], and its weights.

        The weights are float32 [batch, queries, source length], to which bool `visible` broadcasts.
        """
        direction = self.direction[...]
        vector = direction * (self.length[...] / jnp.linalg.norm(direction))
        query: jax.Array = linear(queried, self.query_kernel[...], self.arithmetic)
        query += self.bias[...].astype(query.dtype)
        scores = jnp.where(visible, _scores(query, keys, vector), MASKED)
        weights = jax.nn.softmax(scores, axis=-1)
        products = self.arithmetic.products
        attended = jnp.einsum(
            "bqk,bkc->bqc",
            weights.astype(products),
            encoded.astype(products),
            preferred_element_type=jnp.float32,
        )
        return attended.astype(self.arithmetic.activations), weights


@jax.checkpoint
def _scores(query: jax.Array, keys: jax.Array, vector: jax.Array) -> jax.Array:
    """float32 [batch, queries, keys]: sum over channels of the vector times tanh(query + key)."""
    # A sum and no product with the vector: XLA adds up each score without writing the tangents
    # [batch, queries, keys, channels]. The gradient computes them anew for the same reason.
    tangents = jnp.tanh(query[:, :, None] + keys[:, None])
    return (tangents.astype(jnp.float32) * vector).sum(-1)
