"""Batch normalization's passes over its data as Triton kernels, each in as few reads as it needs.

XLA on a GPU makes more passes than these where a GELU or a maximum of 2x2 windows stands beside the
normalization: it writes the GELU's gradient before it sums it, sums a maximum after it has written
it, and writes the gradient of the maximum before it spreads it over the windows. Arithmetic and
roundings are those of `BatchNorm`, `activate` and `halve`, apart from the order of sums.

Pallas makes the kernels. On a CPU they are interpreted, which only a test can want.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from dawnjax.models.activations import Activation, value_and_slope

MIN_CHANNELS = 16
"""Channels come in multiples of these, so that a thread reads 16 bytes at a time."""

_MOST_CHANNELS = 128
"""Of a tile."""

_TILE_ELEMENTS = 2048
"""Of a tile: sixteen for each of 128 threads, which their registers hold as float32."""

_TILES = 8
"""Tiles that a program goes through, so that it leaves one pair of sums for all of them."""

_NUM_WARPS = 4


class Normalization(NamedTuple):
    """What a normalization does to each group and channel, float32 [groups, channels].

    Attributes:
      factor: Multiplies the inputs.
      offset: Is added then.
      mean: Of the inputs.
    """

    factor: jax.Array
    offset: jax.Array
    mean: jax.Array


class Combination(NamedTuple):
    """An input's gradient: factor x result's gradient + slope x centred input + offset.

    Each is float32 [groups, channels].
    """

    factor: jax.Array
    slope: jax.Array
    offset: jax.Array


def halve_and_sum(
    images: jax.Array, origin: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Largest value of each 2x2 window, its place, and the sums of these values about an origin.

    Args:
      images: [groups, group, height, width, channels]; an odd last row or column is not used.
      origin: float32 [channels].

    Returns:
      The maxima [groups, group, height // 2, width // 2, channels]; uint8 of that shape, the first
      place of the maximum by rows; float32 [groups, channels] twice, the sum of the differences
      from the origin and that of their squares.
    """
    groups, group, height, width, channels = images.shape
    shape = (groups, group, height // 2, width // 2, channels)
    positions = math.prod(shape[1:4])
    pooled, places, (total, squares) = _call(
        "halve_and_sum",
        functools.partial(_halve_kernel, size=(height, width)),
        [_flat(images)],
        origin[None, None],
        [jax.ShapeDtypeStruct((groups, positions, channels), d) for d in (images.dtype, jnp.uint8)],
        positions,
        sums=True,
    )
    return pooled.reshape(shape), places.reshape(shape), total, squares


def gradient_sums(
    inputs: jax.Array,
    cotangent: jax.Array,
    normalization: Normalization,
    activation: Activation | None,
) -> tuple[jax.Array, jax.Array]:
    """Sums of the normalized values' gradient, and of its product with the centred inputs.

    Args:
      inputs: [groups, ..., channels].
      cotangent: Same shape and dtype, the gradient of what the activation made.
      normalization: Of the inputs.
      activation: What followed it; None for nothing.

    Returns:
      float32 [groups, channels], twice.
    """
    arrays = [_flat(inputs), _flat(cotangent)]
    kernel = functools.partial(_sums_kernel, activation=activation)
    channels, positions = jnp.stack(normalization, axis=1), arrays[0].shape[1]
    return _call("gradient_sums", kernel, arrays, channels, [], positions, sums=True)[-1]


def input_gradient(
    inputs: jax.Array,
    cotangent: jax.Array,
    normalization: Normalization,
    combination: Combination,
    activation: Activation | None,
    halved: tuple[int, int] | None,
    places: jax.Array | None,
) -> jax.Array:
    """The gradient of a normalization's inputs, or of the images whose maxima they are.

    Args:
      inputs: [groups, group, ..., channels].
      cotangent: Same shape and dtype.
      normalization: Of the inputs.
      combination: Makes their gradient.
      activation: What followed the normalization; None for nothing.
      halved: Height and width of the images; None where the inputs are no maxima.
      places: Of the maxima, as `halve_and_sum` makes them.

    Returns:
      The inputs' shape, or [groups, group, height, width, channels] of the images; their dtype.
    """
    arrays = [_flat(inputs), _flat(cotangent)]
    shape, positions = inputs.shape, arrays[0].shape[1]
    if halved is not None and places is not None:
        arrays.append(_flat(places))
        shape = (*shape[:2], *halved, shape[-1])
        positions = shape[1] * math.prod(-(-side // 2) for side in halved)  # windows cut off, too
    result = jax.ShapeDtypeStruct((shape[0], math.prod(shape[1:-1]), shape[-1]), inputs.dtype)
    (gradient,) = _call(
        "input_gradient",
        functools.partial(_input_gradient_kernel, activation=activation, size=halved),
        arrays,
        jnp.stack([*normalization, *combination], axis=1),
        [result],
        positions,
    )
    return gradient.reshape(shape)


def _flat(array: jax.Array) -> jax.Array:
    """[groups, ..., channels] to [groups, positions, channels]."""
    return array.reshape(len(array), -1, array.shape[-1])


def _call(
    name: str,
    kernel: Callable[..., Any],
    arrays: list[jax.Array],
    channels: jax.Array,
    results: list[jax.ShapeDtypeStruct],
    positions: int,
    sums: bool = False,
) -> Any:
    """Runs a kernel over tiles of positions and channels.

    Args:
      name: Of the kernel in a trace.
      kernel: Called for each tile with its `_Tile`, the references of arrays, channels and results;
        it returns two arrays [tile positions, tile channels] to be summed, if there are sums.
      arrays: [groups, n, channels], of which each program sees its group.
      channels: float32 [groups or 1, n, channels].
      results: Shapes and dtypes of the results, [groups, n, channels].
      positions: Of a group, that the tiles cover.
      sums: Whether the kernel returns values to be summed.

    Returns:
      The results, and with sums the pair of them, float32 [groups, channels].
    """
    groups, count = len(arrays[0]), channels.shape[-1]
    width = min(count & -count, _MOST_CHANNELS)
    rows = _TILE_ELEMENTS // width
    programs = pl.cdiv(positions, rows * _TILES)
    total = jax.ShapeDtypeStruct((groups, programs, 2, count), jnp.float32)

    def whole(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec((None, *shape[1:]), lambda column, program, group: (group, 0, 0))

    def body(*references: Any) -> None:
        used = references[:-1] if sums else references
        start = pl.program_id(1) * (rows * _TILES)
        channel = pl.program_id(0) * width + jnp.arange(width, dtype=jnp.int32)

        def one(index: jax.Array, total: Any) -> Any:
            position = start + index * rows + jnp.arange(rows, dtype=jnp.int32)
            tile = _Tile(position, channel, position < positions)
            values = kernel(tile, *used)
            return tuple(t + v.sum(0) for t, v in zip(total, values, strict=True)) if sums else ()

        zeros = (jnp.zeros(width, jnp.float32),) * 2 if sums else ()
        for index, total in enumerate(lax.fori_loop(0, _TILES, one, zeros)):
            references[-1][index, :] = total

    def run(*arguments: jax.Array, interpret: bool = False) -> Any:
        return pl.pallas_call(
            body,
            grid=(count // width, programs, groups),
            in_specs=[
                *(whole(array.shape) for array in arrays),
                pl.BlockSpec(
                    (None, channels.shape[1], width),
                    lambda column, program, group: (group if len(channels) > 1 else 0, 0, column),
                ),
            ],
            out_specs=[
                *(whole(result.shape) for result in results),
                *[
                    pl.BlockSpec(
                        (None, None, 2, width),
                        lambda column, program, group: (group, program, 0, column),
                    )
                ][:sums],
            ],
            out_shape=[*results, *[total][:sums]],
            compiler_params=triton.CompilerParams(num_warps=_NUM_WARPS, num_stages=1),
            interpret=interpret,
            name=name,
        )(*arguments)

    *outputs, last = lax.platform_dependent(
        *arrays, channels, cpu=functools.partial(run, interpret=True), default=run
    )
    return (*outputs, tuple(last.sum(1)[:, index] for index in (0, 1))) if sums else (last,)


class _Tile(NamedTuple):
    """Some positions and channels.

    Attributes:
      position: int32 [tile positions].
      channel: int32 [tile channels].
      is_inside: bool [tile positions]; the last tile's last positions may be none.
    """

    position: jax.Array
    channel: jax.Array
    is_inside: jax.Array

    def load(self, array: Any, position: jax.Array, is_there: jax.Array) -> jax.Array:
        """Float32 values of an array [n, channels] at these positions, 0 where there are none."""
        part, mask = self._part(array, position, is_there)
        zero = np.zeros((), array.dtype)
        return triton.load(part, mask=mask, other=zero).astype(jnp.float32)

    def store(
        self, array: Any, position: jax.Array, is_there: jax.Array, values: jax.Array
    ) -> None:
        """Writes values, rounded to the array's dtype, to the positions that are there."""
        part, mask = self._part(array, position, is_there)
        triton.store(part, values.astype(array.dtype), mask=mask)

    def _part(self, array: Any, position: jax.Array, is_there: jax.Array) -> tuple[Any, jax.Array]:
        shape = (len(self.position), len(self.channel))
        position, is_there, channel = (
            jnp.broadcast_to(values, shape)
            for values in (position[:, None], is_there[:, None], self.channel[None])
        )
        return array.at[position, channel], is_there

    def windows(self, rows: int, columns: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The image, row and column of each position, of images with so many windows."""
        row = lax.div(self.position, np.int32(columns))
        image = lax.div(row, np.int32(rows))
        return image, row - image * rows, self.position - row * columns


def _halve_kernel(
    tile: _Tile, images: Any, origin: Any, pooled: Any, places: Any, *, size: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    height, width = size
    image, row, column = tile.windows(height // 2, width // 2)
    corner = (image * height + 2 * row) * width + 2 * column
    values = tile.load(images, corner, tile.is_inside)
    place = jnp.zeros(values.shape, jnp.int32)
    for other in range(1, 4):
        value = tile.load(images, corner + other // 2 * width + other % 2, tile.is_inside)
        place = jnp.where(value > values, np.int32(other), place)
        values = jnp.maximum(values, value)
    tile.store(pooled, tile.position, tile.is_inside, values)
    tile.store(places, tile.position, tile.is_inside, place)
    centred = jnp.where(tile.is_inside[:, None], values - origin[0, :], 0)
    return centred, jnp.square(centred)


def _sums_kernel(
    tile: _Tile, inputs: Any, cotangent: Any, channels: Any, *, activation: Activation | None
) -> tuple[jax.Array, jax.Array]:
    values = tile.load(inputs, tile.position, tile.is_inside)
    # 0 where there is no position, and so are both values to be summed.
    gradient = tile.load(cotangent, tile.position, tile.is_inside)
    gradient, centred = _gradient_and_centred(values, gradient, channels, activation, inputs.dtype)
    return gradient, gradient * centred


def _input_gradient_kernel(
    tile: _Tile,
    inputs: Any,
    cotangent: Any,
    *references: Any,
    activation: Activation | None,
    size: tuple[int, int] | None,
) -> None:
    *places, channels, result = references
    position, is_there, windows = tile.position, tile.is_inside, None
    if size is not None:
        rows, columns = (side // 2 for side in size)
        windows = tile.windows(*(-(-side // 2) for side in size))
        image, row, column = windows
        position = (image * rows + row) * columns + column
        is_there = tile.is_inside & (row < rows) & (column < columns)
    values, gradient = (tile.load(array, position, is_there) for array in (inputs, cotangent))
    gradient, centred = _gradient_and_centred(values, gradient, channels, activation, inputs.dtype)
    factor, slope, offset = (channels[index, :] for index in (3, 4, 5))
    values = factor * gradient + slope * centred + offset
    if size is None or windows is None:
        tile.store(result, position, is_there, values)
        return
    whose = tile.load(places[0], position, is_there).astype(jnp.int32)
    whose = jnp.where(is_there[:, None], whose, np.int32(4))  # nobody's
    (height, width), (image, row, column) = size, windows
    for place in range(4):
        y, x = 2 * row + place // 2, 2 * column + place % 2
        in_image = tile.is_inside & (y < height) & (x < width)
        # The last row or column of an odd image has no second place.
        y, x = jnp.minimum(y, height - 1), jnp.minimum(x, width - 1)
        gradient = jnp.where(whose == place, values, 0)
        tile.store(result, (image * height + y) * width + x, in_image, gradient)


def _gradient_and_centred(
    values: jax.Array, gradient: jax.Array, channels: Any, activation: Activation | None, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """The normalized values' gradient, rounded where `BatchNorm` would, and the centred inputs."""
    factor, offset, mean = (channels[index, :] for index in (0, 1, 2))
    if activation is not None:
        normalized = (values * factor + offset).astype(dtype).astype(jnp.float32)
        slope = value_and_slope(normalized, activation)[1]
        gradient = (gradient * slope).astype(dtype).astype(jnp.float32)
    return gradient, values - mean
