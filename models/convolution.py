"""Convolution and linear layers.

Images are [batch, height, width, channels] and kernels [height, width, in_channels, out_channels].
A layer holds float32 parameters and computes in the execution's compute dtype.
"""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from dawnjax.models.execution import Execution
from dawnjax.models.kernels import stem, winograd

Padding = Literal["SAME", "VALID"] | Sequence[tuple[int, int]]

he_normal_fan_out = jax.nn.initializers.variance_scaling(2.0, "fan_out", "normal")
"""Normal with variance 2 / (kernel positions x out_channels): keeps the scale of gradients.

Source: He et al. 2015, "Delving Deep into Rectifiers", equation 14.
"""

uniform_fan_in = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""Uniform in +-1 / sqrt(fan in), the default of PyTorch's linear and convolution layers.

Source: PyTorch, `torch.nn.Conv2d` and `torch.nn.Linear`, section Variables.
"""


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: Padding = "SAME",
    execution: Execution,
) -> jax.Array:
    """Cross-correlate images with a kernel, in the compute dtype.

    Pairs as `padding` are the zeros before and after height and width.
    """
    pads = explicit_padding(images.shape[1:3], kernel.shape[:2], strides, padding)
    dtype = jnp.dtype(execution.compute_dtype)
    images, kernel = images.astype(dtype), kernel.astype(dtype)
    if execution.platform == "cpu":
        # XLA's CPU convolutions in bfloat16 take longer than in float32, with the same result: the
        # float32 sum of these products, rounded.
        images, kernel = images.astype(jnp.float32), kernel.astype(jnp.float32)
        if winograd.pays(kernel.shape, strides):
            shards = execution.batch_shards if len(images) % execution.batch_shards == 0 else 1
            made: jax.Array = winograd.convolve(images, kernel, pads, shards)
            return made.astype(dtype)
    is_rearranged = execution.platform == "gpu" and not execution.is_plain
    if is_rearranged and stem.suits(images, kernel, strides, pads):
        images, kernel = stem.in_blocks(images, kernel)
        strides, pads = (1, 1), stem.PADS
    result: jax.Array = lax.conv_general_dilated(
        images, kernel, strides, pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return result.astype(dtype)


def explicit_padding(
    image_size: tuple[int, ...],
    kernel_size: tuple[int, ...],
    strides: tuple[int, int],
    padding: Padding,
) -> tuple[tuple[int, int], ...]:
    """Zeros before and after height and width, for a padding by name too."""
    if isinstance(padding, str):
        return tuple(lax.padtype_to_pads(image_size, kernel_size, strides, padding))
    return tuple((before, after) for before, after in padding)


class Conv(nnx.Module):
    """A convolution layer: `kernel` [height, width, in, out] and, if asked for, `bias` [out]."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int],
        *,
        strides: tuple[int, int] = (1, 1),
        padding: Padding = "SAME",
        kernel_initializer: jax.nn.initializers.Initializer = he_normal_fan_out,
        bias_initializer: jax.nn.initializers.Initializer | None = None,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        shape = (*kernel_size, in_channels, out_channels)
        self.kernel = nnx.Param(kernel_initializer(rngs.params(), shape, jnp.float32))
        make = bias_initializer
        bias = None if make is None else make(rngs.params(), (out_channels,), jnp.float32)
        self.bias = None if bias is None else nnx.Param(bias)
        self.strides = strides
        self.padding: Padding = padding if isinstance(padding, str) else tuple(padding)
        self.execution = execution

    def __call__(self, images: jax.Array) -> jax.Array:
        result = convolve(
            images,
            self.kernel[...],
            strides=self.strides,
            padding=self.padding,
            execution=self.execution,
        )
        return result if self.bias is None else result + self.bias[...].astype(result.dtype)


class Linear(nnx.Module):
    """A linear layer with float32 results: `kernel` [in, out] and, if asked for, `bias` [out]."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        kernel_initializer: jax.nn.initializers.Initializer = uniform_fan_in,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        shape = (in_features, out_features)
        self.kernel = nnx.Param(kernel_initializer(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(out_features, jnp.float32)) if use_bias else None
        self.execution = execution

    def __call__(self, inputs: jax.Array) -> jax.Array:
        dtype = self.execution.compute_dtype
        result = jnp.dot(
            inputs.astype(dtype),
            self.kernel[...].astype(dtype),
            preferred_element_type=jnp.dtype(jnp.float32),
        )
        return result if self.bias is None else result + self.bias[...]
