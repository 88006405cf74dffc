"""Decoders of the Llama family: RMSNorm, SwiGLU, grouped-query attention, rotary positions.

All layers lie in one stack, [layers, ...] of each weight, and run under one `lax.scan`. Each weight
names its axes in `logical_axes`; `sharding.RULES` decides where they lie.

Source: Touvron et al. 2023 (arXiv 2302.13971); "The Llama 3 Herd of Models" (arXiv 2407.21783),
table 3, for the sizes; Ainslie et al. 2023 (arXiv 2305.13245) for grouped queries.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from dawnjax.limits import NonNegative, OneOrMore, Positive, require
from dawnjax.models.arithmetic import arithmetic_of, linear
from dawnjax.models.causal_attention import causal_attention
from dawnjax.models.cross_entropy import token_losses
from dawnjax.models.execution import Execution
from dawnjax.models.rotary import Rotary, rotated
from dawnjax.models.sharding import Axes, constrained, moved

Tree = dict[str, Any]

PRODUCTS = ("query", "key", "value", "attended", "gate", "up")
"""Names of the results that remat=products keeps from the forward pass."""

TEXT: Axes = ("batch", "text", None)
WHOLE_TEXT: Axes = ("batch", None, None)
COLUMNS: Axes = ("batch", None, "mlp")
"""Of activations [batch, length, ...]: between the halves of a block, before a half, and within."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama:
    """Size and parts of a decoder.

    Attributes:
      num_layers: Blocks of attention and MLP.
      width: Width of the residual stream.
      num_heads: Query heads.
      num_kv_heads: Key and value heads; each serves as many query heads as any other.
      head_width: Channels of a head.
      mlp_width: Width of an MLP's middle.
      rotary: Rates of the rotary positions.
      norm_epsilon: Added to the mean square in a norm.
      ties_embedding: The output layer is the embedding's transpose.
      masks_documents: A token attends to its own document alone.
      initial_std: Standard deviation of all matrices at first.
      remat: What the backward pass computes again: `full` keeps only the input of each layer,
        `products` keeps the results of its matrix products too.
      loss_chunk: Tokens of each row whose logits exist at one time; 0 makes all at once.
    """

    TAG: ClassVar[str] = "llama"
    num_layers: OneOrMore[int] = 32
    width: OneOrMore[int] = 4096
    num_heads: OneOrMore[int] = 32
    num_kv_heads: OneOrMore[int] = 8
    head_width: OneOrMore[int] = 128
    mlp_width: OneOrMore[int] = 14_336
    rotary: Rotary = Rotary()
    norm_epsilon: Positive[float] = 1e-5
    ties_embedding: bool = False
    masks_documents: bool = False
    initial_std: Positive[float] = 0.02
    remat: Literal["none", "full", "products"] = "none"
    loss_chunk: NonNegative[int] = 0

    def check_together(self, prefix: str) -> None:
        require(
            self.num_heads % self.num_kv_heads == 0,
            f"{prefix}num_heads",
            self.num_heads,
            f"be a multiple of {prefix}num_kv_heads={self.num_kv_heads}",
        )
        rule = "be even: channels turn in pairs"
        require(self.head_width % 2 == 0, f"{prefix}head_width", self.head_width, rule)

    def split_sizes(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """Fields that an axis of the mesh must divide, each with its size."""
        names = ("num_heads", "num_kv_heads", "mlp_width")
        return {"model": tuple((name, getattr(self, name)) for name in names)}

    def logical_axes(self) -> dict[str, Axes]:
        """Named axes of each parameter, by the end of its path."""
        return {
            "embedding": ("vocab", "embed"),
            "classifier": ("embed", "vocab"),
            "norm": (None,),
            "blocks/attention_norm": ("layers", None),
            "blocks/mlp_norm": ("layers", None),
            "blocks/query": ("layers", "embed", "heads"),
            "blocks/key": ("layers", "embed", "kv_heads"),
            "blocks/value": ("layers", "embed", "kv_heads"),
            "blocks/output": ("layers", "heads", "embed"),
            "blocks/gate": ("layers", "embed", "mlp"),
            "blocks/up": ("layers", "embed", "mlp"),
            "blocks/down": ("layers", "mlp", "embed"),
        }

    def build(
        self,
        *,
        vocabulary_size: int,
        sequence_length: int,
        separator: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ) -> "LlamaModule":
        if self.loss_chunk:
            rule = f"divide the {sequence_length} tokens of a row"
            is_whole = sequence_length % self.loss_chunk == 0
            require(is_whole, "model.loss_chunk", self.loss_chunk, rule)
        return LlamaModule(self, vocabulary_size, separator, execution, rngs)


class Blocks(nnx.Module):
    """Weights of all layers, stacked: [layers, in, out], and norms [layers, width]."""

    def __init__(self, config: Llama, rngs: nnx.Rngs):
        layers, width = config.num_layers, config.width
        queries = config.num_heads * config.head_width
        keys = config.num_kv_heads * config.head_width

        def kernel(inputs: int, outputs: int) -> nnx.Param:
            return _normal(config, (layers, inputs, outputs), rngs)

        self.attention_norm = nnx.Param(jnp.ones((layers, width), jnp.float32))
        self.query, self.output = kernel(width, queries), kernel(queries, width)
        self.key, self.value = kernel(width, keys), kernel(width, keys)
        self.mlp_norm = nnx.Param(jnp.ones((layers, width), jnp.float32))
        self.gate, self.up = kernel(width, config.mlp_width), kernel(width, config.mlp_width)
        self.down = kernel(config.mlp_width, width)


class LlamaModule(nnx.Module):
    """Embedding, stacked blocks, and the output layer."""

    def __init__(
        self,
        config: Llama,
        vocabulary_size: int,
        separator: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        self.config, self.separator, self.execution = config, separator, execution
        self.embedding = _normal(config, (vocabulary_size, config.width), rngs)
        self.blocks = Blocks(config, rngs)
        self.norm = nnx.Param(jnp.ones(config.width, jnp.float32))
        if not config.ties_embedding:
            self.classifier = _normal(config, (config.width, vocabulary_size), rngs)

    def __call__(self, tokens: jax.Array, window: int = 0) -> jax.Array:
        """Logits of the token after each of int32 [batch, length]: float32 [..., vocabulary].

        A token attends to `window` tokens, itself included; 0 is no limit.
        """
        return self._logits(self._hidden(tokens, window))

    def losses(self, tokens: jax.Array, targets: jax.Array, window: int = 0) -> jax.Array:
        """Cross entropy of each target, int32 [batch, length], in nats: float32 of that shape.

        The logits of `config.loss_chunk` tokens a row exist at one time, in the backward pass too.
        """
        hidden, chunk = self._hidden(tokens, window), self.config.loss_chunk
        targets = constrained(targets, ("batch", None), self.execution)
        platform = self.execution.platform

        def of_chunk(hidden: jax.Array, targets: jax.Array) -> jax.Array:
            return token_losses(self._logits(hidden), targets, 0.0, platform)

        if not chunk or chunk == targets.shape[1]:
            return of_chunk(hidden, targets)
        batch, length = targets.shape
        parts = hidden.reshape(batch, length // chunk, chunk, -1).swapaxes(0, 1)
        wanted = targets.reshape(batch, length // chunk, chunk).swapaxes(0, 1)
        again = jax.checkpoint(of_chunk)
        losses = jax.lax.map(lambda part: again(*part), (parts, wanted))
        return losses.swapaxes(0, 1).reshape(batch, length)

    def _hidden(self, tokens: jax.Array, window: int) -> jax.Array:
        """Input of the output layer, [batch, length, width]."""
        config, execution = self.config, self.execution
        dtype = arithmetic_of(execution).activations
        tokens = constrained(tokens, ("batch", None), execution)
        with jax.named_scope("embedding"):
            # Gathered over `fsdp` as a whole: a lookup in a table split by width would gather twice.
            table = constrained(self.embedding[...].astype(dtype), ("vocab", None), execution)
            hidden = constrained(table[tokens], TEXT, execution)
        # A separator begins its document.
        documents = jnp.cumsum(tokens == self.separator, axis=1) if config.masks_documents else None
        weights = {name: value[...] for name, value in vars(self.blocks).items() if _is_param(value)}

        def layer(hidden: jax.Array, weights: Tree) -> tuple[jax.Array, None]:
            return block(hidden, weights, documents, window, config, execution), None

        if config.remat == "full":
            layer = jax.checkpoint(layer)
        elif config.remat == "products":
            kept = jax.checkpoint_policies.save_only_these_names(*PRODUCTS)
            layer = jax.checkpoint(layer, policy=kept)
        hidden, _ = jax.lax.scan(layer, hidden, weights)
        hidden = normalized(hidden, self.norm[...], config.norm_epsilon)
        return moved(hidden, WHOLE_TEXT, TEXT, execution)

    def _logits(self, hidden: jax.Array) -> jax.Array:
        arithmetic, float32 = arithmetic_of(self.execution), jnp.dtype("float32")
        with jax.named_scope("classifier"):
            if self.config.ties_embedding:
                table = constrained(self.embedding[...], ("vocab", None), self.execution)
                logits = linear(hidden, table, arithmetic, "oi", float32)
            else:
                kernel = constrained(self.classifier[...], (None, "vocab"), self.execution)
                logits = linear(hidden, kernel, arithmetic, "io", float32)
            return constrained(logits, ("batch", None, "vocab"), self.execution)


def block(
    hidden: jax.Array,
    weights: Tree,
    documents: jax.Array | None,
    window: int,
    config: Llama,
    execution: Execution,
) -> jax.Array:
    """One layer: attention and MLP, each added to the residual stream [batch, length, width].

    `weights` are those of the layer, by the names of `Blocks`.
    """
    arithmetic, axes = arithmetic_of(execution), config.logical_axes()

    def product(inputs: jax.Array, name: str) -> jax.Array:
        # Gathered over `fsdp` here, inside the loop: one layer's weights are whole at a time.
        _, *named = axes[f"blocks/{name}"]
        whole = tuple(None if axis == "embed" else axis for axis in named)
        result = linear(inputs, constrained(weights[name], whole, execution), arithmetic)
        return checkpoint_name(result, name)

    def heads(array: jax.Array) -> jax.Array:
        return array.reshape(*array.shape[:2], -1, config.head_width)

    with jax.named_scope("attention"):
        normed = normalized(hidden, weights["attention_norm"], config.norm_epsilon)
        normed = moved(normed, WHOLE_TEXT, TEXT, execution)
        query, key, value = (heads(product(normed, name)) for name in ("query", "key", "value"))
        rates, scale = config.rotary.rates(config.head_width), config.rotary.sharpening
        query, key = rotated(query, rates, scale), rotated(key, rates, scale)
        query, key, value = (x.astype(execution.compute_dtype) for x in (query, key, value))
        query = constrained(query, ("batch", None, "heads", None), execution)
        key = constrained(key, ("batch", None, "kv_heads", None), execution)
        value = constrained(value, ("batch", None, "kv_heads", None), execution)
        mixed = causal_attention(query, key, value, documents, window, execution)
        mixed = constrained(mixed.reshape(*mixed.shape[:2], -1), COLUMNS, execution)
        mixed = product(checkpoint_name(mixed, "attended"), "output")
        hidden = hidden + moved(mixed, TEXT, WHOLE_TEXT, execution)
    with jax.named_scope("mlp"):
        normed = normalized(hidden, weights["mlp_norm"], config.norm_epsilon)
        normed = moved(normed, WHOLE_TEXT, TEXT, execution)
        middle = jax.nn.silu(product(normed, "gate")) * product(normed, "up")
        middle = product(constrained(middle, COLUMNS, execution), "down")
        return hidden + moved(middle, TEXT, WHOLE_TEXT, execution)


def normalized(hidden: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    """RMSNorm in float32, in the dtype of `hidden`."""
    wide = hidden.astype(jnp.float32)
    root = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + epsilon)
    return (wide * root * scale).astype(hidden.dtype)


def _normal(config: Llama, shape: tuple[int, ...], rngs: nnx.Rngs) -> nnx.Param:
    return nnx.Param(config.initial_std * jax.random.normal(rngs.params(), shape, jnp.float32))


def _is_param(value: Any) -> bool:
    return isinstance(value, nnx.Param)


LLAMA_3 = Rotary(scaling="llama3")
SIZES: dict[str, Llama] = {
    "llama_3_2_1b": Llama(
        num_layers=16,
        width=2048,
        num_heads=32,
        head_width=64,
        mlp_width=8192,
        rotary=dataclasses.replace(LLAMA_3, factor=32.0),
        ties_embedding=True,
    ),
    "llama_3_1_8b": Llama(rotary=LLAMA_3),
    "llama_3_1_70b": Llama(
        num_layers=80, width=8192, num_heads=64, mlp_width=28_672, rotary=LLAMA_3
    ),
    "llama_3_1_405b": Llama(
        num_layers=126, width=16_384, num_heads=128, mlp_width=53_248, rotary=LLAMA_3
    ),
    "llama_2_70b": Llama(
        num_layers=80,
        width=8192,
        num_heads=64,
        mlp_width=28_672,
        rotary=Rotary(base=10_000.0),
    ),
}
"""Published sizes. Parameters: 1,235,814,400; 8,030,261,248; 70,553,706,496; 405,853,388,800 with
Llama 3's vocabulary of 128,256 tokens, and 68,976,648,192 with Llama 2's of 32,000."""
