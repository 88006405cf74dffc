"""A mixture of experts: each token goes through the MLPs that a router chooses for it.

No token is dropped: rows are sorted by expert, and `lax.ragged_dot` multiplies each run of rows by
its own expert's matrix. On a CPU, and by XLA on a GPU, that costs as much as every expert for every
row: model FLOPs are the model's, and never a compiled program's.

Source: Shazeer et al. 2017 (arXiv 1701.06538); Jiang et al. 2024 (arXiv 2401.04088), section 2.1,
for the softmax over the chosen; Fedus et al. 2021 (arXiv 2101.03961), equation 4, for the balance
loss; openai/gpt-oss, `gpt_oss/torch/model.py`, for the clipped activation.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from dawnjax.models.arithmetic import arithmetic_of
from dawnjax.models.configs.experts import Experts
from dawnjax.models.execution import Execution
from dawnjax.models.sharding import RULES, gathered, spec_of

CLIP, GATE_SLOPE = 7.0, 1.702


class Routing(NamedTuple):
    """Choices of a batch's router, summed over tokens and devices; of all layers, [layers, ...].

    Attributes:
      expert_tokens: int32 [experts], real tokens that go through each expert.
      expert_probability: float32 [experts], their sum of the softmax over all experts.
      dropped: int32 [], choices that no expert computed, of padding too.
    """

    expert_tokens: Any
    expert_probability: Any
    dropped: Any


def no_routing(model: Any) -> Routing | None:
    """Routing of no tokens; None for a model without experts."""
    experts = getattr(model, "experts", None)
    if not isinstance(experts, Experts) or not experts.count:
        return None
    shape = (model.num_layers, experts.count)
    return Routing(jnp.zeros(shape, jnp.int32), jnp.zeros(shape), jnp.zeros(shape[:1], jnp.int32))


def balance_loss(routing: Routing) -> Any:
    """Equation 4, the mean over layers: 1 where all experts of a layer get as many tokens."""
    tokens, probability = (array / array.sum(-1, keepdims=True) for array in routing[:2])
    return tokens.shape[-1] * (tokens * probability).sum(-1).mean()


def routed_mlp(
    inputs: jax.Array,
    weights: dict[str, jax.Array],
    real: jax.Array | None,
    config: Any,
    execution: Execution,
) -> tuple[jax.Array, Routing]:
    """Sum of the chosen experts' outputs, [batch, length, width], and the layer's routing.

    Each device routes its own tokens. Devices along `expert` hold different experts: they gather
    each other's tokens, and scatter the sums of their experts' outputs. `real`, bool [batch,
    length], marks the tokens that `Routing` counts; None marks all.
    """
    placement = execution.placement
    names = [name for name in weights if name.startswith(("router", "expert"))]
    chosen = {name: weights[name] for name in names}
    products = arithmetic_of(execution).products
    axes = {name: config.logical_axes()[f"blocks/{name}"][1:] for name in names}
    for name in names:
        if "embed" in axes[name]:
            # A router's factors are float32 in any arithmetic.
            dtype = chosen[name].dtype if name == "router" else products
            chosen[name] = gathered(chosen[name], axes[name], execution, dtype)
    if placement is None or jax.sharding.get_abstract_mesh().manual_axes:
        return _on_device(inputs, chosen, real, config, execution, {}, ())
    mesh = placement.mesh

    def whole_width(name: str) -> PartitionSpec:
        named = tuple(None if axis == "embed" else axis for axis in axes[name])
        return spec_of(named, chosen[name].shape, mesh)

    rows = spec_of(("batch", "tokens", None), inputs.shape, mesh)
    split = {name: mesh.shape[name] for name in ("expert", "model") if mesh.shape[name] > 1}
    counted = (*RULES["batch"], *RULES["tokens"])
    run = jax.shard_map(
        functools.partial(
            _on_device, config=config, execution=execution, split=split, counted=counted
        ),
        mesh=mesh,
        in_specs=(rows, {name: whole_width(name) for name in names}, PartitionSpec(*rows[:2])),
        out_specs=(rows, PartitionSpec()),
        check_vma=False,
    )
    return run(inputs, chosen, real)


def _on_device(
    inputs: jax.Array,
    weights: dict[str, jax.Array],
    real: jax.Array | None,
    config: Any,
    execution: Execution,
    split: dict[str, int],
    counted: tuple[str, ...],
) -> tuple[jax.Array, Routing]:
    """`routed_mlp` of one device's tokens and experts; `split` has its mesh axes above 1."""
    experts, arithmetic = config.experts, arithmetic_of(execution)
    tokens = inputs.reshape(-1, inputs.shape[-1])
    # By default a TPU would round the factors to bfloat16, and a GPU to TF32: tokens near a tie
    # would choose other experts.
    scores = jnp.dot(
        tokens.astype(jnp.float32),
        weights["router"].astype(jnp.float32),
        precision=jax.lax.Precision.HIGHEST,
    )
    if "router_bias" in weights:
        scores = scores + weights["router_bias"]
    best, chosen = jax.lax.top_k(scores, experts.chosen)
    shares = jax.nn.softmax(best, axis=-1)
    choices = jax.nn.one_hot(chosen, experts.count, dtype=jnp.int32).sum(1)
    probability = jax.nn.softmax(scores, axis=-1)
    if real is not None:
        is_real = real.reshape(-1, 1)
        choices, probability = choices * is_real, probability * is_real
    num_choices = chosen.size
    if "expert" in split:
        tokens, chosen, shares = (
            jax.lax.all_gather(array, "expert", tiled=True) for array in (tokens, chosen, shares)
        )
    held = weights["expert_gate"].shape[0]
    first = jax.lax.axis_index("expert") * held if "expert" in split else 0
    # Rows of experts that lie elsewhere come last, and no group has them.
    local = chosen.reshape(-1) - first
    local = jnp.where((local >= 0) & (local < held), local, held)
    order = jnp.argsort(local)
    sizes = jnp.bincount(local, length=held + 1)[:held].astype(jnp.int32)
    number = local[order]
    rows = tokens[order // experts.chosen].astype(arithmetic.products)

    def product(rows: jax.Array, name: str) -> jax.Array:
        kernel = weights[f"expert_{name}"].astype(arithmetic.products)
        result = jax.lax.ragged_dot(rows, kernel, sizes).astype(arithmetic.activations)
        if f"expert_{name}_bias" in weights:
            bias = weights[f"expert_{name}_bias"][jnp.minimum(number, held - 1)]
            if name == "down" and "model" in split:
                # The sum over `model` below takes it once.
                bias = jnp.where(jax.lax.axis_index("model") == 0, bias, 0)
            result = result + bias.astype(result.dtype)
        return result

    middle = activated(product(rows, "gate"), product(rows, "up"), experts.activation)
    outputs = product(middle.astype(arithmetic.products), "down")
    share = shares.reshape(-1)[order].astype(outputs.dtype)
    outputs = jnp.where((number < held)[:, None], outputs * share[:, None], 0)
    back = jnp.argsort(order)
    outputs = outputs[back].reshape(-1, experts.chosen, outputs.shape[-1]).sum(1)
    if "expert" in split:
        outputs = jax.lax.psum_scatter(outputs, "expert", tiled=True)
    if "model" in split:
        outputs = jax.lax.psum(outputs, "model")
    routing = Routing(choices.sum(0), probability.sum(0), num_choices - sizes.sum())
    if counted:
        routing = jax.lax.psum(routing, counted)
    return outputs.reshape(inputs.shape).astype(inputs.dtype), routing


def activated(gate: jax.Array, up: jax.Array, activation: str) -> jax.Array:
    if activation == "swiglu":
        return jax.nn.silu(gate) * up
    gate, up = jnp.minimum(gate, CLIP), jnp.clip(up, -CLIP, CLIP)
    return gate * jax.nn.sigmoid(GATE_SLOPE * gate) * (up + 1)
