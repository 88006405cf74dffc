"""Maxima that keep in a byte where in its window each was, so that the gradient searches nothing.

XLA's gradient looks for the places again. On an H200 that takes 1.25 ms of a ResNet-50 step of 33,
where this form takes 0.86, and 0.97 of a record-net step of 5, where this takes 0.32
(benchmarks/measurements.md, "What a change did").
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Pair = tuple[int, int]
"""Of height and width."""

_NOWHERE, _NOBODYS = 255, np.uint8(254)
"""Two different places that no window has."""

MOST_POSITIONS = int(_NOBODYS)
"""Of a window."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def max_pool_with_places(
    images: jax.Array, window: Pair, strides: Pair, pads: tuple[Pair, Pair]
) -> jax.Array:
    """Maxima of windows of at most `MOST_POSITIONS`, over images [batch, height, width, channels].

    `pads` are the positions before and after height and width; they never win.
    """
    return _forward(images, window, strides, pads)[0]


def _forward(images, window, strides, pads) -> Any:
    lowest = np.array(-np.inf, images.dtype)
    padded = lax.pad(images, lowest, ((0, 0, 0), *((*pad, 0) for pad in pads), (0, 0, 0)))
    values, places = None, None
    for place, starts in enumerate(np.ndindex(*window)):
        rows, columns = (
            slice(start, start + size - taps + 1, stride)
            for start, size, taps, stride in zip(
                starts, padded.shape[1:3], window, strides, strict=True
            )
        )
        shifted = padded[:, rows, columns]
        if values is None or places is None:
            values, places = shifted, jnp.zeros(shifted.shape, jnp.uint8)
            continue
        places = jnp.where(shifted > values, np.uint8(place), places)
        values = jnp.maximum(values, shifted)
    # The barrier stores the places. Computed again with another rounding, they could name another
    # of two nearly equal values, and a gradient would count twice or not at all.
    return values, (lax.optimization_barrier(places), images.shape)


def _backward(window, strides, pads, residuals, cotangent):
    """Gradient of each position, from the few windows that the positions of a cell are in.

    Position stride * a + b of the padded image is in the windows a, a - 1, ..., as their position
    b, b + stride, ...: each cell of stride x stride positions looks at the same windows.
    """
    places, (batch, *size, channels) = residuals
    cells = [
        -(-(n + sum(pad)) // stride) for n, pad, stride in zip(size, pads, strides, strict=True)
    ]
    inside = (1, 1, strides[0], 1, strides[1], 1)
    rows, columns = (lax.broadcasted_iota(jnp.int32, inside, axis) for axis in (2, 4))
    summed = jnp.promote_types(cotangent.dtype, jnp.float32)
    gradient = jnp.zeros((batch, cells[0], strides[0], cells[1], strides[1], channels), summed)
    for back in np.ndindex(-(-window[0] // strides[0]), -(-window[1] // strides[1])):
        row, column = rows + strides[0] * back[0], columns + strides[1] * back[1]
        is_inside = (row < window[0]) & (column < window[1])
        place = jnp.where(is_inside, row * window[1] + column, _NOWHERE).astype(jnp.uint8)
        moved = [
            (steps, cell - count - steps, 0)
            for steps, cell, count in zip(back, cells, places.shape[1:3], strict=True)
        ]
        whose, value = (
            lax.pad(array, fill, ((0, 0, 0), *moved, (0, 0, 0)))[:, :, None, :, None, :]
            for array, fill in ((places, _NOBODYS), (cotangent, np.zeros((), cotangent.dtype)))
        )
        gradient += jnp.where(whose == place, value, 0).astype(summed)
    padded = gradient.astype(cotangent.dtype).reshape(
        batch, cells[0] * strides[0], cells[1] * strides[1], channels
    )
    (top, _), (left, _) = pads
    return (padded[:, top : top + size[0], left : left + size[1]],)


max_pool_with_places.defvjp(_forward, _backward)
