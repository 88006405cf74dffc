"""Convolution as one matrix product of image patches, for small images on a CPU.

XLA's layout pass for CPUs looks at the entry computation only: a convolution in a loop, such as
that of a game's search or of several steps in one call, is 13 or more times slower than outside
(JAX issue 12868). Matrix products are as fast anywhere in a program.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

MOST_POSITIONS = 64
"""Of an image: larger ones have too many patches to keep in the caches."""


def suits(image_shape: tuple[int, ...], kernel_shape: tuple[int, ...]) -> bool:
    """True for small images, and for 1x1 kernels, whose patches are the pixels themselves."""
    return math.prod(image_shape[1:3]) <= MOST_POSITIONS or kernel_shape[:2] == (1, 1)


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
) -> jax.Array:
    """Cross-correlate images [batch, height, width, in] with a kernel [rows, columns, in, out]."""
    padded = jnp.pad(images, ((0, 0), *pads, (0, 0)))
    rows, columns = (
        [
            slice(first, first + (length - taps) // stride * stride + 1, stride)
            for first in range(taps)
        ]
        for length, taps, stride in zip(padded.shape[1:3], kernel.shape, strides, strict=False)
    )
    patches = jnp.concatenate([padded[:, row, column] for row in rows for column in columns], -1)
    product = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, kernel.shape[-1])
    return product.reshape(*patches.shape[:3], -1)
