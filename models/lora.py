"""Low-rank adapters: small products beside frozen ones, which alone are trained.

Source: Hu et al. 2021 (arXiv 2106.09685), section 4.1.
"""

import dataclasses
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.limits import FractionBelowOne, Limit, NonNegative, Positive
from dawnjax.models.sharding import Axes

TARGETS = {
    "qkv": ("query", "key", "value"),
    "output": ("output",),
    "gate": ("gate",),
    "up": ("up",),
    "down": ("down",),
}
"""Products that an adapter stands beside. Those of `qkv` share the factor that they begin with, as
in a checkpoint whose query, key and value are one matrix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lora:
    """Adapters of rank `rank`: W x becomes W x + alpha / rank * B A x.

    Attributes:
      rank: Rows of A; 0 for no adapters.
      alpha: The adapter's weight times its rank.
      targets: Products with an adapter.
      dropout_rate: Of the adapters' inputs in training.
    """

    rank: NonNegative[int] = 0
    alpha: Positive[float] = 32.0
    targets: Annotated[
        tuple[str, ...],
        Limit(
            lambda values: bool(values) and set(values) <= set(TARGETS),
            f"name one or more of {', '.join(TARGETS)}",
        ),
    ] = ("qkv", "output")
    dropout_rate: FractionBelowOne = 0.0


ADAPTER_AXES: dict[str, Axes] = {
    "qkv_in": ("layers", "embed", "rank"),
    "query_out": ("layers", "rank", "heads"),
    "key_out": ("layers", "rank", "kv_heads"),
    "value_out": ("layers", "rank", "kv_heads"),
    "output_in": ("layers", "heads", "rank"),
    "output_out": ("layers", "rank", "embed"),
    "gate_in": ("layers", "embed", "rank"),
    "gate_out": ("layers", "rank", "mlp"),
    "up_in": ("layers", "embed", "rank"),
    "up_out": ("layers", "rank", "mlp"),
    "down_in": ("layers", "mlp", "rank"),
    "down_out": ("layers", "rank", "embed"),
}


class Adapters(nnx.Module):
    """Factors of all layers' adapters: A is `NAME_in` [layers, in, rank], B `NAME_out`."""

    def __init__(self, config: Any, rngs: nnx.Rngs):
        queries, keys = (n * config.head_width for n in (config.num_heads, config.num_kv_heads))
        width, middle = config.width, config.mlp_width
        inputs = {"qkv": width, "output": queries, "gate": width, "up": width, "down": middle}
        outputs = {"query": queries, "key": keys, "value": keys, "output": width}
        outputs |= {"gate": middle, "up": middle, "down": width}
        for target in config.lora.targets:
            shape = (config.num_layers, inputs[target], config.lora.rank)
            bound = 1 / math.sqrt(inputs[target])
            first = jax.random.uniform(rngs.params(), shape, jnp.float32, -bound, bound)
            setattr(self, f"{target}_in", nnx.Param(first))
            for name in TARGETS[target]:
                # Zero: the adapted network begins as the frozen one.
                shape = (config.num_layers, config.lora.rank, outputs[name])
                setattr(self, f"{name}_out", nnx.Param(jnp.zeros(shape, jnp.float32)))


def target_of(product: str) -> str:
    return next(target for target, products in TARGETS.items() if product in products)
