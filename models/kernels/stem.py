"""The 7x7 convolution of stride 2 that an ImageNet model begins with, on 2x2 blocks of pixels.

A 4x4 convolution of 16 channels suits matrix units better than a 7x7 convolution of 3: 1.2 ms of a
ResNet-50 step on an H200, 2.9 without (benchmarks/measurements.md, "What a change did").

Source: MLPerf training v0.6, Google's ResNet-50 submission ("conv0 space to depth").
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

PADS = ((2, 1), (2, 1))
"""Blocks of zeros around the blocks of an image."""


def suits(
    images: jax.Array, kernel: jax.Array, strides: Sequence[int], pads: Sequence[Sequence[int]]
) -> bool:
    """True for that convolution of images with few channels and whole blocks."""
    is_stem = kernel.shape[:2] == (7, 7) and tuple(strides) == (2, 2)
    is_even = not any(size % 2 for size in images.shape[1:3])
    return is_stem and is_even and images.shape[3] <= 4 and all(tuple(p) == (3, 3) for p in pads)


def in_blocks(images: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Images [batch, height / 2, width / 2, 16 or less] and kernel [4, 4, ..., out]."""
    batch, height, width, channels = images.shape
    # 8x8 with zeros first covers whole blocks: result i sees rows 2i - 4 to 2i + 3, which are the
    # blocks i - 2 to i + 1.
    kernel = jnp.pad(kernel, ((1, 0), (1, 0), (0, 0), (0, 0)))
    kernel = kernel.reshape(4, 2, 4, 2, channels, -1).transpose(0, 2, 1, 3, 4, 5)
    kernel = kernel.reshape(4, 4, 4 * channels, -1)
    blocks = images.reshape(batch, height // 2, 2, width // 2, 2, channels)
    blocks = blocks.transpose(0, 1, 3, 2, 4, 5)
    blocks = blocks.reshape(batch, height // 2, width // 2, 4 * channels)
    # cuDNN would copy both to a multiple of eight channels at each of its calls.
    missing = -4 * channels % 8
    blocks = jnp.pad(blocks, ((0, 0), (0, 0), (0, 0), (0, missing)))
    return blocks, jnp.pad(kernel, ((0, 0), (0, 0), (0, missing), (0, 0)))
