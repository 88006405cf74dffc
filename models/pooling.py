"""Pooling: the largest or the mean value of each window of an image."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dawnjax.models.convolution import Padding, explicit_padding
from dawnjax.models.execution import Execution

Pads = tuple[tuple[int, int], ...]
"""Positions before and after height and width."""


def max_pool(
    images: jax.Array,
    window: int,
    *,
    stride: int,
    padding: Padding = "SAME",
    execution: Execution,
) -> jax.Array:
    """Largest value in each window; positions outside the image never win.

    Images are [batch, height, width, channels], and pairs as `padding` the positions before and
    after height and width. Of several largest values the first one, by rows, has the gradient.
    """
    if execution.platform != "tpu" and window**2 <= _NOBODYS:
        sizes, strides = (window, window), (stride, stride)
        pads = explicit_padding(images.shape[1:3], sizes, strides, padding)
        on_cpu = execution.platform == "cpu"
        return _max_pool_with_places(images, window, stride, pads, on_cpu)
    # JAX recognizes the maximum, which it can differentiate, by its concrete initial value.
    lowest = np.array(-np.inf, images.dtype)
    return _reduce_windows(images, lowest, lax.max, window, stride, padding)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _max_pool_with_places(
    images: jax.Array, window: int, stride: int, pads: Pads, on_cpu: bool
) -> jax.Array:
    """Maxima; for the gradient a byte says where in its window each was."""
    return _max_pool_forward(images, window, stride, pads, on_cpu)[0]


def _max_pool_forward(images, window, stride, pads, on_cpu) -> Any:
    lowest = np.array(-np.inf, images.dtype)
    padded = lax.pad(images, lowest, ((0, 0, 0), *((*pad, 0) for pad in pads), (0, 0, 0)))
    values, places = None, None
    for place, (row, column) in enumerate(np.ndindex(window, window)):
        ends = (size - window + 1 for size in padded.shape[1:3])
        rows, columns = (
            slice(start, start + end, stride)
            for start, end in zip((row, column), ends, strict=True)
        )
        shifted = padded[:, rows, columns]
        if values is None or places is None:
            values, places = shifted, jnp.zeros(shifted.shape, jnp.uint8)
            continue
        # XLA's gradient would look for the places again: 4.5 GB on a GPU where this one moves 0.6
        # (of a ResNet-50, 256 images), and 5 to 27 times as long on a CPU.
        places = jnp.where(shifted > values, np.uint8(place), places)
        values = jnp.maximum(values, shifted)
    # The barrier stores the places. Computed again with another rounding, they could name another
    # of two nearly equal values, and a gradient would count twice or not at all.
    return values, (lax.optimization_barrier(places), images.shape)


def _max_pool_backward(window, stride, pads, on_cpu, residuals, cotangent):
    places, shape = residuals
    batch, channels = shape[0], shape[-1]
    # Position stride * a + b of the padded image is in the windows a, a - 1, ..., as their position
    # b, b + stride, ...: each cell of stride x stride positions looks at the same few windows.
    cells = [-(-(size + sum(pad)) // stride) for size, pad in zip(shape[1:3], pads, strict=True)]
    gradient_of_cells = _gradient_of_rows if on_cpu else _gradient_of_cells
    gradient = gradient_of_cells(places, cotangent, cells, window, stride)
    padded = gradient.astype(cotangent.dtype).reshape(
        batch, cells[0] * stride, cells[1] * stride, channels
    )
    kept = (
        slice(before, before + size) for size, (before, _) in zip(shape[1:3], pads, strict=True)
    )
    return (padded[:, *kept],)


def _gradient_of_cells(
    places: jax.Array, cotangent: jax.Array, cells: list[int], window: int, stride: int
) -> jax.Array:
    """Gradient of each cell's positions, in one pass over all.

    Places, uint8, and cotangent are [batch, out height, out width, channels], and `cells` the rows
    and columns of cells. The result is [batch, cell rows, stride, cell columns, stride, channels],
    of the dtype that was summed in.
    """
    batch, channels = cotangent.shape[0], cotangent.shape[-1]
    inside = (1, 1, stride, 1, stride, 1)
    rows, columns = (lax.broadcasted_iota(jnp.int32, inside, axis) for axis in (2, 4))
    summed = jnp.promote_types(cotangent.dtype, jnp.float32)
    gradient = jnp.zeros((batch, cells[0], stride, cells[1], stride, channels), summed)
    for back in np.ndindex(-(-window // stride), -(-window // stride)):
        row, column = rows + stride * back[0], columns + stride * back[1]
        place = jnp.where((row < window) & (column < window), row * window + column, _NOWHERE)
        moved = [
            (steps, cell - count - steps, 0)
            for steps, cell, count in zip(back, cells, places.shape[1:3], strict=True)
        ]
        whose, value = (
            lax.pad(array, fill, ((0, 0, 0), *moved, (0, 0, 0)))[:, :, None, :, None, :]
            for array, fill in ((places, _NOBODYS), (cotangent, np.zeros((), cotangent.dtype)))
        )
        gradient += jnp.where(whose == place.astype(jnp.uint8), value, 0).astype(summed)
    return gradient


def _gradient_of_rows(
    places: jax.Array, cotangent: jax.Array, cells: list[int], window: int, stride: int
) -> jax.Array:
    """Same as `_gradient_of_cells`, one position of the cells at a time."""
    summed = jnp.promote_types(cotangent.dtype, jnp.float32)
    most = -(-window // stride) - 1  # windows back
    around = [(most, cell - count, 0) for cell, count in zip(cells, places.shape[1:3], strict=True)]
    config = ((0, 0, 0), *around, (0, 0, 0))
    # With the padded arrays in memory, each sum is one of shifted rows, for which XLA on a CPU
    # makes vector instructions. In one pass with the padding it takes 4 to 14 times as long.
    whose, values = lax.optimization_barrier(
        (
            lax.pad(places, _NOBODYS, config),
            lax.pad(cotangent, np.zeros((), cotangent.dtype), config),
        )
    )

    def of_position(first_row: int, first_column: int) -> jax.Array:
        total = jnp.zeros((len(places), *cells, places.shape[-1]), summed)
        for row in range(first_row, window, stride):
            for column in range(first_column, window, stride):
                starts = (most - row // stride, most - column // stride)
                rows, columns = (
                    slice(start, start + cell) for start, cell in zip(starts, cells, strict=True)
                )
                is_here = whose[:, rows, columns] == np.uint8(row * window + column)
                total += jnp.where(is_here, values[:, rows, columns], 0).astype(summed)
        return total

    return jnp.stack(
        [
            jnp.stack([of_position(row, column) for column in range(stride)], axis=3)
            for row in range(stride)
        ],
        axis=2,
    )


_NOWHERE, _NOBODYS = 255, np.uint8(254)
"""Two different places that no window has."""


_max_pool_with_places.defvjp(_max_pool_forward, _max_pool_backward)


def max_pool_side_by_side(images: jax.Array, window: tuple[int, ...]) -> jax.Array:
    """Largest value in each window, where windows neither overlap nor are padded.

    Of several largest values the first one, by rows, has the gradient. Rows and columns past the
    last whole window are not used.
    """
    rows, columns = (
        size // side * side for size, side in zip(images.shape[1:3], window, strict=True)
    )
    # Maxima of shifted images: the gradient is a selection, without a search through a window.
    return functools.reduce(
        _larger,
        [
            images[:, row : rows : window[0], column : columns : window[1]]
            for row in range(window[0])
            for column in range(window[1])
        ],
    )


def halve(images: jax.Array, execution: Execution) -> jax.Array:
    """`max_pool_side_by_side` in 2x2 windows, in the form that is fastest on the platform."""
    if execution.platform == "gpu":
        return max_pool(images, 2, stride=2, padding="VALID", execution=execution)
    halved = max_pool_side_by_side(images, (2, 2))
    # Without it XLA on a CPU puts the backward pass of all that follows into the gradient of each
    # of the four images under the maximum, and computes it four times.
    return lax.optimization_barrier(halved) if execution.platform == "cpu" else halved


@jax.custom_jvp
def _larger(first: jax.Array, second: jax.Array) -> jax.Array:
    return jnp.maximum(first, second)


@_larger.defjvp
def _larger_jvp(primals, tangents):
    first, second = primals
    # JAX's own maximum gives the gradient to the value that equals the result. Where XLA computes
    # the values again and rounds them otherwise, none equals it and the gradient is lost.
    return jnp.maximum(first, second), jnp.where(first >= second, *tangents)


def average_pool(
    images: jax.Array, window: int, *, stride: int, padding: Padding = "SAME"
) -> jax.Array:
    """Mean of each window over its positions inside the image, summed in float32."""
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
