"""3x3 convolutions with a quarter of the multiplications on a CPU (Winograd's algorithm).

Along one axis `Y = A [(G g) . (B d)]`, where d is 6 values of an image, g the kernel and Y 4 values
of the result: 36 multiplications instead of 144 in two dimensions. The result differs from that of
a plain float32 sum by about 1e-6 of its standard deviation.

Source: Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural Networks", section 4.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TILE = 4
"""Results of a tile along an axis; more would save little and lose float32 accuracy."""

NUM_TAPS = 3
NUM_PRODUCTS = TILE + NUM_TAPS - 1

POINTS = (0.0, 1.0, -1.0, 0.5, -2.0)
"""Interpolation points, with infinity as the last one: the most accurate for 4 results and 3 taps.

Source: Barabasz, Anderson, Soodhalter and Gregg 2018, "Error Analysis and Improving the Accuracy of
Winograd Convolution for Deep Neural Networks", table 1.
"""

MIN_CHANNELS = 16
"""Fewest channels, in and out, with which the transforms cost less than they save."""

Padding = tuple[tuple[int, int], ...]


def pays(kernel_shape: tuple[int, ...], strides: tuple[int, int]) -> bool:
    """True for 3x3 kernels that move by one position, between enough channels."""
    is_taken = kernel_shape[:2] == (NUM_TAPS, NUM_TAPS) and strides == (1, 1)
    return is_taken and min(kernel_shape[2:]) >= MIN_CHANNELS


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolve(
    images: jax.Array, kernel: jax.Array, padding: Padding, batch_shards: int = 1
) -> jax.Array:
    """Cross-correlate float32 images with a 3x3 kernel [3, 3, in_channels, out_channels].

    `padding` is the zeros before and after height and width; `batch_shards` the devices that hold
    the examples in equal runs.
    """
    return _forward(images, kernel, padding, batch_shards)[0]


def _forward(images, kernel, padding, batch_shards):
    tiles = _transform_images(images, padding, _out_size(images.shape, padding))
    products = _batch_product(tiles, _transform_kernel(kernel), 1)
    results = _results(products, len(images), _out_size(images.shape, padding))
    return results, (images, kernel)  # the tiles are 2.25 times as large


def _backward(padding, batch_shards, residuals, cotangent):
    images, kernel = residuals
    out_size = cotangent.shape[1:3]
    tiles = _transform_images(images, padding, out_size)
    products = _transform_cotangent(cotangent)
    # [positions, tiles, channels]
    of_tiles = _batch_product(products, _transform_kernel(kernel), 2)
    of_images = _transpose_of_transform(
        of_tiles, len(cotangent), images.shape[1:3], padding, out_size
    )
    # [positions, shards, tiles, channels]
    tiles, products = (
        array.reshape(len(array), batch_shards, -1, array.shape[-1]) for array in (tiles, products)
    )
    of_kernel = lax.dot_general(tiles, products, (((2,), (2,)), ((0, 1), (0, 1))))
    # Each device brings its gradient back to 3x3 before the sum over devices: the transformed one
    # is 4 times as large.
    of_kernel = jnp.tensordot(_KERNEL_TRANSFORM.T, of_kernel, 1).sum(1)
    return of_images, of_kernel.reshape(kernel.shape)


convolve.defvjp(_forward, _backward)


def toom_cook() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices A [4, 6], G [6, 3] and B [6, 6] of one tile, float64.

    Source: Barabasz et al. 2018, sections 2.2 and 2.3.
    """
    points = np.array(POINTS)

    def evaluation(num_coefficients: int) -> np.ndarray:
        # A polynomial's value at infinity is its highest coefficient.
        infinity = np.eye(num_coefficients)[-1:]
        return np.vstack([np.vander(points, num_coefficients, increasing=True), infinity])

    # Any factor can move from B to G; this one makes the entries of B small multiples of a half.
    factor = np.array([np.prod(np.delete(point - points, i)) for i, point in enumerate(points)])
    factor = np.append(factor, 1.0)[:, None]
    image = np.linalg.inv(evaluation(NUM_PRODUCTS)).T * factor
    return evaluation(TILE).T, evaluation(NUM_TAPS) / factor, image


_A, _G, _B = toom_cook()
_KERNEL_TRANSFORM = np.kron(_G, _G).astype(np.float32)
"""[36, 9]: G of both axes."""


def _transform_kernel(kernel: jax.Array) -> jax.Array:
    """[3, 3, in_channels, out_channels] to [36, in_channels, out_channels]."""
    return jnp.tensordot(_KERNEL_TRANSFORM, kernel.reshape(-1, *kernel.shape[2:]), 1)


def _out_size(image_shape: tuple[int, ...], padding: Padding) -> tuple[int, ...]:
    sizes = zip(image_shape[1:3], padding, strict=True)
    return tuple(size + sum(pads) - NUM_TAPS + 1 for size, pads in sizes)


def _num_tiles(out_size: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.ceil(size / TILE) for size in out_size)


# The second axis of tiles [36, tiles, channels] runs over the batch, then over rows and columns of
# tiles, so that no example moves to another device.


def _transform_images(images: jax.Array, padding: Padding, out_size: tuple[int, ...]) -> jax.Array:
    pads = [(0, 0)]
    for size, count, (before, _) in zip(
        images.shape[1:3], _num_tiles(out_size), padding, strict=True
    ):
        pads.append((before, TILE * count + NUM_TAPS - 1 - before - size))
    # Whole tiles, which overlap by two positions.
    padded = jnp.pad(images, (*pads, (0, 0)))
    rows, columns = _num_tiles(out_size)
    under = [padded[:, i : i + TILE * rows - TILE + 1 : TILE] for i in range(NUM_PRODUCTS)]
    half = jnp.stack(_combine(_B, under))
    under = [half[:, :, :, i : i + TILE * columns - TILE + 1 : TILE] for i in range(NUM_PRODUCTS)]
    return _merge(jnp.stack(_combine(_B, under), axis=1))


def _transform_cotangent(cotangent: jax.Array) -> jax.Array:
    """[batch, out height, out width, channels] to tiles: the transpose of `_results`."""
    sizes = cotangent.shape[1:3]
    missing = [TILE * count - size for size, count in zip(sizes, _num_tiles(sizes), strict=True)]
    padded = jnp.pad(cotangent, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
    half = jnp.stack(_combine(_A.T, [padded[:, i::TILE] for i in range(TILE)]))
    return _merge(jnp.stack(_combine(_A.T, [half[:, :, :, i::TILE] for i in range(TILE)]), axis=1))


def _results(products: jax.Array, batch: int, out_size: tuple[int, ...]) -> jax.Array:
    # [6, 6, batch, rows of tiles, columns of tiles, channels]
    products = _split(products, batch, out_size)
    half = jnp.stack(_combine(_A, list(products)))
    whole = jnp.stack(_combine(_A, [half[:, i] for i in range(NUM_PRODUCTS)]))
    # [4 columns, 4 rows, batch, rows of tiles, columns of tiles, channels]
    whole = whole.transpose(2, 3, 1, 4, 0, 5)
    rows, columns = _num_tiles(out_size)
    whole = whole.reshape(batch, TILE * rows, TILE * columns, -1)
    return whole[:, : out_size[0], : out_size[1]]


def _transpose_of_transform(
    tiles: jax.Array,
    batch: int,
    image_size: tuple[int, ...],
    padding: Padding,
    out_size: tuple[int, ...],
) -> jax.Array:
    """Tiles to [batch, height, width, channels]: the transpose of `_transform_images`."""
    tiles = _split(tiles, batch, out_size)
    (top, _), (left, _) = padding
    half = _overlap(_combine(_B.T, [tiles[:, i] for i in range(NUM_PRODUCTS)]), axis=3)
    half = half[:, :, :, left : left + image_size[1]]
    return _overlap(_combine(_B.T, list(half)), axis=1)[:, top : top + image_size[0]]


def _overlap(parts: list[jax.Array], axis: int) -> jax.Array:
    """Add up tiles of 6 positions along an axis, 4 positions apart."""

    def shifted(part: jax.Array, by: int) -> jax.Array:
        pads = [(0, 0)] * part.ndim
        pads[axis] = (by, 1 - by)
        return jnp.pad(part, pads)

    # Each part holds one of the 6 positions, [..., tiles, ...].
    each = [shifted(part, 0) for part in parts[:TILE]]
    for i, part in enumerate(parts[TILE:]):
        each[i] += shifted(part, 1)
    together = jnp.stack(each, axis + 1)
    return together.reshape(*together.shape[:axis], -1, *together.shape[axis + 2 :])


def _combine(matrix: np.ndarray, parts: list[jax.Array]) -> list[jax.Array]:
    """Product of a constant matrix [n, m] with m arrays, as n sums of arrays."""

    def combined(row: np.ndarray) -> jax.Array:
        terms = [(factor, part) for factor, part in zip(row, parts, strict=True) if factor]
        # XLA makes vector instructions of the sums, within the caches. A matrix product would first
        # copy the parts together, and take three times as long.
        scaled = [part if factor == 1 else part * np.float32(factor) for factor, part in terms]
        return functools.reduce(jnp.add, scaled)

    return [combined(row) for row in matrix]


def _merge(array: jax.Array) -> jax.Array:
    # [6, 6, batch, rows, columns, channels] to tiles
    return array.reshape(NUM_PRODUCTS**2, -1, array.shape[-1])


def _split(tiles: jax.Array, batch: int, out_size: tuple[int, ...]) -> jax.Array:
    shape = (NUM_PRODUCTS, NUM_PRODUCTS, batch, *_num_tiles(out_size), tiles.shape[-1])
    return tiles.reshape(shape)


def _batch_product(left: jax.Array, right: jax.Array, right_axis: int) -> jax.Array:
    return lax.dot_general(left, right, (((2,), (right_axis,)), ((0,), (0,))))
