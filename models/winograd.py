"""Small convolutions with fewer multiplications, as matrix products (Winograd's algorithm).

A 3-tap correlation that gives 4 values takes 12 multiplications one by one, and 6 when kernel and
image are first transformed by small constant matrices; in two dimensions 36 instead of 144. What
remains is one matrix product [batch, in_channels] x [in_channels, out_channels] for each of the
transformed positions, and so is its gradient, so that nothing here is slower inside a loop.

With letters of the source, along one axis: `Y = A [(G g) . (B d)]`, where d is the image, g the
kernel and Y the result. Here B and A act on a whole row of an image at once, padding included, and
a row of more than 4 results is several tiles that share the kernel.

In float32 the result differs from that of a plain sum by about 1e-6 of its standard deviation.

Source: Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural Networks", section 4.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TILE = 4
"""Results that a tile gives along an axis: more would save little and lose float32 accuracy."""

NUM_TAPS = 3
NUM_PRODUCTS = TILE + NUM_TAPS - 1

POINTS = (0.0, 1.0, -1.0, 0.5, -2.0)
"""Interpolation points, with infinity as the last one: the most accurate for 4 results and 3 taps.

Source: Barabasz, Anderson, Soodhalter and Gregg 2018, "Error Analysis and Improving the Accuracy of
Winograd Convolution for Deep Neural Networks", table 1.
"""

Padding = tuple[tuple[int, int], ...]


class LineAlgorithm(NamedTuple):
    """Winograd's algorithm for one axis of an image, which some tiles of 4 results cover.

    Attributes:
      image_transform: [6 x tiles, image length], B of all tiles, zero padding included.
      kernel_transform: [6 x tiles, 3], G, repeated for each tile.
      inverse_transform: [4, 6], A of one tile.
      num_results: Length of the result, at most 4 times the tiles.
      num_tiles: The tiles.
    """

    image_transform: np.ndarray
    kernel_transform: np.ndarray
    inverse_transform: np.ndarray
    num_results: int
    num_tiles: int


def supports(kernel_shape: tuple[int, ...], strides: tuple[int, int]) -> bool:
    """Whether `convolve` can compute a convolution: 3x3 kernels that move by one position."""
    return kernel_shape[:2] == (3, 3) and strides == (1, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolve(
    images: jax.Array, kernel: jax.Array, padding: Padding, batch_shards: int = 1
) -> jax.Array:
    """Cross-correlates images with a 3x3 kernel.

    Args:
      images: float32 [batch, height, width, in_channels].
      kernel: float32 [3, 3, in_channels, out_channels].
      padding: The zeros before and after height and width.
      batch_shards: Over how many devices the examples are spread in equal runs. The kernel's
        gradient is brought back to 3x3 for each before it is summed over them, which is a
        reduction between devices: the transformed gradient is 4 times as large or more.

    Returns:
      float32 [batch, out height, out width, out_channels].
    """
    return _forward(images, kernel, padding, batch_shards)[0]


def _forward(images, kernel, padding, batch_shards):
    del batch_shards
    rows = line_algorithm(images.shape[1], padding[0])
    columns = line_algorithm(images.shape[2], padding[1])
    # [height, width, batch, in_channels], so that a transform is a product over a leading axis.
    images = _on_rows(rows.image_transform, images.transpose(1, 2, 0, 3)[None])[0]
    images = _on_rows(columns.image_transform, images)
    kernel = jnp.tensordot(
        _kernel_transform(rows, columns), kernel.reshape(9, *kernel.shape[2:]), 1
    )
    # [positions, batch, in_channels] x [positions, in_channels, out_channels]
    products = _batch_product(_merge_positions(images), kernel, 2, 1)
    return _inverse_transform(products, rows, columns).transpose(2, 0, 1, 3), (images, kernel)


def _backward(padding, batch_shards, residuals, cotangent):
    images, kernel = residuals
    height, width = (
        size + NUM_TAPS - 1 - sum(pads)
        for size, pads in zip(cotangent.shape[1:3], padding, strict=True)
    )
    rows, columns = line_algorithm(height, padding[0]), line_algorithm(width, padding[1])
    products = _transposed_inverse_transform(cotangent.transpose(1, 2, 0, 3), rows, columns)
    images_gradient = _batch_product(products, kernel, 2, 2).reshape(images.shape)
    images_gradient = _on_rows(columns.image_transform.T, images_gradient)
    images_gradient = _on_rows(rows.image_transform.T, images_gradient[None])[0]
    # [positions, shards, examples, channels], then [positions, shards, in_channels, out_channels]
    images, products = (
        array.reshape(len(kernel), batch_shards, len(cotangent) // batch_shards, -1)
        for array in (_merge_positions(images), products)
    )
    kernel_gradient = lax.dot_general(images, products, (((2,), (2,)), ((0, 1), (0, 1))))
    kernel_gradient = jnp.tensordot(_kernel_transform(rows, columns).T, kernel_gradient, 1).sum(1)
    return (
        images_gradient.transpose(2, 0, 1, 3),
        kernel_gradient.reshape(NUM_TAPS, NUM_TAPS, *kernel.shape[1:]),
    )


convolve.defvjp(_forward, _backward)


@functools.cache
def line_algorithm(length: int, padding: tuple[int, int]) -> LineAlgorithm:
    """The algorithm for one axis of an image.

    Args:
      length: Of the image along the axis.
      padding: The zeros before and after.
    """
    inverse, kernel, image = toom_cook()
    num_results = sum(padding) + length - NUM_TAPS + 1
    tiles = math.ceil(num_results / TILE)
    whole = np.zeros((tiles, NUM_PRODUCTS, length))
    for tile in range(tiles):
        for offset in range(NUM_PRODUCTS):
            position = tile * TILE + offset - padding[0]
            if 0 <= position < length:
                whole[tile, :, position] = image[:, offset]
    return LineAlgorithm(
        whole.reshape(-1, length).astype(np.float32),
        np.tile(kernel, (tiles, 1)).astype(np.float32),
        inverse.astype(np.float32),
        num_results,
        tiles,
    )


def toom_cook() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices A [4, 6], G [6, 3] and B [6, 6] of one tile.

    The polynomials that have kernel and image as coefficients are multiplied at 6 points (infinity,
    where a polynomial's value is its highest coefficient, is one) and interpolated; transposed, the
    same is a correlation.

    Source: Barabasz et al. 2018, sections 2.2 and 2.3.
    """
    points = np.array(POINTS)

    def evaluation(num_coefficients: int) -> np.ndarray:
        infinity = np.eye(num_coefficients)[-1:]
        return np.vstack([np.vander(points, num_coefficients, increasing=True), infinity])

    # Any factor can move from B to G; this one makes the entries of B small multiples of a half.
    factor = np.array([np.prod(np.delete(point - points, i)) for i, point in enumerate(points)])
    factor = np.append(factor, 1.0)[:, None]
    image = np.linalg.inv(evaluation(NUM_PRODUCTS)).T * factor
    return evaluation(TILE).T, evaluation(NUM_TAPS) / factor, image


def _kernel_transform(rows: LineAlgorithm, columns: LineAlgorithm) -> np.ndarray:
    """[transformed positions, 9]: G of both axes."""
    return np.kron(rows.kernel_transform, columns.kernel_transform)


def _inverse_transform(products, rows, columns):
    """[positions, batch, out_channels] to [out height, out width, batch, out_channels]."""
    rest = products.shape[1:]
    num_rows, column_tiles = len(rows.image_transform), columns.num_tiles
    result = products.reshape(num_rows * column_tiles, NUM_PRODUCTS, *rest)
    result = _on_rows(columns.inverse_transform, result)
    result = result.reshape(rows.num_tiles, NUM_PRODUCTS, TILE * column_tiles, *rest)
    result = _on_rows(rows.inverse_transform, result)
    result = result.reshape(TILE * rows.num_tiles, TILE * column_tiles, *rest)
    return result[: rows.num_results, : columns.num_results]


def _transposed_inverse_transform(results, rows, columns):
    """[out height, out width, batch, out_channels] to [positions, batch, out_channels]."""
    rest = results.shape[2:]
    num_rows, column_tiles = len(rows.image_transform), columns.num_tiles
    missing = (
        (0, TILE * rows.num_tiles - rows.num_results),
        (0, TILE * column_tiles - columns.num_results),
    )
    results = jnp.pad(results, (*missing, (0, 0), (0, 0)))
    results = results.reshape(rows.num_tiles, TILE, TILE * column_tiles, *rest)
    products = _on_rows(rows.inverse_transform.T, results)
    products = products.reshape(num_rows * column_tiles, TILE, *rest)
    return _merge_positions(_on_rows(columns.inverse_transform.T, products))


def _merge_positions(array: jax.Array) -> jax.Array:
    return array.reshape(-1, *array.shape[2:])


# No product below merges the batch with another axis, so that examples stay where they are when
# they are spread over devices.


def _on_rows(matrix: np.ndarray, blocks: jax.Array) -> jax.Array:
    """The product of one matrix [n, m] with each of the blocks [count, m, ...]."""
    if len(blocks) == 1:
        return jnp.tensordot(matrix, blocks[0], 1)[None]
    return _batch_product(jnp.broadcast_to(matrix, (len(blocks), *matrix.shape)), blocks, 2, 1)


def _batch_product(left: jax.Array, right: jax.Array, left_axis: int, right_axis: int) -> jax.Array:
    """Products of matrices over a leading axis, contracted over the given axes."""
    return lax.dot_general(left, right, (((left_axis,), (right_axis,)), ((0,), (0,))))
