"""Pooling over windows that may overlap and be padded."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dawnjax.models.convolution import Padding, explicit_padding


def max_pool(
    images: jax.Array, window: int, *, stride: int, padding: Padding = "SAME"
) -> jax.Array:
    """Gives the largest value in each window; positions outside the image never win.

    Args:
      images: [batch, height, width, channels].
      window: Height and width of the window.
      stride: Of height and width.
      padding: `SAME`, `VALID`, or the positions before and after height and width.

    Returns:
      [batch, out height, out width, channels], same dtype.
    """
    # JAX recognizes the maximum, which it can differentiate, by its concrete initial value.
    lowest = np.array(-np.inf, images.dtype)
    return _reduce_windows(images, lowest, lax.max, window, stride, padding)


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
