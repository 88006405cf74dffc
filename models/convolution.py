"""Convolution and linear layers, and the one place that picks how a convolution is computed.

Images are [batch, height, width, channels] and kernels [height, width, in_channels, out_channels].
A layer holds float32 parameters and computes in the execution's compute dtype.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from dawnjax.models import winograd
from dawnjax.models.chunks import in_chunks, nearest_divisor
from dawnjax.models.execution import Execution, Platform

Padding = Literal["SAME", "VALID"] | Sequence[tuple[int, int]]
Implementation = Literal["winograd", "matmul", "one_layout", "convolution"]

he_normal_fan_out = jax.nn.initializers.variance_scaling(2.0, "fan_out", "normal")
"""Normal with variance 2 / (kernel positions x out_channels): keeps the scale of gradients.

Source: He et al. 2015, "Delving Deep into Rectifiers", equation 14.
"""

uniform_fan_in = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""Uniform in +-1 / sqrt(fan in), the default of PyTorch's linear and convolution layers.

Source: PyTorch, `torch.nn.Conv2d` and `torch.nn.Linear`, section Variables.
"""

SMALL_IMAGE_POSITIONS = 64
"""Largest image, in positions, whose convolution is made of matrix products on CPU."""

WINOGRAD_MIN_CHANNELS = 16
"""Fewest channels, in and out, with which Winograd's transforms cost less than they save.

With 16 x 16 channels a convolution and its gradients take 0.55 (8 images of 48 x 64) to 0.81 (32 of
32 x 32) of the CPU time in one layout, with 32 x 32 0.38 to 0.47 (shortest of 8; one core of an AMD
EPYC 7003).
"""

PATCH_BYTES = 2 << 20
"""Bytes of image patches that are made at a time for a kernel's gradient on CPU.

Patches of a whole batch fill gigabytes of memory; 1 to 3 MiB stay in the caches of two cores.
Measured on an AMD EPYC 9004 with 24 to 256 channels on 3x3 to 32x32 images.
"""


def choose_implementation(
    image_shape: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    strides: tuple[int, int],
    platform: Platform,
) -> Implementation:
    """Implementation of a convolution that measured fastest for these shapes."""
    if platform != "cpu":
        return "convolution"
    # XLA's layout pass for CPUs looks at the entry computation only: in `lax.scan` the gradients of
    # a convolution, which have other layouts, are 13 or more times slower (jax issue 12868). Matrix
    # products and convolutions in the first layout are as fast anywhere in a program.
    is_small = image_shape[1] * image_shape[2] <= SMALL_IMAGE_POSITIONS
    if winograd.supports(kernel_shape, strides) and min(kernel_shape[2:]) >= WINOGRAD_MIN_CHANNELS:
        return "winograd"
    return "matmul" if is_small or kernel_shape[:2] == (1, 1) else "one_layout"


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: Padding = "SAME",
    execution: Execution,
) -> jax.Array:
    """Cross-correlate images with a kernel by the fastest implementation, in the compute dtype.

    Pairs as `padding` are the zeros before and after height and width.
    """
    pads = explicit_padding(images.shape[1:3], kernel.shape[:2], strides, padding)
    dtype = execution.compute_dtype
    images, kernel = images.astype(dtype), kernel.astype(dtype)
    result: Any
    if execution.platform == "cpu":
        # XLA's CPU convolutions in bfloat16 take longer than in float32, with the same result: the
        # float32 sum of these products, rounded.
        images, kernel = images.astype(jnp.float32), kernel.astype(jnp.float32)
    batch_shards = execution.batch_shards if len(images) % execution.batch_shards == 0 else 1
    match choose_implementation(images.shape, kernel.shape, strides, execution.platform):
        case "winograd":
            result = winograd.convolve(images, kernel, pads, batch_shards)
        case "matmul":
            result = _convolve_by_matmul(images, kernel, strides, pads)
        case "one_layout":
            result = _convolve_in_one_layout(images, kernel, strides, pads, batch_shards)
        case "convolution":
            result = _convolution(images, kernel, strides, pads)
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


def _convolution(
    images: jax.Array,
    kernel: jax.Array,
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
    image_dilation: tuple[int, int] = (1, 1),
) -> jax.Array:
    """XLA's convolution in the one layout that its CPU library takes as it is."""
    return lax.conv_general_dilated(
        images,
        kernel,
        strides,
        pads,
        lhs_dilation=image_dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _convolve_in_one_layout(
    images: jax.Array,
    kernel: jax.Array,
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], ...],
    batch_shards: int,
) -> jax.Array:
    """XLA's convolution, with a convolution of the same layout and matrix products as gradients."""
    return _convolution(images, kernel, strides, pads)


def _one_layout_forward(images, kernel, strides, pads, batch_shards):
    return _convolution(images, kernel, strides, pads), (images, kernel)


def _one_layout_backward(strides, pads, batch_shards, residuals, cotangent):
    images, kernel = residuals
    image_pads = []
    for length, taps, stride, (before, _), results in zip(
        images.shape[1:3], kernel.shape[:2], strides, pads, cotangent.shape[1:3], strict=True
    ):
        # The image positions from the first tap of the first result to the first of the last.
        covered = (results - 1) * stride + 1
        image_pads.append((taps - 1 - before, length - covered + before))
    images_gradient = _convolution(
        cotangent,
        kernel[::-1, ::-1].swapaxes(2, 3),
        (1, 1),
        image_pads,
        image_dilation=strides,
    )
    kernel_gradient = _kernel_gradient(
        images, cotangent, kernel.shape[:2], strides, pads, batch_shards
    )
    return images_gradient, kernel_gradient.reshape(kernel.shape)


_convolve_in_one_layout.defvjp(_one_layout_forward, _one_layout_backward)


def _kernel_gradient(
    images: jax.Array,
    cotangent: jax.Array,
    kernel_size: tuple[int, ...],
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
    batch_shards: int,
) -> jax.Array:
    """Kernel's gradient [kernel positions x in_channels, out_channels], from patches."""
    # Patches of a few examples at a time. A convolution whose channels are the batch takes two to
    # four times as long. A product for each position of the kernel takes more than twice as long:
    # it copies the pixels under the position first.
    depth, out_channels = math.prod(kernel_size) * images.shape[3], cotangent.shape[3]
    patch_bytes = math.prod(cotangent.shape[1:3]) * depth * images.dtype.itemsize
    chunk = batch_shards * chunk_size(len(images) // batch_shards, patch_bytes)

    def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        images, gradient = part
        patches = jnp.concatenate(_images_under_taps(images, kernel_size, strides, pads), axis=-1)
        product = lax.dot_general(
            patches.reshape(batch_shards, -1, depth),
            gradient.reshape(batch_shards, -1, out_channels),
            (((1,), (1,)), ((0,), (0,))),
        )
        return total + product, None

    zeros = jnp.zeros((batch_shards, depth, out_channels), images.dtype)
    parts = (in_chunks(images, chunk, batch_shards), in_chunks(cotangent, chunk, batch_shards))
    total, _ = lax.scan(add, zeros, parts)
    return total.sum(0)


def chunk_size(examples: int, patch_bytes: int) -> int:
    """Divisor of a number of examples whose patches come nearest to `PATCH_BYTES`."""
    # XLA copies a single example on one core.
    return nearest_divisor(examples, max(2, PATCH_BYTES / patch_bytes))


def _convolve_by_matmul(
    images: jax.Array,
    kernel: jax.Array,
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], ...],
) -> jax.Array:
    patches = jnp.concatenate(_images_under_taps(images, kernel.shape[:2], strides, pads), axis=-1)
    depth, out_channels = math.prod(kernel.shape[:3]), kernel.shape[3]
    product = patches.reshape(-1, depth) @ kernel.reshape(depth, out_channels)
    return product.reshape(*patches.shape[:3], out_channels)


def _images_under_taps(
    images: jax.Array,
    kernel_size: tuple[int, ...],
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
) -> list[jax.Array]:
    """Pixels under each position of the kernel, row by row: [batch, out height, out width, in]."""
    padded = jnp.pad(images, ((0, 0), *pads, (0, 0)))
    spans = [
        [
            slice(first, first + (length - taps) // stride * stride + 1, stride)
            for first in range(taps)
        ]
        for length, taps, stride in zip(padded.shape[1:3], kernel_size, strides, strict=True)
    ]
    return [padded[:, rows, columns] for rows in spans[0] for columns in spans[1]]


def convolve_few(
    images: jax.Array, kernel: jax.Array, bias: jax.Array, execution: Execution
) -> jax.Array:
    """Convolve images of few channels with a small kernel, unpadded, and add a bias [out]."""
    dtype = execution.compute_dtype
    kernel = kernel.astype(dtype)
    if execution.platform == "gpu":
        return _sum_of_products(images, kernel, bias).astype(dtype)
    result = convolve(images, kernel, padding="VALID", execution=execution)
    add = _add_bias_on_cpu if execution.platform == "cpu" else jnp.add
    return add(result, bias.astype(dtype))


def _sum_of_products(images: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    height, width = (
        size - taps + 1 for size, taps in zip(images.shape[1:3], kernel.shape[:2], strict=True)
    )
    # Without it XLA makes the images, with their augmentation, again for each of the products.
    images = lax.optimization_barrier(images)
    # One product for each tap and channel, which XLA joins with what follows. For the record
    # net's 2x2 kernel and 2,000 images cuDNN takes 0.17 ms (0.02 for writing).
    total = bias.astype(jnp.float32)
    for row, column, channel in np.ndindex(*kernel.shape[:3]):
        pixels = images[:, row : row + height, column : column + width, channel, None]
        total += pixels.astype(jnp.float32) * kernel[row, column, channel].astype(jnp.float32)
    return total


@jax.custom_vjp
def _add_bias_on_cpu(images: jax.Array, bias: jax.Array) -> jax.Array:
    return images + bias


def _add_bias_backward(bias: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    positions = cotangent.reshape(len(cotangent), -1, cotangent.shape[-1])
    # A product for each example: XLA's sum over all axes but a short last one, with the operations
    # it fuses into it, takes three times as long.
    ones = jnp.ones(positions.shape[:2], positions.dtype)
    sums = lax.dot_general(
        ones,
        positions,
        (((1,), (1,)), ((0,), (0,))),
        preferred_element_type=jnp.dtype(jnp.float32),
    )
    return cotangent, sums.sum(0).astype(bias.dtype)


_add_bias_on_cpu.defvjp(lambda images, bias: (images + bias, bias), _add_bias_backward)


def uniform_bias(fan_in: int) -> jax.nn.initializers.Initializer:
    """Uniform in +-1 / sqrt(fan in), PyTorch's default of a bias."""
    bound = fan_in**-0.5
    return lambda key, shape, dtype=jnp.float32, **_: jax.random.uniform(
        key, shape, dtype, -bound, bound
    )


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
        if self.bias is None:
            return result
        bias = self.bias[...].astype(result.dtype)
        on_cpu = self.execution.platform == "cpu"
        return _add_bias_on_cpu(result, bias) if on_cpu else result + bias


class StemConv(nnx.Module):
    """The 7x7 convolution of stride 2 that an ImageNet model begins with.

    On a GPU, or with `in_blocks`, it is a 4x4 convolution of 2x2 blocks of pixels, which suits
    matrix units better; not where products are counted. The parameter is the 7x7 kernel in either
    form, so each reads the other's checkpoints.

    Source: MLPerf training v0.6, Google's ResNet-50 submission ("conv0 space to depth").
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        in_blocks: bool,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        shape = (7, 7, in_channels, out_channels)
        self.kernel = nnx.Param(he_normal_fan_out(rngs.params(), shape, jnp.float32))
        self.in_blocks, self.execution = in_blocks, execution

    def __call__(self, images: jax.Array) -> jax.Array:
        """Map [batch, height, width, c] to [batch, ceil(height / 2), ceil(width / 2), out]."""
        batch, height, width, channels = images.shape
        is_even, on_gpu = not (height % 2 or width % 2), self.execution.platform == "gpu"
        if self.in_blocks and not is_even:
            raise ValueError(
                f"images of {height}x{width} have no whole 2x2 blocks; take stem=imagenet"
            )
        kernel = self.kernel[...]
        if self.execution.is_plain or not (self.in_blocks or (on_gpu and is_even)):
            pads = ((3, 3), (3, 3))
            return convolve(images, kernel, strides=(2, 2), padding=pads, execution=self.execution)
        # 8x8 with zeros first covers whole blocks: result i sees rows 2i - 4 to 2i + 3, which are
        # the blocks i - 2 to i + 1.
        kernel = jnp.pad(kernel, ((1, 0), (1, 0), (0, 0), (0, 0)))
        kernel = kernel.reshape(4, 2, 4, 2, channels, -1).transpose(0, 2, 1, 3, 4, 5)
        kernel = kernel.reshape(4, 4, 4 * channels, -1)
        blocks = images.reshape(batch, height // 2, 2, width // 2, 2, channels)
        blocks = blocks.transpose(0, 1, 3, 2, 4, 5)
        blocks = blocks.reshape(batch, height // 2, width // 2, 4 * channels)
        if on_gpu:
            # cuDNN would copy both to a multiple of eight channels at each of its calls.
            missing = -4 * channels % 8
            blocks = jnp.pad(blocks, ((0, 0), (0, 0), (0, 0), (0, missing)))
            kernel = jnp.pad(kernel, ((0, 0), (0, 0), (0, missing), (0, 0)))
        return convolve(blocks, kernel, padding=((2, 1), (2, 1)), execution=self.execution)


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
