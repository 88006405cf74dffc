"""Neural collaborative filtering: GMF, MLP, and NeuMF, which joins them.

Source: X. He et al., "Neural Collaborative Filtering" (WWW 2017, arXiv 1708.05031): equations 8 and
9 for GMF, 10 for the MLP, 12 for NeuMF. Initial values are those of the paper's code (hexiangnan/
neural_collaborative_filtering, `NeuMF.py`): embeddings normal with standard deviation 0.01, hidden
layers Glorot-uniform, the last layer LeCun-uniform, biases zero (PyTorch's uniform ones in MLPerf's
reference, mlcommons/training, v0.5, `neumf.py`).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.configs.neumf import NeuMF
from dawnjax.models.convolution import Linear
from dawnjax.models.execution import Execution

EMBEDDING_STD = 0.01


class NeuMFModule(nnx.Module):
    """Embeddings, the two branches and the layer that joins them."""

    def __init__(
        self, config: NeuMF, num_users: int, num_items: int, execution: Execution, rngs: nnx.Rngs
    ):
        self.config = config

        def embedding(rows: int, width: int) -> nnx.Param:
            values = jax.random.normal(rngs.params(), (rows, width), jnp.float32)
            return nnx.Param(EMBEDDING_STD * values)

        def layer(in_width: int, out_width: int, limit: float, use_bias: bool = True) -> Linear:
            return Linear(
                in_width,
                out_width,
                use_bias=use_bias,
                kernel_initializer=_uniform(limit),
                execution=execution,
                rngs=rngs,
            )

        joined = config.gmf_width
        if config.gmf_width:
            self.gmf_users = embedding(num_users, config.gmf_width)
            self.gmf_items = embedding(num_items, config.gmf_width)
        if config.layer_widths:
            first, *widths = config.layer_widths
            joined += widths[-1]
            self.mlp_users = embedding(num_users, first // 2)
            self.mlp_items = embedding(num_items, first // 2)
            # The first layer's kernel in two halves: a user's is applied once for all its items.
            limit = _glorot(first, widths[0])
            self.user_layer = layer(first // 2, widths[0], limit)
            self.item_layer = layer(first // 2, widths[0], limit, use_bias=False)
            self.layers = nnx.List(
                layer(before, after, _glorot(before, after))
                for before, after in zip(widths, widths[1:], strict=False)
            )
        # LeCun-uniform
        self.last = layer(joined, 1, math.sqrt(3 / joined))

    def __call__(self, users: jax.Array, items: jax.Array) -> jax.Array:
        """Logits float32 [batch, items] of users [batch] with their items [batch, items]."""
        parts = []
        if self.config.gmf_width:
            parts.append(self.gmf_users[...][users][:, None] * self.gmf_items[...][items])
        if self.config.layer_widths:
            hidden = self.user_layer(self.mlp_users[...][users])[:, None]
            hidden = jax.nn.relu(hidden + self.item_layer(self.mlp_items[...][items]))
            for layer in self.layers:
                hidden = jax.nn.relu(layer(hidden))
            parts.append(hidden)
        return self.last(jnp.concatenate(parts, axis=-1))[..., 0]


def _glorot(fan_in: int, fan_out: int) -> float:
    return math.sqrt(6 / (fan_in + fan_out))


def _uniform(limit: float) -> Any:
    def make(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return make
