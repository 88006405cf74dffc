"""Pooling over windows that may overlap and be padded."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dawnjax.models.convolution import Padding, explicit_padding
from dawnjax.models.execution import Platform

Pads = tuple[tuple[int, int], ...]
"""Positions before and after height and width."""


def max_pool(
    images: jax.Array,
    window: int,
    *,
    stride: int,
    padding: Padding = "SAME",
    platform: Platform,
) -> jax.Array:
    """Gives the largest value in each window; positions outside the image never win.

    Of several largest values the first one, by rows, has the gradient.

    Args:
      images: [batch, height, width, channels].
      window: Height and width of the window.
      stride: Of height and width.
      padding: `SAME`, `VALID`, or the positions before and after height and width.
      platform: What the program is compiled for.

    Returns:
      [batch, out height, out width, channels], same dtype.
    """
    if platform == "gpu":
        sizes, strides = (window, window), (stride, stride)
        pads = explicit_padding(images.shape[1:3], sizes, strides, padding)
        return _max_pool_with_places(images, window, stride, tuple(map(tuple, pads)))
    # JAX recognizes the maximum, which it can differentiate, by its concrete initial value.
    lowest = np.array(-np.inf, images.dtype)
    return _reduce_windows(images, lowest, lax.max, window, stride, padding)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _max_pool_with_places(images: jax.Array, window: int, stride: int, pads: Pads) -> jax.Array:
    """Gives the maxima, and keeps a byte for where each was: on a GPU a gradient from these moves
    0.6 GB where XLA's, which looks for the places again, moves 4.5 (a ResNet-50's, 256 images)."""
    return _max_pool_forward(images, window, stride, pads)[0]


def _max_pool_forward(images, window, stride, pads):
    lowest = np.array(-np.inf, images.dtype)
    padded = lax.pad(images, lowest, ((0, 0, 0), *((*pad, 0) for pad in pads), (0, 0, 0)))
    values, places = None, None
    for place, (row, column) in enumerate(np.ndindex(window, window)):
        ends = (size - window + 1 for size in padded.shape[1:3])
        rows, columns = (
            slice(start, start + end, stride)
            for start, end in zip((row, column), ends, strict=True)
        )
        found = padded[:, rows, columns]
        if values is None or places is None:
            values, places = found, jnp.zeros(found.shape, jnp.uint8)
            continue
        places = jnp.where(found > values, np.uint8(place), places)
        values = jnp.maximum(values, found)
    # Stored, not found again: where two values of a window are nearly equal, another rounding could
    # find another one, and a gradient would count twice or not at all.
    return values, (lax.optimization_barrier(places), images.shape)


def _max_pool_backward(window, stride, pads, residuals, cotangent):
    places, shape = residuals
    gradient = jnp.zeros(shape, jnp.float32)
    for place, (row, column) in enumerate(np.ndindex(window, window)):
        own = jnp.where(places == place, cotangent, 0).astype(jnp.float32)
        # Back to the position of the padded image, and that cut to the image.
        spread = [
            (start - pad[0], size + pad[0] - start - (count - 1) * stride - 1, stride - 1)
            for start, pad, size, count in zip(
                (row, column), pads, shape[1:3], places.shape[1:3], strict=True
            )
        ]
        gradient += lax.pad(own, np.float32(0), ((0, 0, 0), *spread, (0, 0, 0)))
    return (gradient.astype(cotangent.dtype),)


_max_pool_with_places.defvjp(_max_pool_forward, _max_pool_backward)


def average_pool(
    images: jax.Array, window: int, *, stride: int, padding: Padding = "SAME"
) -> jax.Array:
    """Gives the mean of each window over those of its positions that lie in the image.

    Args:
      images: [batch, height, width, channels].
      window: Height and width of the window.
      stride: Of height and width.
      padding: `SAME`, `VALID`, or the positions before and after height and width.

    Returns:
      [batch, out height, out width, channels], same dtype; the sums are in float32.
    """
    zero = np.zeros((), np.float32)
    sums = _reduce_windows(images.astype(jnp.float32), zero, lax.add, window, stride, padding)
    ones = jnp.ones((1, *images.shape[1:3], 1), jnp.float32)
    counts = _reduce_windows(ones, zero, lax.add, window, stride, padding)
    return (sums / counts).astype(images.dtype)


def _reduce_windows(images, initial, reduce, window, stride, padding):
    sizes, strides = (window, window), (stride, stride)
    pads = explicit_padding(images.shape[1:3], sizes, strides, padding)
    return lax.reduce_window(
        images, initial, reduce, (1, *sizes, 1), (1, *strides, 1), ((0, 0), *pads, (0, 0))
    )
