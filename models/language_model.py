"""A decoder-only Transformer whose parts can be switched off one at a time.

Source: Radford et al. 2019 (GPT-2) for the frame, its sizes and initial values (normal, standard
deviation 0.02). Su et al. 2021 (arXiv 2104.09864) for rotary positions; Henry et al. 2020 (arXiv
2010.04245) for normalized queries and keys; So et al. 2021 (arXiv 2109.08668) for the squared ReLU;
Gemma 2 (arXiv 2408.00118), section 2, for the soft cap; KellerJordan/modded-nanogpt,
`train_gpt.py`, for zero projections, value embeddings and U-net skips.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.arithmetic import Dense, arithmetic_of, linear
from dawnjax.models.causal_attention import (
    Keys,
    Place,
    causal_attention,
    document_starts,
    next_attention,
)
from dawnjax.models.configs.language_model import LanguageModel
from dawnjax.models.execution import Execution
from dawnjax.models.rotary import rotated

INITIAL_STD = 0.02
ROTARY_BASE = 10_000.0
_EPSILON = 1e-5


class LanguageModelModule(nnx.Module):
    """Embeddings, blocks and the output layer."""

    def __init__(
        self,
        config: LanguageModel,
        vocabulary_size: int,
        sequence_length: int,
        separator: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        self.config, self.separator, self.arithmetic = config, separator, arithmetic_of(execution)
        self.embedding = _table(vocabulary_size, config.width, rngs)
        if config.positions == "learned":
            self.position_embedding = _table(sequence_length, config.width, rngs)
        self.value_tables = nnx.List(
            _table(vocabulary_size, config.width, rngs) for _ in range(config.value_embeddings)
        )
        self.blocks = nnx.List(
            Block(config, execution, rngs, has_value_embedding=self._value_table(layer) is not None)
            for layer in range(config.num_layers)
        )
        self.norm = Norm(config)
        if config.unet_skips:
            self.skip_weights = nnx.Param(jnp.ones(config.num_layers // 2, jnp.float32))
        if not config.ties_embedding:
            self.classifier = Dense(
                config.width,
                vocabulary_size,
                self.arithmetic,
                rngs,
                use_bias=False,
                initializer=_initializer(zero=config.zero_projections),
            )

    def __call__(self, tokens: jax.Array, window: int = 0) -> jax.Array:
        """Logits of the token after each of int32 [batch, length]: float32 [..., vocabulary].

        A token attends to `window` tokens, itself included; 0 is no limit.
        """
        return self._logits(self._hidden(tokens, window)[0])

    def begin(
        self, tokens: jax.Array, lengths: jax.Array, window: int
    ) -> tuple[jax.Array, tuple[list[Keys], jax.Array]]:
        """Logits after the first `lengths` tokens of each row, [batch, vocabulary], and the past.

        The past is what `extend` needs of the tokens so far.
        """
        hidden, kept = self._hidden(tokens, window)
        first = jnp.zeros_like(lengths)
        if self.config.masks_documents:
            first = document_starts(tokens, lengths - 1, self.separator)
        last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
        return self._logits(last)[:, 0], (kept, first)

    def extend(
        self,
        tokens: jax.Array,
        places: jax.Array,
        past: tuple[list[Keys], jax.Array],
        window: int,
    ) -> tuple[jax.Array, tuple[list[Keys], jax.Array]]:
        """Logits after one more token of each row, int32 [batch], at its place; and the past."""
        layers, first = past
        hidden, kept = self._hidden(tokens[:, None], window, layers, Place(places, first))
        return self._logits(hidden)[:, 0], (kept, first)

    def _hidden(
        self,
        tokens: jax.Array,
        window: int,
        earlier: list[Keys] | None = None,
        at: Place | None = None,
    ) -> tuple[jax.Array, list[Keys]]:
        """Input of the output layer, [batch, length, width], and each layer's keys and values.

        With the keys of `earlier` tokens, `tokens` are one more of each row.
        """
        config, length = self.config, tokens.shape[1]
        hidden = self.embedding[...][tokens]
        if config.positions == "learned":
            learned = self.position_embedding[...]
            hidden = hidden + (learned[:length] if at is None else learned[at.place][:, None])
        hidden = hidden.astype(self.arithmetic.activations)
        # A separator begins its document.
        documents = jnp.cumsum(tokens == self.separator, axis=1) if config.masks_documents else None
        skips, kept = [], []
        half = config.num_layers // 2
        for layer, block in enumerate(self.blocks):
            if config.unet_skips and layer >= config.num_layers - half:
                weight = self.skip_weights[...][layer - (config.num_layers - half)]
                hidden = (hidden + weight * skips.pop()).astype(hidden.dtype)
            place = self._value_table(layer)
            values = None if place is None else self.value_tables[place][...][tokens]
            past = None if earlier is None else earlier[layer]
            hidden, keys = block(hidden, values, documents, window, past, at)
            kept.append(keys)
            if config.unet_skips and layer < half:
                skips.append(hidden)
        return self.norm(hidden), kept

    def _logits(self, hidden: jax.Array) -> jax.Array:
        float32 = jnp.dtype("float32")
        if self.config.ties_embedding:
            logits: jax.Array = linear(hidden, self.embedding[...], self.arithmetic, "oi", float32)
        else:
            logits = self.classifier(hidden, float32)
        cap = self.config.logit_soft_cap
        return cap * jnp.tanh(logits / cap) if cap else logits

    def _value_table(self, layer: int) -> int | None:
        count, from_end = self.config.value_embeddings, self.config.num_layers - 1 - layer
        if layer < count:
            return layer
        # The last layers share the first ones' tables, in the same order.
        return count - 1 - from_end if from_end < count else None


class Block(nnx.Module):
    """Attention and MLP, each added to the residual stream."""

    def __init__(
        self,
        config: LanguageModel,
        execution: Execution,
        rngs: nnx.Rngs,
        *,
        has_value_embedding: bool,
    ):
        self.config, self.execution = config, execution
        width, middle = config.width, config.mlp_factor * config.width

        def layer(before: int, after: int, *, is_projection: bool = False) -> Dense:
            initializer = _initializer(zero=is_projection and config.zero_projections)
            return Dense(
                before,
                after,
                arithmetic_of(execution),
                rngs,
                use_bias=config.has_biases,
                initializer=initializer,
            )

        self.attention_norm, self.mlp_norm = Norm(config), Norm(config)
        self.query, self.key, self.value = (layer(width, width) for _ in range(3))
        self.attention_projection = layer(width, width, is_projection=True)
        self.mlp = layer(width, middle)
        self.mlp_projection = layer(middle, width, is_projection=True)
        if has_value_embedding:
            self.value_weights = nnx.Param(jnp.full(2, 0.5, jnp.float32))

    def __call__(
        self,
        hidden: jax.Array,
        values: jax.Array | None,
        documents: jax.Array | None,
        window: int,
        earlier: Keys | None = None,
        at: Place | None = None,
    ) -> tuple[jax.Array, Keys]:
        normed = self.attention_norm(hidden)
        mixed, keys = self._attend(normed, values, documents, window, earlier, at)
        hidden = hidden + mixed
        middle = self.mlp(self.mlp_norm(hidden))
        if self.config.activation == "gelu":
            middle = jax.nn.gelu(middle)
        else:
            middle = jnp.square(jax.nn.relu(middle))
        return hidden + self.mlp_projection(middle), keys

    def _attend(
        self,
        hidden: jax.Array,
        values: jax.Array | None,
        documents: jax.Array | None,
        window: int,
        earlier: Keys | None,
        at: Place | None,
    ) -> tuple[jax.Array, Keys]:
        heads = (*hidden.shape[:2], self.config.num_heads, -1)
        query, key = (layer(hidden).reshape(heads) for layer in (self.query, self.key))
        value = self.value(hidden)
        if values is not None:
            value = self.value_weights[0] * value + self.value_weights[1] * values
        if self.config.normalizes_queries:
            query, key = rms_normalized(query), rms_normalized(key)
        if self.config.positions == "rotary":
            rates = ROTARY_BASE ** (-jnp.arange(query.shape[-1] // 2) / (query.shape[-1] // 2))
            places = None if at is None else at.place[:, None]
            query, key = (rotated(x, rates, places=places) for x in (query, key))
        dtype = self.execution.compute_dtype
        query, key, value = (x.astype(dtype) for x in (query, key, value.reshape(heads)))
        keys = Keys(key, value)
        if earlier is not None and at is not None:
            mixed, keys = next_attention(query, key, value, earlier, at, window)
        else:
            mixed = causal_attention(query, key, value, documents, window, self.execution)
        mixed = mixed.astype(hidden.dtype).reshape(hidden.shape)
        return self.attention_projection(mixed), keys


class Norm(nnx.Module):
    """RMSNorm without parameters, or GPT-2's LayerNorm."""

    def __init__(self, config: LanguageModel):
        self.has_biases = config.has_biases
        if config.has_biases:
            self.scale = nnx.Param(jnp.ones(config.width, jnp.float32))
            self.bias = nnx.Param(jnp.zeros(config.width, jnp.float32))

    def __call__(self, hidden: jax.Array) -> jax.Array:
        if not self.has_biases:
            return rms_normalized(hidden).astype(hidden.dtype)
        wide = hidden.astype(jnp.float32)
        wide = rms_normalized(wide - wide.mean(axis=-1, keepdims=True))
        return (wide * self.scale[...] + self.bias[...]).astype(hidden.dtype)


def rms_normalized(values: jax.Array) -> jax.Array:
    """Values over their root mean square along the last axis, in float32."""
    wide = values.astype(jnp.float32)
    return wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + _EPSILON)


def _table(rows: int, width: int, rngs: nnx.Rngs) -> nnx.Param:
    return nnx.Param(INITIAL_STD * jax.random.normal(rngs.params(), (rows, width), jnp.float32))


def _initializer(*, zero: bool) -> jax.nn.initializers.Initializer:
    return jax.nn.initializers.zeros if zero else jax.nn.initializers.normal(INITIAL_STD)
