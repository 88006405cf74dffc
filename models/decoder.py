"""Decoder of the Llama family: RMSNorm, gated MLP or experts, grouped queries, rotary positions.

All layers lie in one stack, [layers, ...] of each weight, and run under one `lax.scan`. The config
names the axes of each weight, and `sharding.RULES` decides where they lie.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from dawnjax.models.arithmetic import arithmetic_of, linear
from dawnjax.models.causal_attention import (
    Keys,
    Place,
    causal_attention,
    document_starts,
    next_attention,
)
from dawnjax.models.cross_entropy import plain_losses
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.experts import Routing, balance_loss, routed_mlp
from dawnjax.models.lora import Adapters, target_of
from dawnjax.models.rotary import rotated
from dawnjax.models.sharding import RULES, Axes, constrained, gathered, moved, parts_of

Tree = dict[str, Any]

PRODUCTS = ("query", "key", "value", "attended", "gate", "up")
"""Names of the results that remat=products keeps from the forward pass."""

BETWEEN: Axes = ("batch", "text", None)
WHOLE: Axes = ("batch", "tokens", None)
COLUMNS: Axes = ("batch", "tokens", "mlp")
"""Of activations [batch, length, ...]: between the halves of a block, before a half, and within."""

BY_WIDTH: Axes = ("replicas", "tokens", "embed")
"""Of embedded tokens' gradient: all rows along `fsdp`, and a device's part of the width."""


class Blocks(nnx.Module):
    """Weights of all layers, stacked: [layers, in, out], and norms [layers, width]."""

    def __init__(self, config: Any, rngs: nnx.Rngs):
        layers, width, middle = config.num_layers, config.width, config.mlp_width
        queries = config.num_heads * config.head_width
        keys = config.num_kv_heads * config.head_width

        def kernel(*shape: int, std: float = config.initial_std) -> nnx.Param:
            return _normal(config, (layers, *shape), rngs, std)

        to_stream = config.initial_std
        if config.scales_projections:
            to_stream /= math.sqrt(2 * layers)

        def zeros(*shape: int) -> nnx.Param:
            return _constant(config, 0.0, (layers, *shape))

        self.attention_norm = _constant(config, 1.0, (layers, width))
        self.query, self.output = kernel(width, queries), kernel(queries, width, std=to_stream)
        self.key, self.value = kernel(width, keys), kernel(width, keys)
        self.mlp_norm = _constant(config, 1.0, (layers, width))
        count = config.experts.count
        if count:
            self.router = kernel(width, count)
            self.expert_gate = kernel(count, width, middle)
            self.expert_up = kernel(count, width, middle)
            self.expert_down = kernel(count, middle, width, std=to_stream)
        else:
            self.gate, self.up = kernel(width, middle), kernel(width, middle)
            self.down = kernel(middle, width, std=to_stream)
        if config.has_biases:
            self.query_bias, self.output_bias = zeros(queries), zeros(width)
            self.key_bias, self.value_bias = zeros(keys), zeros(keys)
        if config.has_biases and count:
            self.router_bias, self.expert_down_bias = zeros(count), zeros(count, width)
            self.expert_gate_bias, self.expert_up_bias = zeros(count, middle), zeros(count, middle)
        if config.has_sinks:
            self.sinks = zeros(config.num_heads)
        if config.normalizes_queries:
            self.query_norm = _constant(config, 1.0, (layers, config.head_width))
            self.key_norm = _constant(config, 1.0, (layers, config.head_width))


class Decoder(nnx.Module):
    """Embedding, stacked blocks, and the output layer; `config` is a `llama.Llama`."""

    def __init__(
        self,
        config: Any,
        vocabulary_size: int,
        separator: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        self.config, self.separator, self.execution = config, separator, execution
        std = config.initial_std
        self.embedding = _normal(config, (vocabulary_size, config.width), rngs, std)
        self.blocks = Blocks(config, rngs)
        self.norm = _constant(config, 1.0, (config.width,))
        if not config.ties_embedding:
            self.classifier = _normal(config, (config.width, vocabulary_size), rngs, std)
        if config.lora.rank:
            self.adapters = Adapters(config, rngs)

    def __call__(self, tokens: jax.Array, window: int = 0) -> jax.Array:
        """Logits of the token after each of int32 [batch, length]: float32 [..., vocabulary].

        A token attends to `window` tokens, itself included; 0 is no limit.
        """
        return self._logits(self._hidden(tokens, window)[0], self._output_table())

    def begin(
        self, tokens: jax.Array, lengths: jax.Array, window: int
    ) -> tuple[jax.Array, tuple[Any, jax.Array]]:
        """Logits after the first `lengths` tokens of each row, [batch, vocabulary], and the past.

        The past is what `extend` needs of the tokens so far.
        """
        hidden, _, kept = self._hidden(tokens, window, keeps=True)
        first = jnp.zeros_like(lengths)
        if self.config.masks_documents:
            first = document_starts(tokens, lengths - 1, self.separator)
        last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
        return self._logits(last, self._output_table())[:, 0], (kept, first)

    def extend(
        self, tokens: jax.Array, places: jax.Array, past: tuple[Any, jax.Array], window: int
    ) -> tuple[jax.Array, tuple[Any, jax.Array]]:
        """Logits after one more token of each row, int32 [batch], at its place; and the past."""
        earlier, first = past
        at = Place(places, first)
        hidden, _, kept = self._hidden(tokens[:, None], window, keeps=True, earlier=earlier, at=at)
        return self._logits(hidden, self._output_table())[:, 0], (kept, first)

    def losses(
        self,
        tokens: jax.Array,
        targets: jax.Array,
        window: int = 0,
        dropout_key: jax.Array | None = None,
        real: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array | float, Routing | None]:
        """Loss of each target, int32 [batch, length]; what training adds to it; the routing.

        The first is the cross entropy in nats, float32 [batch, length]; the second the balance loss
        of the experts times its factor; the third that of the tokens that `real` marks, and None
        without experts. The logits of `config.loss_chunk` tokens a row exist at one time, in the
        backward pass too. Training gives a dropout key.
        """
        hidden, routing, _ = self._hidden(tokens, window, dropout_key, real)
        factor = self.config.experts.balance
        added = factor * balance_loss(routing) if routing and factor else 0.0
        targets = constrained(targets, ("batch", "tokens"), self.execution)
        chunk = self.config.loss_chunk

        # Out of the loop over chunks, each of which would gather it again.
        table = self._output_table()

        def of_chunk(
            hidden: jax.Array, targets: jax.Array, table: jax.Array, rows: str | None = None
        ) -> jax.Array:
            return plain_losses(self._logits(hidden, table, rows), targets, self.execution)

        batch, length = targets.shape
        if not chunk or chunk == length:
            return of_chunk(hidden, targets, table, "batch"), added, routing
        # A chunk has tokens of each part of the text, so that no token leaves its device.
        parts = parts_of("tokens", length, self.execution)
        # A table for each part of the batch, which sums up its own gradient over the chunks: of one
        # table for all, devices would exchange the gradient of every chunk.
        shards = parts_of("batch", batch, self.execution)
        axes = ("vocab", None) if self.config.ties_embedding else (None, "vocab")
        tables = jnp.broadcast_to(table, (shards, *table.shape))
        tables = constrained(tables, ("batch", *axes), self.execution)
        shape = (shards, batch // shards, parts, length // chunk, chunk // parts)

        def chunks(array: jax.Array) -> jax.Array:
            split = array.reshape(*shape, *array.shape[2:])
            split = jnp.moveaxis(split, 3, 0).reshape(-1, *shape[:2], chunk, *array.shape[2:])
            # Told nothing, XLA may spread chunks over devices, and exchange them for each.
            axes = (None, "batch", None, "tokens", *[None] * (array.ndim - 2))
            return constrained(split, axes, self.execution)

        again: Any = jax.checkpoint(of_chunk)
        if shards > 1:
            each = jax.vmap(again, spmd_axis_name=RULES["batch"])
        else:
            each = lambda *one: again(*(array[0] for array in one))  # noqa: E731
        losses = jax.lax.map(lambda part: each(*part, tables), (chunks(hidden), chunks(targets)))
        losses = losses.reshape(-1, batch, parts, chunk // parts)
        return jnp.moveaxis(losses, 0, 2).reshape(batch, length), added, routing

    def _hidden(
        self,
        tokens: jax.Array,
        window: int,
        dropout_key: jax.Array | None = None,
        real: jax.Array | None = None,
        *,
        keeps: bool = False,
        earlier: Keys | None = None,
        at: Place | None = None,
    ) -> tuple[jax.Array, Routing | None, Keys | None]:
        """Input of the output layer, [batch, length, width], and the layers' routing.

        `keeps` also returns the keys and values of all layers. With those of `earlier` tokens,
        `tokens` are one more of each row, which stands `at` a place.
        """
        config, execution = self.config, self.execution
        dtype = arithmetic_of(execution).activations
        tokens = constrained(tokens, ("batch", None), execution)
        with jax.named_scope("embedding"):
            # Whole in width: a lookup in a table that is split by width would gather twice.
            # Whole in text: a device looks up all tokens in its part of the vocabulary, and
            # results are summed. Told to split the text at once, XLA gathers the vocabulary.
            table = gathered(self.embedding[...], ("vocab", "embed"), execution, dtype)
            table = table.astype(dtype)
            # Its gradient goes where the table's lies: XLA of jax 0.12, told nothing, gathers it
            # whole along `fsdp`.
            hidden = moved(table[tokens], WHOLE, BY_WIDTH, execution)
            hidden = moved(hidden, BETWEEN, WHOLE, execution)
        # A separator begins its document.
        documents = jnp.cumsum(tokens == self.separator, axis=1) if config.masks_documents else None
        weights = _params(self.blocks) | (_params(self.adapters) if config.lora.rank else {})
        if dropout_key is not None and config.lora.rank and config.lora.dropout_rate:
            weights["dropout_key"] = jax.random.split(dropout_key, config.num_layers)
        windows = config.windows or (window,)
        # Layers of one turn have different windows, known when the program is compiled.
        turns = jax.tree.map(
            lambda array: array.reshape(-1, len(windows), *array.shape[1:]), weights
        )

        def turn(hidden: jax.Array, layers: tuple[Tree, Keys | None]) -> tuple[jax.Array, Any]:
            made = []
            for place, seen in enumerate(windows):
                one, past = jax.tree.map(lambda array, place=place: array[place], layers)
                hidden, routing, keys = block(
                    hidden, one, documents, real, seen, config, execution, past, at
                )
                made.append((routing, keys if keeps else None))
            return hidden, jax.tree.map(lambda *layers: jnp.stack(layers), *made)

        if config.remat == "full":
            turn = jax.checkpoint(turn)
        elif config.remat == "products":
            kept = jax.checkpoint_policies.save_only_these_names(*PRODUCTS)
            turn = jax.checkpoint(turn, policy=kept)
        hidden, (routing, kept) = jax.lax.scan(turn, hidden, (turns, earlier))
        routing = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), routing)
        hidden = normalized(hidden, self.norm[...], config.norm_epsilon)
        return moved(hidden, WHOLE, BETWEEN, execution), routing, kept

    def _output_table(self) -> jax.Array:
        """Weights of the output layer, whole in width."""
        name = "embedding" if self.config.ties_embedding else "classifier"
        axes = self.config.logical_axes()[name]
        dtype = arithmetic_of(self.execution).products
        with jax.named_scope("classifier"):
            return gathered(getattr(self, name)[...], axes, self.execution, dtype)

    def _logits(self, hidden: jax.Array, table: jax.Array, rows: str | None = "batch") -> jax.Array:
        arithmetic, float32 = arithmetic_of(self.execution), jnp.dtype("float32")
        kernel_axes = "oi" if self.config.ties_embedding else "io"
        with jax.named_scope("classifier"):
            logits: jax.Array = linear(hidden, table, arithmetic, kernel_axes, float32)
            return constrained(logits, (rows, "tokens", "vocab"), self.execution)


def block(
    hidden: jax.Array,
    weights: Tree,
    documents: jax.Array | None,
    real: jax.Array | None,
    window: int,
    config: Any,
    execution: Execution,
    earlier: Keys | None = None,
    at: Place | None = None,
) -> tuple[jax.Array, Routing | None, Keys]:
    """One layer: attention and MLP, each added to the residual stream [batch, length, width].

    `weights` are those of the layer, by their names in `Blocks` and `Adapters`. Also returns the
    routing of its experts, None without any, and its keys and values. With those of `earlier`
    tokens, `hidden` is of one more token of each row, which stands `at` a place.
    """
    product = Products(weights, config, execution)
    with jax.named_scope("attention"):
        normed = normalized(hidden, weights["attention_norm"], config.norm_epsilon)
        normed = moved(normed, WHOLE, BETWEEN, execution)
        mixed, keys = _attention(normed, product, documents, window, earlier, at)
        hidden = hidden + moved(product(mixed, "output"), BETWEEN, WHOLE, execution)
    with jax.named_scope("mlp"):
        normed = normalized(hidden, weights["mlp_norm"], config.norm_epsilon)
        normed = moved(normed, WHOLE, BETWEEN, execution)
        if config.experts.count:
            result, routing = routed_mlp(normed, weights, real, config, execution)
        else:
            middle = jax.nn.silu(product(normed, "gate")) * product(normed, "up")
            result = product(constrained(middle, COLUMNS, execution), "down")
            routing = None
        return hidden + moved(result, BETWEEN, WHOLE, execution), routing, keys


class Products:
    """Products of one layer, each with its bias and adapter where it has them."""

    def __init__(self, weights: Tree, config: Any, execution: Execution):
        self.weights, self.config, self.execution = weights, config, execution
        self.arithmetic, self.axes = arithmetic_of(execution), config.logical_axes()
        self.narrow: Tree = {}

    def __call__(self, inputs: jax.Array, name: str) -> jax.Array:
        """Product of [batch, length, in] and the layer's `name`: [batch, length, out]."""
        result: jax.Array = linear(inputs, self._whole("blocks", name), self.arithmetic)
        if f"{name}_bias" in self.weights:
            result = result + self.weights[f"{name}_bias"].astype(result.dtype)
        if f"{name}_out" in self.weights:
            result = result + self._adapted(inputs, name).astype(result.dtype)
        return checkpoint_name(result, name)

    def _whole(self, part: str, name: str) -> jax.Array:
        # Gathered over `fsdp` here, inside the loop: one layer's weights are whole at a time.
        _, *axes = self.axes[f"{part}/{name}"]
        weights, dtype = self.weights[name], self.arithmetic.products
        return gathered(weights, tuple(axes), self.execution, dtype)

    def _adapted(self, inputs: jax.Array, name: str) -> jax.Array:
        lora, target = self.config.lora, target_of(name)
        if target not in self.narrow:
            dropped = inputs
            if "dropout_key" in self.weights:
                number = sorted(lora.targets).index(target)
                key = jax.random.fold_in(self.weights["dropout_key"], number)
                dropped = Dropout(key)(inputs, lora.dropout_rate)
            first = self._whole("adapters", f"{target}_in")
            narrow: jax.Array = linear(dropped, first, self.arithmetic)
            self.narrow[target] = constrained(narrow, WHOLE, self.execution)
        last = self._whole("adapters", f"{name}_out")
        wide: jax.Array = linear(self.narrow[target], last, self.arithmetic)
        return lora.alpha / lora.rank * wide


def _attention(
    normed: jax.Array,
    product: Products,
    documents: jax.Array | None,
    window: int,
    earlier: Keys | None,
    at: Place | None,
) -> tuple[jax.Array, Keys]:
    """Attended values of all heads, [batch, length, heads * head width], and the layer's keys."""
    config, execution = product.config, product.execution

    def heads(array: jax.Array) -> jax.Array:
        return array.reshape(*array.shape[:2], -1, config.head_width)

    query, key, value = (heads(product(normed, name)) for name in ("query", "key", "value"))
    if config.normalizes_queries:
        query = normalized(query, product.weights["query_norm"], config.norm_epsilon)
        key = normalized(key, product.weights["key_norm"], config.norm_epsilon)
    rates, scale = config.rotary.rates(config.head_width), config.rotary.sharpening
    places = None if at is None else at.place[:, None]
    query, key = (rotated(x, rates, scale, places) for x in (query, key))
    # By the heads of keys, also the queries: a device has whole groups.
    query, key, value = (
        constrained(
            x.astype(execution.compute_dtype), ("batch", "tokens", "heads", None), execution
        )
        for x in (query, key, value)
    )
    sinks = product.weights.get("sinks")
    keys = Keys(key, value)
    if earlier is not None and at is not None:
        mixed, keys = next_attention(query, key, value, earlier, at, window, sinks)
    else:
        mixed = causal_attention(query, key, value, documents, window, execution, sinks)
    mixed = constrained(mixed.reshape(*mixed.shape[:2], -1), COLUMNS, execution)
    return checkpoint_name(mixed, "attended"), keys


def normalized(hidden: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    """RMSNorm in float32, in the dtype of `hidden`."""
    wide = hidden.astype(jnp.float32)
    root = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + epsilon)
    return (wide * root * scale).astype(hidden.dtype)


def _normal(config: Any, shape: tuple[int, ...], rngs: nnx.Rngs, std: float) -> nnx.Param:
    drawn = jax.random.normal(rngs.params(), shape, jnp.float32)
    return nnx.Param((std * drawn).astype(_dtype(config)))


def _constant(config: Any, value: float, shape: tuple[int, ...]) -> nnx.Param:
    return nnx.Param(jnp.full(shape, value, _dtype(config)))


def _dtype(config: Any) -> Any:
    return jnp.dtype(config.param_dtype)


def _params(module: nnx.Module) -> Tree:
    return {n: value[...] for n, value in vars(module).items() if isinstance(value, nnx.Param)}
