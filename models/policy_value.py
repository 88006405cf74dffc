"""A residual network of two heads: a policy over the moves, and the value of the position.

Source: Silver et al. 2017, "Mastering the game of Go without human knowledge", "Neural network
architecture"; mlcommons/training v0.5,
`reinforcement/tensorflow/minigo/dual_net.py`, for the heads.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.configs.policy_value import PolicyValue
from dawnjax.models.configs.types import ImageShape
from dawnjax.models.convolution import Conv, Linear, he_normal_fan_out, uniform_fan_in
from dawnjax.models.execution import Execution
from dawnjax.models.layers import Layers


class PolicyValueModule(nnx.Module):
    def __init__(
        self,
        config: PolicyValue,
        *,
        observation_shape: ImageShape,
        num_actions: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        # Each device plays its own games, where a layer may not ask for a placement.
        execution = dataclasses.replace(execution, batch_shards=1, placement=None)
        layers = Layers(config, execution, rngs)
        height, width, planes = observation_shape
        self.stem = NormalizedConv(planes, config.width, 3, config, layers)
        self.blocks = nnx.List([Block(config, layers) for _ in range(config.num_blocks)])
        self.policy_conv = NormalizedConv(config.width, config.policy_width, 1, config, layers)
        self.value_conv = NormalizedConv(config.width, config.value_width, 1, config, layers)
        cells, hidden = height * width, config.value_hidden_width
        self.policy = _linear(cells * config.policy_width, num_actions, config, layers)
        self.value_hidden = _linear(cells * config.value_width, hidden, config, layers)
        self.value = _linear(hidden, 1, config, layers)
        self.dtype = layers.execution.compute_dtype

    def __call__(self, observations: jax.Array, *, train: bool) -> tuple[jax.Array, jax.Array]:
        """Logits, float32 [batch, actions], and values in -1 to 1, float32 [batch].

        `observations` are [batch, height, width, planes]; the value is the mover's.
        """
        hidden = jax.nn.relu(self.stem(observations.astype(self.dtype), train=train))
        for block in self.blocks:
            hidden = block(hidden, train=train)
        rows = len(observations)
        policy = jax.nn.relu(self.policy_conv(hidden, train=train)).reshape(rows, -1)
        value = jax.nn.relu(self.value_conv(hidden, train=train)).reshape(rows, -1)
        value = self.value(jax.nn.relu(self.value_hidden(value)))
        logits = self.policy(policy).astype(jnp.float32)
        return logits, jnp.tanh(value.astype(jnp.float32))[:, 0]


class Block(nnx.Module):
    def __init__(self, config: PolicyValue, layers: Layers):
        self.first = NormalizedConv(config.width, config.width, 3, config, layers)
        self.second = NormalizedConv(config.width, config.width, 3, config, layers, is_last=True)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        hidden = jax.nn.relu(self.first(images, train=train))
        return jax.nn.relu(images + self.second(hidden, train=train))


class NormalizedConv(nnx.Module):
    """A convolution with a bias, and its normalization; without the scale and shift in a head."""

    def __init__(
        self,
        in_width: int,
        out_width: int,
        size: int,
        config: PolicyValue,
        layers: Layers,
        is_last: bool = False,
    ):
        zeros = jax.nn.initializers.zeros
        drawn = he_normal_fan_out
        if config.initializer == "glorot_uniform":
            drawn = jax.nn.initializers.glorot_uniform()
        starts_at_zero = is_last and config.norm == "none"
        self.conv: Conv = layers.conv(
            in_width,
            out_width,
            size,
            kernel_initializer=zeros if starts_at_zero else drawn,
            bias_initializer=zeros,
        )
        in_trunk, norm = size > 1, None
        if config.norm == "batch":
            norm = BatchNorm(
                out_width,
                momentum=config.batch_norm_momentum,
                epsilon=config.batch_norm_epsilon,
                scale=1.0 if in_trunk else None,
                has_bias=in_trunk,
                execution=layers.execution,
            )
        self.norm = norm

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        hidden = self.conv(images)
        return hidden if self.norm is None else self.norm(hidden, train=train)


def _linear(in_width: int, out_width: int, config: PolicyValue, layers: Layers) -> Linear:
    drawn = uniform_fan_in
    if config.initializer == "glorot_uniform":
        drawn = jax.nn.initializers.glorot_uniform()
    return Linear(
        in_width,
        out_width,
        kernel_initializer=drawn,
        execution=layers.execution,
        rngs=layers.rngs,
    )
