"""Parts of a decoder's train step, from its sizes and its arrangement: nothing is compiled.

Each part is in seconds at the data sheets' rates; `step.py` fits what a chip makes of them.

Source: Korthikanti et al. 2022 (arXiv 2205.05198) for the bytes of activations and the exchanges of
a split text; Dao et al. 2022 (arXiv 2205.14135) for attention whose backward pass takes
2.5 times the FLOPs of the forward pass.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.plan.hardware.interconnect import Exchange, exchange_seconds
from dawnjax.plan.hardware.systems import System
from dawnjax.plan.steps.efficiency import peak_flops

if TYPE_CHECKING:
    from dawnjax.models.configs.llama import Llama

PRODUCTS = {"bfloat16": "products", "float8": "products in 8 bits", "float4": "products in 4 bits"}
ATTENTION, MEMORY, STEP = "attention", "memory", "step itself"
WEIGHTS, LAYERS = "weights and gradients", "exchanges within layers"
TERMS = (*PRODUCTS.values(), ATTENTION, MEMORY, WEIGHTS, LAYERS, STEP)

STEP_SECONDS = 0.04
"""Unit of what a step costs beside its work: starts of kernels, and waiting for each other."""

RECOMPUTED = {
    "none": (),
    "products": ("output", "attention"),
    "full": ("query", "key", "value", "output", "gate", "up", "attention"),
}
"""What the backward pass computes again, by `model.remat`. Nothing reads the result of a layer's
last product again."""

_MLP = ("gate", "up", "down")

ACTIVATIONS = 24, 10
"""Numbers of 2 bytes that both passes of a layer read and write for each token: times the width,
and times the MLP's."""

SCORE_BYTES = 12, 18
"""Bytes of a score that the forward and the backward pass read and write: 4 for what a product
makes or a softmax reads, 2 for what a product reads."""

BLOCK = 64
"""Fewest queries that `models.causal_attention` multiplies at once."""

WEIGHT_BYTES = {"bfloat16": 2.0, "float8": 1.0, "float4": 0.5}
"""Bytes of a weight that a product reads."""

UPDATE_BYTES = 12
"""Read and written by an update for each parameter in float32, besides the optimizer's moments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrangement:
    """A batch of texts, and weights, on the devices of a system.

    Attributes:
      slices: Systems side by side. The network between them is not counted.
      rows: Texts of the global batch.
      mesh: With `data` stated.
      recomputed: One of `RECOMPUTED`.
      products: Dtype of the products' operands, of `PRODUCTS`.
      gathers: How often a step gathers the weights.
      gradient_bytes: Bytes of one gradient value exchanged between devices.
      spans_texts: Whether weights and their state are split over `mesh.context` too.
      is_fused: Whether attention is one kernel, whose scores never lie in memory.
      capacity: Places of an expert over the mean of the tokens that choose it, where tokens beyond
        them are dropped and products with masks sort them; 0 where no token is dropped.
      is_expanded: Whether each expert multiplies all rows, as XLA expands `ragged_dot` on a GPU.
      moment_bytes: Bytes that the optimizer keeps of a trained parameter; Adam has two means.
    """

    system: System
    slices: int = 1
    rows: int
    sequence_length: int
    vocabulary_size: int
    mesh: MeshShape
    recomputed: tuple[str, ...] = ()
    products: str = "bfloat16"
    gathers: int = 2
    gradient_bytes: int = 4
    spans_texts: bool = False
    is_fused: bool = True
    capacity: float = 0.0
    is_expanded: bool = False
    moment_bytes: float = 8.0

    @property
    def tokens(self) -> float:
        """Tokens of the global batch per device, shared evenly."""
        return self.rows * self.sequence_length / (self.system.num_devices * self.slices)


def layer_products(model: "Llama", arrangement: Arrangement) -> dict[str, float]:
    """Multiply-adds of a token in a layer's products, by name, of the chosen experts alone."""
    queries, keys = (n * model.head_width for n in (model.num_heads, model.num_kv_heads))
    mlp = model.width * model.mlp_width
    experts = _experts(model, arrangement)
    mlp *= experts
    # A mask over all places of a row gives experts its tokens, and another takes them back.
    places = experts * arrangement.sequence_length if arrangement.capacity else 0.0
    return {
        "query": model.width * queries,
        "key": model.width * keys,
        "value": model.width * keys,
        "output": queries * model.width,
        "gate": mlp,
        "up": mlp,
        "down": mlp,
        "masks": 2 * places * model.width,
    }


def _experts(model: "Llama", arrangement: Arrangement) -> float:
    """MLPs that compute a token."""
    if not model.experts.count:
        return 1.0
    expanded = model.experts.count if arrangement.is_expanded else 1.0
    return model.experts.chosen * (arrangement.capacity or expanded)


def layer_parameters(model: "Llama") -> tuple[int, int]:
    """Parameters of a layer outside its experts, and of all its experts; norms are left out."""
    queries, keys = (n * model.head_width for n in (model.num_heads, model.num_kv_heads))
    attention = 2 * model.width * (queries + keys)
    mlp = 3 * model.width * model.mlp_width
    if model.experts.count:
        return attention + model.width * model.experts.count, model.experts.count * mlp
    return attention + mlp, 0


def parameters(model: "Llama", vocabulary_size: int) -> int:
    """Parameters of a decoder but for norms, biases and adapters."""
    tables = 1 if model.ties_embedding else 2
    return model.num_layers * sum(layer_parameters(model)) + tables * model.width * vocabulary_size


def held_parameters(model: "Llama", arrangement: Arrangement) -> tuple[float, float]:
    """Parameters of a device before `fsdp` splits them: outside of the experts, and of these."""
    mesh = arrangement.mesh
    dense, routed = layer_parameters(model)
    tables = 1 if model.ties_embedding else 2
    outside = model.num_layers * dense + tables * model.width * arrangement.vocabulary_size
    return outside / mesh.model, model.num_layers * routed / (mesh.model * mesh.expert)


def product_flops(model: "Llama", arrangement: Arrangement) -> float:
    """FLOPs of a device's matrix products in a step, those computed again included."""
    layer = layer_products(model, arrangement)
    table = model.width * arrangement.vocabulary_size
    forward = model.num_layers * sum(layer.values()) + table
    # Two products of each in the backward pass; frozen weights need no gradient.
    passes = 2 if model.lora.rank else 3
    again = model.num_layers * sum(layer.get(name, 0.0) for name in _recomputed(model, arrangement))
    # Logits of a chunk exist in one pass at a time.
    if 0 < model.loss_chunk < arrangement.sequence_length:
        again += table
    return 2 * arrangement.tokens * (passes * forward + again)


def _recomputed(model: "Llama", arrangement: Arrangement) -> tuple[str, ...]:
    names = arrangement.recomputed
    if names and model.experts.count and not arrangement.capacity:
        # No name keeps an expert's products, and the router's gradient reads the last of them.
        return (*(name for name in names if name not in _MLP), *_MLP)
    return names


def seen_pairs(model: "Llama", arrangement: Arrangement) -> float:
    """Keys that a query is multiplied with, in the mean of the layers."""
    length = arrangement.sequence_length
    windows = [min(window or length, length) for window in model.windows or (0,)]
    if arrangement.is_fused:  # the first tokens of a window see fewer
        seen = [window - window * window / (2 * length) for window in windows]
    elif arrangement.mesh.context > 1:
        seen = [float(length) for _ in windows]
    else:
        seen = [_pairs_of_blocks(window, length) for window in windows]
    return sum(seen) / len(seen)


def _pairs_of_blocks(window: int, length: int) -> float:
    """As `models.causal_attention` multiplies: blocks of a window with the one before, or four."""
    sizes = (max(BLOCK, window - 1), max(BLOCK, window))
    block = next((size for size in sizes if length % size == 0), length)
    if length // block > 4:
        return 2.0 * block
    return length * (1 + 2 + 3 + 4) / 16


def attention_flops(model: "Llama", arrangement: Arrangement) -> float:
    """FLOPs of a device's attention in a step; a token attends to those before it alone."""
    pairs = seen_pairs(model, arrangement) * model.num_heads * model.num_layers
    # A fused kernel computes the scores anew in its backward pass.
    passes = 3.5 if arrangement.is_fused else 3
    passes += "attention" in arrangement.recomputed
    return 4 * pairs * model.head_width * arrangement.tokens * passes


def score_bytes(model: "Llama", arrangement: Arrangement) -> float:
    """Bytes of scores that a device reads and writes in a step; none of a fused kernel."""
    if arrangement.is_fused:
        return 0.0
    forward, backward = SCORE_BYTES
    again = forward * ("attention" in arrangement.recomputed)
    pairs = seen_pairs(model, arrangement) * model.num_heads * model.num_layers
    return pairs * arrangement.tokens * (forward + backward + again)


def memory_bytes(model: "Llama", arrangement: Arrangement) -> float:
    """Bytes that a device reads and writes in a step: activations, weights and the update."""
    by_width, by_mlp = ACTIVATIONS
    middle = model.mlp_width * _experts(model, arrangement)
    numbers = model.num_layers * (by_width * model.width + by_mlp * middle)
    count = sum(held_parameters(model, arrangement))
    mesh = arrangement.mesh
    shards = mesh.fsdp * (mesh.context if arrangement.spans_texts else 1)
    each = UPDATE_BYTES + 2 * arrangement.moment_bytes
    update = 0.0 if model.lora.rank else each * count / shards
    passes = 2 if model.lora.rank else 3
    weights = passes * WEIGHT_BYTES[arrangement.products] * count
    activations = 2 * numbers * arrangement.tokens + score_bytes(model, arrangement)
    return activations + weights + update


def exchanges(model: "Llama", arrangement: Arrangement) -> Iterator[tuple[str, Exchange]]:
    """Collectives of a step on a device, each with its term."""
    mesh, layers = arrangement.mesh, model.num_layers
    outside, routed = held_parameters(model, arrangement)
    count = outside + routed
    trained = 0.0 if model.lora.rank else count
    shards, stride = mesh.fsdp, mesh.expert * mesh.context * mesh.model
    if arrangement.spans_texts:
        shards, stride = shards * mesh.context, mesh.expert * mesh.model
    # A slice gathers within itself.
    group = min(shards, arrangement.system.num_devices)
    gathers = arrangement.gathers
    yield WEIGHTS, Exchange("all-gather", group, gathers * 2 * count, gathers * layers, stride)
    gradients = arrangement.gradient_bytes * trained
    yield WEIGHTS, Exchange("reduce-scatter", group, gradients, layers, stride)
    # Devices that hold the same weights sum their gradients.
    shard = gradients / shards
    beside = mesh.fsdp * mesh.expert * mesh.context * mesh.model
    yield WEIGHTS, Exchange("all-reduce", mesh.data, shard, 1, beside)
    if not arrangement.spans_texts:
        yield WEIGHTS, Exchange("all-reduce", mesh.context, shard, layers, mesh.model)
    dense = arrangement.gradient_bytes * outside / shards if trained else 0.0
    beside = mesh.context * mesh.model
    yield WEIGHTS, Exchange("all-reduce", mesh.expert, dense, layers, beside)
    # Keys and values in both passes, and their gradients.
    keys = 2 * model.num_kv_heads * model.head_width * 2 * arrangement.tokens
    text = 3 * layers * keys * mesh.context
    yield LAYERS, Exchange("all-gather", mesh.context, text, 3 * layers, mesh.model)
    # Before and after each half of a layer, in both passes; what is computed again is gathered
    # again, and attention summed. Experts sum up whole rows, which is a scatter and a gather.
    hidden = layers * model.width * 2 * arrangement.tokens
    again = "output" in arrangement.recomputed
    times = 8 + 3 * again + (2 if model.experts.count else 0)
    text = times * hidden * mesh.model
    yield LAYERS, Exchange("all-gather", mesh.model, text, times * layers, 1)
    times = 4 + again
    beside = mesh.context * mesh.model
    rows = times * hidden * mesh.expert
    yield LAYERS, Exchange("all-gather", mesh.expert, rows, times * layers, beside)


def terms(model: "Llama", arrangement: Arrangement) -> dict[str, float]:
    """Seconds of each of `TERMS` at the data sheets' rates.

    Raises:
      RunError: A peak is not published.
    """
    device = arrangement.system.accelerator.device
    found = dict.fromkeys(TERMS, 0.0)
    products = product_flops(model, arrangement)
    found[PRODUCTS[arrangement.products]] = products / peak_flops(device, arrangement.products)
    found[ATTENTION] = attention_flops(model, arrangement) / peak_flops(device, "bfloat16")
    found[MEMORY] = memory_bytes(model, arrangement) / device.memory_bytes_per_second
    for name, exchange in exchanges(model, arrangement):
        found[name] += exchange_seconds(exchange, arrangement.system)
    found[STEP] = STEP_SECONDS
    return found


def model_flops(model: "Llama", arrangement: Arrangement) -> float:
    """Model FLOPs of a device's step, as MFU counts them: nothing twice, attention in blocks."""
    mesh = dataclasses.replace(arrangement.mesh, context=1)
    plain = dataclasses.replace(
        arrangement, recomputed=(), is_fused=False, is_expanded=False, mesh=mesh
    )
    once = dataclasses.replace(model, loss_chunk=0)
    return product_flops(once, plain) + attention_flops(once, plain)
