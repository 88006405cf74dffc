"""The small convolutional network of the CIFAR-10 speed records.

It has no shortcuts, and 1,971,640 parameters with 32x32 images and 10 classes.

Source: Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv 2404.00498), sections
3.1 to 3.3 and appendix A, in the form of the later record with the Muon optimizer.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from dawnjax.models.activations import Activation, activate
from dawnjax.models.configs.record_net import RecordNet
from dawnjax.models.configs.types import ImageShape
from dawnjax.models.convolution import Conv, convolve, uniform_fan_in
from dawnjax.models.execution import Execution
from dawnjax.models.layers import Layers
from dawnjax.models.pooling import max_pool

WHITENING_SIZE = 2
"""Height and width of the patches that are whitened, in pixels."""


def whitening_kernel(images: jax.Array, epsilon: float) -> jax.Array:
    """Filters that map patches to uncorrelated channels of equal power, and their negatives.

    With eigenvectors v_i and eigenvalues e_i of the patches' second moments, filter i is v_i /
    sqrt(e_i + epsilon), in ascending order of e_i. Images are normalized float32; the result is
    float32 [2, 2, channels, 8 * channels].

    Source: Jordan 2024 (arXiv 2404.00498), section 3.1.
    """
    height, width = (size - WHITENING_SIZE + 1 for size in images.shape[1:3])
    channels = images.shape[-1]
    patches = jnp.concatenate(
        [
            images[:, row : row + height, column : column + width]
            for row in range(WHITENING_SIZE)
            for column in range(WHITENING_SIZE)
        ],
        axis=-1,
    ).reshape(-1, WHITENING_SIZE**2 * channels)
    products = jnp.matmul(patches.T, patches, precision=lax.Precision.HIGHEST)
    eigenvalues, eigenvectors = jnp.linalg.eigh(products / len(patches))
    filters = eigenvectors * lax.rsqrt(eigenvalues + epsilon)
    kernel = jnp.concatenate([filters, -filters], axis=1)
    return kernel.reshape(WHITENING_SIZE, WHITENING_SIZE, channels, -1)


class RecordNetModule(nnx.Module):
    """Whitening, groups of convolutions, the largest value of each channel, linear classifier."""

    def __init__(
        self,
        config: RecordNet,
        *,
        image_shape: ImageShape,
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        layers = Layers(config, execution, rngs)
        height, width, channels = image_shape
        self.whitening = Whitening(channels, execution, rngs)
        in_channels = 2 * WHITENING_SIZE**2 * channels
        groups = {}
        for index, out_channels in enumerate(config.group_widths, start=1):
            groups[f"group_{index}"] = Group(in_channels, out_channels, config, layers)
            in_channels = out_channels
        self.groups = nnx.Dict(groups)
        shrinkage = 2 ** len(config.group_widths)
        self.final_window = tuple(
            (size - WHITENING_SIZE + 1) // shrinkage for size in (height, width)
        )
        if min(self.final_window) < 1:
            raise ValueError(
                f"images of {height}x{width} are too small for {len(config.group_widths)} groups, "
                f"which need {shrinkage + WHITENING_SIZE - 1} pixels a side or more"
            )
        self.classifier = layers.classifier(
            in_channels, num_classes, _unit_variance, use_bias=False
        )
        # The record with Muon starts the classifier with unit variance and divides by its width.
        self.logit_scale = 1 / in_channels
        self.execution = execution

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        hidden = self.whitening(images)
        for group in self.groups.values():
            hidden = group(hidden, train=train)
        features = max_pool(hidden, self.final_window, padding="VALID", execution=self.execution)
        features = features.reshape(len(images), -1)
        return self.classifier(features) * self.logit_scale


class Whitening(nnx.Module):
    """A convolution whose kernel is set from data, a bias that is trained, and a GELU.

    No gradient reaches the kernel; an optimizer that changes parameters without a gradient too
    (weight decay, renormalization) must leave it out by its path.
    """

    def __init__(self, in_channels: int, execution: Execution, rngs: nnx.Rngs):
        self.execution = execution
        size, out_channels = WHITENING_SIZE, 2 * WHITENING_SIZE**2 * in_channels
        shape = (size, size, in_channels, out_channels)
        self.kernel = nnx.Param(uniform_fan_in(rngs.params(), shape, jnp.float32))
        bound = 1 / math.sqrt(size * size * in_channels)
        self.bias = nnx.Param(
            jax.random.uniform(rngs.params(), (out_channels,), jnp.float32, -bound, bound)
        )

    def __call__(self, images: jax.Array) -> jax.Array:
        """Map [batch, height, width, in] to [batch, height - 1, width - 1, out]."""
        kernel = lax.stop_gradient(self.kernel[...])
        hidden = convolve(images, kernel, padding="VALID", execution=self.execution)
        return activate(hidden + self.bias[...].astype(hidden.dtype), "gelu")


class Group(nnx.Module):
    """Convolution, pooling, BatchNorm, activation; then the same without pooling."""

    def __init__(self, in_channels: int, out_channels: int, config: RecordNet, layers: Layers):
        def conv(channels: int) -> Conv:
            return layers.conv(channels, out_channels, 3, kernel_initializer=_partial_identity)

        self.activation: Activation = config.activation
        self.execution = layers.execution
        self.conv_1, self.norm_1 = conv(in_channels), layers.norm(out_channels, scale=None)
        self.conv_2, self.norm_2 = conv(out_channels), layers.norm(out_channels, scale=None)

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Map [batch, height, width, in] to [batch, height // 2, width // 2, out]."""
        hidden = max_pool(self.conv_1(images), (2, 2), padding="VALID", execution=self.execution)
        hidden = self.norm_1(hidden, train=train, activation=self.activation)
        return self.norm_2(self.conv_2(hidden), train=train, activation=self.activation)


def _partial_identity(
    key: jax.Array, shape: Sequence[Any], dtype: Any = None, out_sharding: Any = None
) -> jax.Array:
    """First output channels copy the input channels, the rest are drawn.

    Source: Jordan 2024 (arXiv 2404.00498), section 3.2.
    """
    height, width, in_channels, out_channels = shape
    drawn = uniform_fan_in(key, shape, dtype, out_sharding)
    copy = jnp.zeros((height, width, in_channels, in_channels), dtype)
    copy = copy.at[height // 2, width // 2].set(jnp.eye(in_channels, dtype=dtype))
    return jnp.concatenate([copy, drawn[..., in_channels:]], axis=-1)[..., :out_channels]


def _unit_variance(
    key: jax.Array, shape: Sequence[Any], dtype: Any = None, out_sharding: Any = None
) -> jax.Array:
    return jax.random.uniform(key, shape, dtype, -math.sqrt(3), math.sqrt(3))
