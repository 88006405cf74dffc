"""The Transformer that translates: encoder and decoder with attention only.

Several sentences may share a row. Each token has a segment, counted from 1 along its row; 0 marks
padding. A token sees its own segment only, and positions start again in each.

Source: Vaswani et al. 2017, "Attention Is All You Need" (arXiv 1706.03762), sections 3.1 to 3.5. As
in the MLPerf v0.5 reference, attention projections have no biases, and normalization stands before
each sublayer and at the end of each stack: post-norm diverges at high rates with a short warm-up
(Xiong et al. 2020, arXiv 2002.04745).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dawnjax.models.activations import relu_of_sum
from dawnjax.models.arithmetic import Arithmetic, arithmetic_of, glorot, linear
from dawnjax.models.configs.transformer import Transformer
from dawnjax.models.cross_entropy import sum_of_losses
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.fused_attention import fused_attention
from dawnjax.models.layer_norm import LayerNorm

MASKED = -1e9
"""Score of a position that must not be seen; finite, so that a row of padding has no NaN."""


class Cache(NamedTuple):
    """Keys and values of the source and of the tokens so far, a list entry for each layer.

    Those of the source are [batch, heads, source length, channels]; those so far [batch x beams,
    heads, target length, channels], filled up to the current position.
    """

    source_visible: jax.Array
    source_keys: list[jax.Array]
    source_values: list[jax.Array]
    keys: list[jax.Array]
    values: list[jax.Array]

    def reordered(self, rows: jax.Array) -> "Cache":
        """Cache in which each beam continues the past of a row, int [batch x beams]."""
        return self._replace(
            keys=[past[rows] for past in self.keys], values=[past[rows] for past in self.values]
        )


class TransformerModule(nnx.Module):
    """Embedding, encoder, decoder, and the embedding again as the classifier."""

    def __init__(
        self, config: Transformer, vocabulary_size: int, execution: Execution, rngs: nnx.Rngs
    ):
        self.config = config
        self.execution, self.arithmetic = execution, arithmetic_of(execution)
        self.dtype = self.arithmetic.activations
        initial = jax.random.normal(rngs.params(), (vocabulary_size, config.width), jnp.float32)
        self.embedding = nnx.Param(initial * config.width**-0.5)

        def stack(sees_source: bool) -> nnx.Dict:
            names = [f"layer_{number}" for number in range(1, config.num_layers + 1)]
            return nnx.Dict(
                {name: Layer(config, self.arithmetic, rngs, sees_source) for name in names}
            )

        self.encoder = stack(sees_source=False)
        self.encoder_norm = LayerNorm(config.width)
        self.decoder = stack(sees_source=True)
        self.decoder_norm = LayerNorm(config.width)

    def __call__(
        self,
        source: jax.Array,
        source_segments: jax.Array,
        target_inputs: jax.Array,
        target_segments: jax.Array,
        *,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Decoder's output [batch, target length, width], from which `logits` are made.

        Tokens and segments are int [batch, length]. Target inputs are each segment's tokens, moved
        on by one; a target segment sees the source segment of its number. Training gives a dropout
        key.
        """
        dropout = Dropout(dropout_key)
        encoded = self.encode(source, source_segments, dropout)
        return self.decode(encoded, source_segments, target_inputs, target_segments, dropout)

    def loss_and_count(
        self, hidden: jax.Array, targets: jax.Array, real: jax.Array, label_smoothing: float
    ) -> jax.Array:
        """Summed loss of real tokens and their number, float32 [2].

        `hidden` is the decoder's output; targets, int32, and `real`, bool, are [batch, length].
        """
        logits = self.logits(hidden)
        return sum_of_losses(logits, targets, real, label_smoothing, self.execution)

    def embed(self, tokens: jax.Array, positions: jax.Array, length: int) -> jax.Array:
        """Scaled embeddings plus encodings of positions below `length`: [..., width]."""
        scale = math.sqrt(self.config.width)
        table = jnp.asarray(position_encoding(length, self.config.width))
        return (self.embedding[...][tokens] * scale + table[positions]).astype(self.dtype)

    def encode(self, source: jax.Array, segments: jax.Array, dropout: Dropout) -> jax.Array:
        # [batch, source length, width]
        embedded = self.embed(source, segment_positions(segments, self.execution), source.shape[1])
        hidden = dropout(embedded, self.config.dropout_rate)
        visible = same_segment(segments, segments)
        for layer in self.encoder.values():
            hidden = layer(hidden, visible, dropout)
        return self.encoder_norm(hidden)

    def decode(
        self,
        encoded: jax.Array,
        source_segments: jax.Array,
        target_inputs: jax.Array,
        target_segments: jax.Array,
        dropout: Dropout,
    ) -> jax.Array:
        """Decoder's output for whole targets, [batch, target length, width]."""
        length = target_inputs.shape[1]
        embedded = self.embed(
            target_inputs, segment_positions(target_segments, self.execution), length
        )
        hidden = dropout(embedded, self.config.dropout_rate)
        earlier = jnp.tril(jnp.ones((length, length), bool))
        visible = same_segment(target_segments, target_segments) & earlier
        source_visible = same_segment(target_segments, source_segments)
        for layer in self.decoder.values():
            hidden = layer(hidden, visible, dropout, (encoded, source_visible))
        return self.decoder_norm(hidden)

    def logits(self, hidden: jax.Array) -> jax.Array:
        embedding, float32 = self.embedding[...], jnp.dtype("float32")
        return linear(hidden, embedding, self.arithmetic, "oi", float32)

    def start_cache(
        self, source: jax.Array, source_segments: jax.Array, num_beams: int, length: int
    ) -> Cache:
        """Encode sources, one a row, into a cache for targets of up to `length` tokens."""
        encoded = self.encode(source, source_segments, Dropout(None))
        attentions = [layer.source_attention for layer in self.decoder.values()]
        channels = self.config.width // self.config.num_heads
        # XLA would copy any other shape than that of the products several times at each position.
        shape = (len(source) * num_beams, self.config.num_heads, length, channels)
        return Cache(
            source_visible=source_segments > 0,
            source_keys=[layer.project_heads(encoded, layer.key) for layer in attentions],
            source_values=[layer.project_heads(encoded, layer.value) for layer in attentions],
            keys=[jnp.zeros(shape, self.dtype) for _ in attentions],
            values=[jnp.zeros(shape, self.dtype) for _ in attentions],
        )

    def decode_next(
        self, cache: Cache, tokens: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Logits float32 [batch, beams, vocabulary] after tokens [batch, beams], and the cache.

        The tokens are the decoder's input at `position`, the same for all rows.
        """
        length = cache.keys[0].shape[2]
        hidden = self.embed(tokens, jnp.full_like(tokens, position), length)
        visible = (jnp.arange(length) <= position)[None, None]
        keys, values = [], []
        for index, layer in enumerate(self.decoder.values()):
            # The beams of a row have different pasts: each is a row with one query.
            normed = layer.attention_norm(hidden).reshape(-1, 1, hidden.shape[-1])
            attention, place = layer.attention, (0, 0, position, 0)
            key = attention.project_heads(normed, attention.key)
            value = attention.project_heads(normed, attention.value)
            keys.append(jax.lax.dynamic_update_slice(cache.keys[index], key, place))
            values.append(jax.lax.dynamic_update_slice(cache.values[index], value, place))
            attended = attention.attend_heads(normed, keys[-1], values[-1], visible)
            hidden = hidden + attended.reshape(hidden.shape)
            # The beams of a row see the same source, as the positions of one target do.
            hidden = hidden + layer.source_attention.attend_heads(
                layer.source_norm(hidden),
                cache.source_keys[index],
                cache.source_values[index],
                cache.source_visible[:, None],
            )
            hidden = hidden + layer.feed_forward(layer.feed_forward_norm(hidden))
        logits = self.logits(self.decoder_norm(hidden))
        return logits, cache._replace(keys=keys, values=values)


class Layer(nnx.Module):
    """Self-attention, in a decoder attention to the source, and feed-forward (section 3.1)."""

    def __init__(
        self, config: Transformer, arithmetic: Arithmetic, rngs: nnx.Rngs, sees_source: bool
    ):
        self.dropout_rate = config.dropout_rate
        self.attention_norm = LayerNorm(config.width)
        self.attention = Attention(config, arithmetic, rngs)
        if sees_source:
            self.source_norm = LayerNorm(config.width)
            self.source_attention = Attention(config, arithmetic, rngs)
        self.feed_forward_norm = LayerNorm(config.width)
        self.feed_forward = FeedForward(config, arithmetic, rngs)

    def __call__(
        self,
        hidden: jax.Array,
        visible: jax.Array,
        dropout: Dropout,
        source: tuple[jax.Array, jax.Array] | None = None,
    ) -> jax.Array:
        """Map [batch, length, width] to the same; `visible` is bool [batch, length, length].

        A decoder's `source` is the encoder's output and bool [batch, length, source length].
        """
        normed = self.attention_norm(hidden)
        attended = self.attention(normed, normed, visible)
        hidden = hidden + dropout(attended, self.dropout_rate)
        if source is not None:
            attended = self.source_attention(self.source_norm(hidden), *source)
            hidden = hidden + dropout(attended, self.dropout_rate)
        normed = self.feed_forward_norm(hidden)
        return hidden + dropout(self.feed_forward(normed), self.dropout_rate)


class Attention(nnx.Module):
    """Scaled dot-product attention of several heads (section 3.2).

    Letters of shapes in names: B examples, Q queries, K keys, H heads, C channels of a head.
    """

    def __init__(self, config: Transformer, arithmetic: Arithmetic, rngs: nnx.Rngs):
        self.num_heads, self.arithmetic = config.num_heads, arithmetic
        self.query = _kernel(config.width, config.width, rngs)
        self.key = _kernel(config.width, config.width, rngs)
        self.value = _kernel(config.width, config.width, rngs)
        self.output = _kernel(config.width, config.width, rngs)

    def __call__(self, queried: jax.Array, seen: jax.Array, visible: jax.Array) -> jax.Array:
        """Attend from `queried` [batch, queries, width] to `seen` [batch, keys, width].

        `visible` is bool, broadcast to [batch, queries, keys].
        """
        query_BxQxHxC = self.project(queried, self.query)
        keys_BxKxHxC = self.project(seen, self.key)
        values_BxKxHxC = self.project(seen, self.value)
        attended = fused_attention(
            query_BxQxHxC,
            keys_BxKxHxC,
            values_BxKxHxC,
            self.arithmetic.execution,
            mask=visible,
        )
        if attended is not None:
            return self.join(attended)
        scores_BxHxQxK = jnp.einsum(
            "bqhc,bkhc->bhqk", query_BxQxHxC, keys_BxKxHxC, preferred_element_type=jnp.float32
        )
        weights_BxHxQxK = softmax(scores_BxHxQxK, visible[:, None], query_BxQxHxC.shape[-1])
        weights_BxHxQxK = weights_BxHxQxK.astype(values_BxKxHxC.dtype)
        return self.join(jnp.einsum("bhqk,bkhc->bqhc", weights_BxHxQxK, values_BxKxHxC))

    def attend_heads(
        self, queried: jax.Array, keys: jax.Array, values: jax.Array, visible: jax.Array
    ) -> jax.Array:
        """Attention to keys and values [batch, heads, keys, channels].

        `queried` is [batch, queries, width]; `visible` is bool, broadcast to [batch, queries,
        keys].
        """
        query = self.project(queried, self.query)
        scores = jnp.einsum("bqhd,bhkd->bhqk", query, keys, preferred_element_type=jnp.float32)
        weights = softmax(scores, visible[:, None], query.shape[-1])
        return self.join(jnp.einsum("bhqk,bhkd->bqhd", weights.astype(values.dtype), values))

    def project_heads(self, hidden: jax.Array, kernel: nnx.Param) -> jax.Array:
        """Map [batch, positions, width] to [batch, heads, positions, channels]."""
        return self.project(hidden, kernel).swapaxes(1, 2)

    def project(self, hidden: jax.Array, kernel: nnx.Param) -> jax.Array:
        projected: jax.Array = linear(hidden, kernel[...], self.arithmetic)
        return projected.reshape(*projected.shape[:-1], self.num_heads, -1)

    def join(self, heads: jax.Array) -> jax.Array:
        joined = heads.reshape(*heads.shape[:-2], -1)
        return linear(joined, self.output[...], self.arithmetic)


class FeedForward(nnx.Module):
    """Two linear layers with a ReLU between, at each position (section 3.3)."""

    def __init__(self, config: Transformer, arithmetic: Arithmetic, rngs: nnx.Rngs):
        self.arithmetic = arithmetic
        self.kernel_1 = _kernel(config.width, config.hidden_width, rngs)
        self.bias_1 = nnx.Param(jnp.zeros(config.hidden_width, jnp.float32))
        self.kernel_2 = _kernel(config.hidden_width, config.width, rngs)
        self.bias_2 = nnx.Param(jnp.zeros(config.width, jnp.float32))

    def __call__(self, hidden: jax.Array) -> jax.Array:
        dtype = self.arithmetic.activations
        hidden = linear(hidden, self.kernel_1[...], self.arithmetic)
        hidden = relu_of_sum(hidden + self.bias_1[...].astype(dtype), self.arithmetic.execution)
        hidden = linear(hidden, self.kernel_2[...], self.arithmetic)
        return hidden + self.bias_2[...].astype(dtype)


def softmax(scores: jax.Array, visible: jax.Array, channels: int) -> jax.Array:
    """float32 weights from scores divided by sqrt(channels); 0 where not visible."""
    return jax.nn.softmax(jnp.where(visible, scores / math.sqrt(channels), MASKED), axis=-1)


def position_encoding(length: int, width: int) -> np.ndarray:
    """float32 [length, width]: sines in even channels, cosines in odd ones (section 3.5)."""
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, width).astype(np.float32)


def segment_positions(segments: jax.Array, execution: Execution) -> jax.Array:
    """Position of each token in its segment, int32 [batch, length], from 0."""
    index = jnp.arange(segments.shape[1])[None]
    before = jnp.pad(segments[:, :-1], ((0, 0), (1, 0)))
    starts = jnp.where(segments != before, index, 0)
    positions = index - jax.lax.cummax(starts, axis=1)
    # XLA on a GPU would look for the segment's start again for each channel of a token.
    return jax.lax.optimization_barrier(positions) if execution.platform == "gpu" else positions


def same_segment(queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Mask of the keys of each query's segment: bool [batch, queries, keys]."""
    return (queries[:, :, None] == keys[:, None, :]) & (keys[:, None, :] > 0)


def _kernel(in_width: int, out_width: int, rngs: nnx.Rngs) -> nnx.Param:
    return nnx.Param(glorot(rngs.params(), (in_width, out_width), jnp.float32))
