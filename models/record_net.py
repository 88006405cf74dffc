"""The small convolutional network of the CIFAR-10 speed records.

A fixed whitening of 2x2 patches, three groups of two convolutions, and a linear classifier; no
shortcuts. With 32x32 images and 10 classes it has 1,971,640 parameters.

Source: Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv 2404.00498), sections
3.1 to 3.3 and appendix A, in the form that the later record with the Muon optimizer gave it: the
classifier starts with unit variance and divides by its width.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.convolution import Conv, Linear, add_bias, convolve, uniform_fan_in
from dawnjax.models.execution import Execution, Platform
from dawnjax.models.pooling import max_pool, max_pool_side_by_side

WHITENING_SIZE = 2
"""Height and width of the patches that are whitened, in pixels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordNet:
    """The speed-record network for small images of 14 or more pixels a side.

    Attributes:
      group_widths: Channels of each of the three groups; each halves height and width.
      batch_norm_momentum: The fraction of the running statistics that a step keeps; low, since a
        run is only some hundred steps long.
      batch_norm_epsilon: Added to the variance.
      whitening_epsilon: Added to the eigenvalues of the patches' second moments, which keeps the
        filters of the weakest directions from blowing up noise.
    """

    TAG: ClassVar[str] = "record_net"
    num_initialization_images: ClassVar[int] = 5000

    group_widths: tuple[int, ...] = (64, 256, 256)
    batch_norm_momentum: float = 0.6
    batch_norm_epsilon: float = 1e-12
    whitening_epsilon: float = 5e-4

    def build(
        self,
        *,
        image_shape: tuple[int, int, int],
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ) -> nnx.Module:
        """Makes the network for images of [height, width, channels]."""
        return RecordNetModule(self, image_shape, num_classes, execution, rngs)

    def initialize_from_data(self, params: dict[str, Any], images: jax.Array) -> dict[str, Any]:
        """Gives the parameters with the whitening filters of these images.

        Args:
          params: Of the network, as built.
          images: float32 [n, height, width, channels], normalized.
        """
        kernel = whitening_kernel(images, self.whitening_epsilon)
        return {**params, "whitening": {**params["whitening"], "kernel": kernel}}


def whitening_kernel(images: jax.Array, epsilon: float) -> jax.Array:
    """Gives filters that map patches to uncorrelated channels of equal power, and their negatives.

    With the second moments M of the patches, as vectors, and their eigenvectors v_i and eigenvalues
    e_i, filter i is v_i / sqrt(e_i + epsilon), in ascending order of e_i.

    Args:
      images: float32 [n, height, width, channels], normalized.
      epsilon: Added to each eigenvalue.

    Returns:
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
        image_shape: tuple[int, int, int],
        num_classes: int,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        height, width, channels = image_shape
        self.whitening = Whitening(channels, execution, rngs)
        in_channels = 2 * WHITENING_SIZE**2 * channels
        groups = {}
        for index, out_channels in enumerate(config.group_widths, start=1):
            groups[f"group_{index}"] = Group(in_channels, out_channels, config, execution, rngs)
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
        self.classifier = Linear(
            in_channels,
            num_classes,
            use_bias=False,
            kernel_initializer=_unit_variance,
            float32_output=True,
            execution=execution,
            rngs=rngs,
        )
        self.logit_scale = 1 / in_channels
        self.platform = execution.platform

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps normalized images [batch, height, width, channels] to float32 logits."""
        hidden = _gelu(self.whitening(images), self.platform)
        for group in self.groups.values():
            hidden = group(hidden, train=train)
        features = max_pool_side_by_side(hidden, self.final_window).reshape(len(images), -1)
        return self.classifier(features) * self.logit_scale


class Whitening(nnx.Module):
    """A convolution whose kernel is set from data and then fixed, and a bias that is trained.

    The kernel is a parameter that no gradient reaches; an optimizer that also changes parameters
    without a gradient (weight decay, renormalization) must leave it out by its path.
    """

    def __init__(self, in_channels: int, execution: Execution, rngs: nnx.Rngs):
        size, out_channels = WHITENING_SIZE, 2 * WHITENING_SIZE**2 * in_channels
        shape = (size, size, in_channels, out_channels)
        self.kernel = nnx.Param(uniform_fan_in(rngs.params(), shape, jnp.float32))
        bound = 1 / math.sqrt(size * size * in_channels)
        self.bias = nnx.Param(
            jax.random.uniform(rngs.params(), (out_channels,), jnp.float32, -bound, bound)
        )
        self.execution = execution

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps [batch, height, width, c] to [batch, height - 1, width - 1, 8 * c]."""
        dtype = self.execution.compute_dtype
        whitened = convolve(
            images.astype(dtype),
            lax.stop_gradient(self.kernel[...]).astype(dtype),
            padding="VALID",
            platform=self.execution.platform,
            batch_shards=self.execution.batch_shards,
        )
        return add_bias(whitened, self.bias[...].astype(dtype), self.execution.platform)


class Group(nnx.Module):
    """Convolution, pooling, BatchNorm, GELU; then the same without pooling."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        config: RecordNet,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        def conv(channels: int) -> Conv:
            return Conv(
                channels,
                out_channels,
                (3, 3),
                kernel_initializer=_partial_identity,
                execution=execution,
                rngs=rngs,
            )

        def norm() -> BatchNorm:
            return BatchNorm(
                out_channels,
                momentum=config.batch_norm_momentum,
                epsilon=config.batch_norm_epsilon,
                scale=None,
                execution=execution,
            )

        self.platform = execution.platform
        self.conv_1, self.norm_1 = conv(in_channels), norm()
        self.conv_2, self.norm_2 = conv(out_channels), norm()

    def __call__(self, images: jax.Array, *, train: bool) -> jax.Array:
        """Maps [batch, height, width, in] to [batch, height // 2, width // 2, out]."""
        hidden = self.conv_1(images)
        if self.platform == "gpu":
            hidden = max_pool(hidden, 2, stride=2, padding="VALID", platform="gpu")
        else:
            hidden = max_pool_side_by_side(hidden, (2, 2))
        if self.platform == "cpu":
            # Else XLA puts the backward pass of all that follows into the gradient of each of the
            # four images under the maximum, and computes it four times.
            hidden = lax.optimization_barrier(hidden)
        hidden = _gelu(self.norm_1(hidden, train=train), self.platform)
        return _gelu(self.norm_2(self.conv_2(hidden), train=train), self.platform)


def _gelu(inputs: jax.Array, platform: Platform) -> jax.Array:
    """The product of x and the standard normal distribution function of x.

    JAX's own takes three times as long on CPU: it is exact for the tail below -5 too, which does
    not reach float32 activations of unit size.

    Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415), section 2.
    """
    if platform == "gpu":
        return _gelu_by_exponential(inputs)
    return 0.5 * inputs * (1 + lax.erf(inputs * math.sqrt(0.5)))


_TAIL = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_TAIL_SCALE = 0.3275911
"""Of the error function's tail, to 1.5e-7.

Source: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions", equation 7.1.26.
"""


@jax.custom_vjp
def _gelu_by_exponential(inputs: jax.Array) -> jax.Array:
    """The same within 5e-7, by one exponential that the gradient needs too.

    What a GPU computes here is more than it reads: XLA's error function takes twice the operations,
    and its gradient an exponential besides.
    """
    return _gelu_and_slope(inputs)[0]


def _gelu_and_slope(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    values = inputs.astype(jnp.float32)
    size = jnp.abs(values) * math.sqrt(0.5)
    exponential = jnp.exp(-jnp.square(size))
    part = 1 / (1 + _TAIL_SCALE * size)
    polynomial = functools.reduce(lambda total, factor: total * part + factor, reversed(_TAIL))
    tail = 0.5 * part * polynomial * exponential
    distribution = jnp.where(values < 0, tail, 1 - tail)
    slope = distribution + values * exponential / math.sqrt(2 * math.pi)
    return (values * distribution).astype(inputs.dtype), slope


def _gelu_backward(inputs: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    return ((cotangent * _gelu_and_slope(inputs)[1]).astype(inputs.dtype),)


_gelu_by_exponential.defvjp(lambda inputs: (_gelu_by_exponential(inputs), inputs), _gelu_backward)


def _partial_identity(
    key: jax.Array, shape: Sequence[Any], dtype: Any = None, out_sharding: Any = None
) -> jax.Array:
    """The first output channels copy the input channels, the rest are drawn.

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
    del out_sharding
    return jax.random.uniform(key, shape, dtype, -math.sqrt(3), math.sqrt(3))
