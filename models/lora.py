"""Low-rank adapters: small products beside frozen ones, which alone are trained.

Source: Hu et al. 2021 (arXiv 2106.09685), section 4.1.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.configs.lora import TARGETS


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
