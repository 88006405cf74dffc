"""Pooling: the largest or the mean value of each window of an image."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dawnjax.models.convolution import Padding, explicit_padding
from dawnjax.models.execution import Execution
from dawnjax.models.kernels.max_pool import MOST_POSITIONS, max_pool_with_places

Pair = tuple[int, int]
"""Of height and width."""


def max_pool(
    images: jax.Array,
    window: Pair,
    *,
    strides: Pair | None = None,
    padding: Padding = "SAME",
    execution: Execution,
) -> jax.Array:
    """Largest value in each window; positions outside the image never win.

    Images are [batch, height, width, channels]; windows lie side by side without `strides`. Of
    several largest values the first one, by rows, has the gradient.
    """
    strides = strides or window
    pads = explicit_padding(images.shape[1:3], window, strides, padding)
    if execution.platform != "tpu" and window[0] * window[1] <= MOST_POSITIONS:
        return max_pool_with_places(images, window, strides, pads)
    # JAX recognizes the maximum, which it can differentiate, by its concrete initial value.
    return _reduce_windows(images, np.array(-np.inf, images.dtype), lax.max, window, strides, pads)


def average_pool(
    images: jax.Array, window: int, *, stride: int, padding: Padding = "SAME"
) -> jax.Array:
    """Mean of each window over its positions inside the image, summed in float32."""
    sizes, strides = (window, window), (stride, stride)
    pads = explicit_padding(images.shape[1:3], sizes, strides, padding)
    ones = jnp.ones((1, *images.shape[1:3], 1), jnp.float32)
    sums, counts = (
        _reduce_windows(array, np.zeros((), np.float32), lax.add, sizes, strides, pads)
        for array in (images.astype(jnp.float32), ones)
    )
    return (sums / counts).astype(images.dtype)


def _reduce_windows(images, initial, reduce, window, strides, pads):
    return lax.reduce_window(
        images, initial, reduce, (1, *window, 1), (1, *strides, 1), ((0, 0), *pads, (0, 0))
    )
