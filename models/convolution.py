"""Convolution and linear layers, and the one place that picks how a convolution is computed.

Images are [batch, height, width, channels] and kernels [height, width, in_channels, out_channels].
A layer holds float32 parameters and computes in the execution's compute dtype.

`choose_implementation` decides from the platform and the shapes, at trace time. XLA's own
convolution is right everywhere but on CPU. There, XLA's layout pass looks at the entry computation
only, and the gradients of a convolution, which come in other layouts, are 13 times slower and more
inside `lax.scan` or `lax.while_loop` (jax issue 12868); a gradient that is itself made of a
convolution of one layout and of matrix products runs at the same speed anywhere in a program. Small
images are convolved by matrix products, and where there are many channels Winograd's algorithm
needs a quarter of the multiplications.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
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

he_normal_fan_in = jax.nn.initializers.variance_scaling(2.0, "fan_in", "normal")
"""Normal with variance 2 / (kernel positions x in_channels): keeps the scale of activations.

Source: He et al. 2015, "Delving Deep into Rectifiers", equation 10.
"""

uniform_fan_in = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""Uniform in +-1 / sqrt(fan in), the default of PyTorch's linear and convolution layers.

Source: PyTorch, `torch.nn.Conv2d` and `torch.nn.Linear`, section Variables.
"""

SMALL_IMAGE_POSITIONS = 64
"""Largest image, in positions, whose convolution is made of matrix products on CPU."""

WINOGRAD_MIN_CHANNELS = 16
"""Fewest channels, in and out, with which Winograd's transforms cost less than they save."""

WINOGRAD_MIN_WEIGHTS = 64 * 64
"""The same for larger images, as the product of channels in and out.

With whole batches transformed at once a step of `cifar10_resnet18` with 128 images took 2.0 s with
64 x 64, 2.5 s with 128 x 128 and 2.9 s with 256 x 256 (shortest of 5; two cores of an AMD EPYC
9004); with a few examples at a time it takes 1.7 s with 64 x 64.
"""

PATCH_BYTES = 2 << 20
"""Bytes of image patches that are made at a time for a kernel's gradient on CPU.

Of whole batches they fill gigabytes, which are written and read once; 1 to 3 MiB stay in the caches
of two cores. Measured on an AMD EPYC 9004 with 24 to 256 channels on 3x3 to 32x32 images.
"""


def choose_implementation(
    image_shape: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    strides: tuple[int, int],
    platform: Platform,
) -> Implementation:
    """The implementation of a convolution that measured fastest for these shapes.

    Args:
      image_shape: [batch, height, width, in_channels].
      kernel_shape: [height, width, in_channels, out_channels].
      strides: Of height and width.
      platform: What the program is compiled for.
    """
    if platform != "cpu":
        return "convolution"
    is_small = image_shape[1] * image_shape[2] <= SMALL_IMAGE_POSITIONS
    in_channels, out_channels = kernel_shape[2:]
    if (
        winograd.supports(kernel_shape, strides)
        and min(in_channels, out_channels) >= WINOGRAD_MIN_CHANNELS
        and (is_small or in_channels * out_channels >= WINOGRAD_MIN_WEIGHTS)
    ):
        return "winograd"
    return "matmul" if is_small or kernel_shape[:2] == (1, 1) else "one_layout"


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: Padding = "SAME",
    platform: Platform,
    batch_shards: int = 1,
) -> jax.Array:
    """Cross-correlates images with a kernel, by whichever implementation is fastest.

    Args:
      images: [batch, height, width, in_channels], of the dtype to compute in.
      kernel: [kernel height, kernel width, in_channels, out_channels], of the same dtype.
      strides: Of height and width.
      padding: `SAME`, `VALID`, or the zeros before and after height and width.
      platform: What the program is compiled for.
      batch_shards: Over how many devices the examples are spread in equal runs. It saves
        communication of the kernel's gradient.

    Returns:
      [batch, out height, out width, out_channels], of the same dtype.
    """
    pads = explicit_padding(images.shape[1:3], kernel.shape[:2], strides, padding)
    dtype = images.dtype
    result: Any
    if platform == "cpu":
        # XLA's CPU convolutions in bfloat16 take longer than in float32, and give no more than the
        # float32 sum of the same products, rounded.
        images, kernel = images.astype(jnp.float32), kernel.astype(jnp.float32)
    batch_shards = batch_shards if len(images) % batch_shards == 0 else 1
    match choose_implementation(images.shape, kernel.shape, strides, platform):
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
    """The zeros before and after height and width that a padding stands for."""
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
    del batch_shards
    return _convolution(images, kernel, strides, pads)


def _one_layout_forward(images, kernel, strides, pads, batch_shards):
    del batch_shards
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
    """The kernel's gradient as a matrix, from the patches of a few examples at a time.

    As a convolution whose channels are the batch it takes two to four times as long, and as a
    product for each position of the kernel more than twice as long, for the images that a position
    sees must be copied into the order of a matrix.

    Returns:
      [kernel positions x in_channels, out_channels].
    """
    depth, out_channels = math.prod(kernel_size) * images.shape[3], cotangent.shape[3]
    patch_bytes = math.prod(cotangent.shape[1:3]) * depth * images.dtype.itemsize
    examples = len(images) // batch_shards
    chunk = _chunk_size(examples, patch_bytes)

    def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        seen, gradient = part
        patches = jnp.concatenate(_images_under_taps(seen, kernel_size, strides, pads), axis=-1)
        product = lax.dot_general(
            patches.reshape(batch_shards, -1, depth),
            gradient.reshape(batch_shards, -1, out_channels),
            (((1,), (1,)), ((0,), (0,))),
        )
        return total + product, None

    zeros = jnp.zeros((batch_shards, depth, out_channels), images.dtype)
    parts = [in_chunks(array, batch_shards * chunk, batch_shards) for array in (images, cotangent)]
    total, _ = lax.scan(add, zeros, tuple(parts))
    return total.sum(0)


def _chunk_size(examples: int, patch_bytes: int) -> int:
    """The divisor of a number of examples whose patches come nearest to `PATCH_BYTES`.

    At least two examples, where the number is even: XLA shares the copying of one between no cores.
    """
    wanted = max(2, PATCH_BYTES / patch_bytes)
    return nearest_divisor(examples, wanted)


def _convolve_by_matmul(
    images: jax.Array,
    kernel: jax.Array,
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], ...],
) -> jax.Array:
    """Cross-correlation as one product of image patches and the kernel as a matrix."""
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
    """For each position of the kernel the images that it sees, [batch, out height, out width, in].

    The positions come row by row.
    """
    padded = jnp.pad(images, ((0, 0), *pads, (0, 0)))
    spans = [
        [
            slice(first, first + (length - taps) // stride * stride + 1, stride)
            for first in range(taps)
        ]
        for length, taps, stride in zip(padded.shape[1:3], kernel_size, strides, strict=True)
    ]
    return [padded[:, rows, columns] for rows in spans[0] for columns in spans[1]]


_NO_PADDING = ("SAME", "VALID", ((0, 0), (0, 0)))
"""What a 1x1 kernel may have as padding and still see each pixel once."""


def add_bias(images: jax.Array, bias: jax.Array, platform: Platform) -> jax.Array:
    """Adds a value to each channel.

    Args:
      images: [batch, height, width, channels].
      bias: [channels], of the same dtype.
      platform: What the program is compiled for.
    """
    return _add_bias_on_cpu(images, bias) if platform == "cpu" else images + bias


@jax.custom_vjp
def _add_bias_on_cpu(images: jax.Array, bias: jax.Array) -> jax.Array:
    """The sum, with a matrix product for each example as the gradient of the bias.

    XLA's sum over all axes but a short last one, with what it fuses into it, takes three times as
    long.
    """
    return images + bias


def _add_bias_backward(bias: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    positions = cotangent.reshape(len(cotangent), -1, cotangent.shape[-1])
    ones = jnp.ones(positions.shape[:2], positions.dtype)
    sums = lax.dot_general(
        ones,
        positions,
        (((1,), (1,)), ((0,), (0,))),
        preferred_element_type=jnp.dtype(jnp.float32),
    )
    return cotangent, sums.sum(0).astype(bias.dtype)


_add_bias_on_cpu.defvjp(lambda images, bias: (images + bias, bias), _add_bias_backward)


class Conv(nnx.Module):
    """A convolution layer: `kernel` [height, width, in, out] and, where asked for, `bias` [out]."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int],
        *,
        strides: tuple[int, int] = (1, 1),
        padding: Padding = "SAME",
        use_bias: bool = False,
        kernel_initializer: jax.nn.initializers.Initializer = he_normal_fan_out,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        """Draws the parameters.

        Args:
          in_channels: Channels of the images.
          out_channels: Channels of the result.
          kernel_size: Height and width.
          strides: Of height and width.
          padding: `SAME`, `VALID`, or the zeros before and after height and width.
          use_bias: Whether a bias, zero at first, is added.
          kernel_initializer: Gives the kernel from a key, a shape and a dtype.
          execution: Decides dtype and implementation.
          rngs: Source of the key.
        """
        shape = (*kernel_size, in_channels, out_channels)
        self.kernel = nnx.Param(kernel_initializer(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(out_channels, jnp.float32)) if use_bias else None
        self.strides = strides
        self.padding: Padding = padding if isinstance(padding, str) else tuple(padding)
        self.execution = execution

    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps images of any float dtype to the compute dtype's convolution of them."""
        dtype = self.execution.compute_dtype
        as_product = self.execution.pointwise == "product" and self.kernel.shape[:2] == (1, 1)
        if as_product and self.execution.platform != "cpu" and self.padding in _NO_PADDING:
            rows, columns = self.strides
            kernel = self.kernel[...][0, 0].astype(dtype)
            images = images[:, ::rows, ::columns].astype(dtype)
            if self.strides != (1, 1):
                # Else XLA on a GPU joins the skipping to the product, and finds no tiles for that.
                images = lax.optimization_barrier(images)
            result = jnp.einsum("nhwi,io->nhwo", images, kernel)
            return result if self.bias is None else result + self.bias[...].astype(dtype)
        result = convolve(
            images.astype(dtype),
            self.kernel[...].astype(dtype),
            strides=self.strides,
            padding=self.padding,
            platform=self.execution.platform,
            batch_shards=self.execution.batch_shards,
        )
        if self.bias is None:
            return result
        return add_bias(result, self.bias[...].astype(dtype), self.execution.platform)


class Linear(nnx.Module):
    """A linear layer: `kernel` [in, out] and, where asked for, `bias` [out]."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        kernel_initializer: jax.nn.initializers.Initializer = uniform_fan_in,
        float32_output: bool = False,
        execution: Execution,
        rngs: nnx.Rngs,
    ):
        """Draws the parameters.

        Args:
          in_features: Length of the last axis of the inputs.
          out_features: Length of the last axis of the result.
          use_bias: Whether a bias, zero at first, is added.
          kernel_initializer: Gives the kernel from a key, a shape and a dtype.
          float32_output: Whether products of the compute dtype are summed and given in float32, as
            logits are.
          execution: Decides the compute dtype.
          rngs: Source of the key.
        """
        shape = (in_features, out_features)
        self.kernel = nnx.Param(kernel_initializer(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(out_features, jnp.float32)) if use_bias else None
        self.float32_output = float32_output
        self.execution = execution

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Maps [..., in_features] to [..., out_features]."""
        dtype = self.execution.compute_dtype
        output_dtype = jnp.float32 if self.float32_output else dtype
        result = jnp.dot(
            inputs.astype(dtype),
            self.kernel[...].astype(dtype),
            preferred_element_type=jnp.dtype(output_dtype),
        )
        return result if self.bias is None else result + self.bias[...].astype(output_dtype)
