"""1x1 convolutions on a GPU that normalize what they read and take the moments of what they write.

Between two convolutions, batch normalization reads its input for the moments, reads it again and
writes the normalized one, and the next convolution reads that. Here a kernel that multiplies takes
the moments of its result while that is at hand, and normalizes its input as it comes: two of the
four passes are gone. So it is with the gradient, whose sums for the normalization are taken by the
product that makes it. The arithmetic and its roundings are those of `BatchNorm`, a ReLU and `Conv`,
apart from the order of sums.

The kernels are Triton's, through Pallas. On a CPU they are interpreted, which only a test can want.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from dawnjax.models.batch_norm import (
    BatchNorm,
    Moments,
    factor_and_offset,
    gradients_of_sums,
    group_moments,
    moments_about,
)

ROW_TILE, COLUMN_TILE, SUMMED_TILE = 128, 128, 64
"""Sizes of the pieces that a block of threads multiplies, at most; of bfloat16 3 x 2 x 16 KB."""

NUM_WARPS, NUM_STAGES = 8, 3

GRID = ("column", "row", "group")
"""A tile's place. Those that share rows follow each other, so that caches serve them."""

Affine = tuple[jax.Array, jax.Array]
"""What normalizes, scales and shifts a group's channels: float32 [groups, channels] each."""


def product_with_moments(
    images: jax.Array, kernel: jax.Array, norm: BatchNorm
) -> tuple[jax.Array, Moments]:
    """Convolves with a 1x1 kernel, and takes the moments for the normalization that follows.

    Args:
      images: [batch, height, width, in], of the compute dtype.
      kernel: float32 [1, 1, in, out].
      norm: What will normalize the result: it has the groups and the origin of the moments.

    Returns:
      [batch, height, width, out], of the images' dtype, and the moments.
    """
    outputs, moments = _product(_rows(norm, images), kernel[0, 0], norm.origin)
    return outputs.reshape(*images.shape[:-1], -1), moments


def normalized_product_with_moments(
    images: jax.Array, before: BatchNorm, kernel: jax.Array, norm: BatchNorm
) -> tuple[jax.Array, Moments]:
    """Normalizes, applies a ReLU and convolves with a 1x1 kernel, and takes moments as above.

    Args:
      images: [batch, height, width, in], of the compute dtype.
      before: Normalizes the images, and records their moments.
      kernel: float32 [1, 1, in, out].
      norm: What will normalize the result.

    Returns:
      [batch, height, width, out], of the images' dtype, and the moments.
    """
    rows = _rows(before, images)
    moments = group_moments(lax.stop_gradient(before.in_groups(images)), before.origin)
    before.record(moments)
    outputs, result_moments = _normalized_product(
        rows, moments, *before.scale_and_bias(), kernel[0, 0], norm.origin, before.epsilon
    )
    return outputs.reshape(*images.shape[:-1], -1), result_moments


def _rows(norm: BatchNorm, images: jax.Array) -> jax.Array:
    """Gives [groups, rows, channels]."""
    groups = norm.in_groups(images)
    return groups.reshape(len(groups), -1, images.shape[-1])


@jax.custom_vjp
def _product(inputs: jax.Array, kernel: jax.Array, origin: jax.Array) -> tuple[jax.Array, Moments]:
    return _multiply(inputs, None, kernel.astype(inputs.dtype), origin)


def _product_forward(*arguments: jax.Array) -> Any:
    return _product(*arguments), arguments


def _product_backward(residuals: Any, cotangents: Any) -> Any:
    inputs, kernel, origin = residuals
    gradient, _ = cotangents  # the normalization gives the whole of it, and none to the moments
    to_inputs = jnp.einsum("gro,io->gri", gradient, kernel.astype(gradient.dtype))
    return to_inputs, _kernel_gradient(inputs, gradient), jnp.zeros_like(origin)


_product.defvjp(_product_forward, _product_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _normalized_product(
    inputs: jax.Array,
    moments: Moments,
    scale: jax.Array,
    bias: jax.Array,
    kernel: jax.Array,
    origin: jax.Array,
    epsilon: float,
) -> tuple[jax.Array, Moments]:
    affine = factor_and_offset(moments, scale, bias, epsilon)
    return _multiply(inputs, affine, kernel.astype(inputs.dtype), origin)


def _normalized_product_forward(*arguments: Any) -> Any:
    return _normalized_product(*arguments), arguments[:-1]


def _normalized_product_backward(epsilon: float, residuals: Any, cotangents: Any) -> Any:
    inputs, moments, scale, bias, kernel, origin = residuals
    gradient, _ = cotangents
    affine = factor_and_offset(moments, scale, bias, epsilon)
    of_normalized, sums = _multiply_back(
        gradient, inputs, affine, moments.mean, kernel.astype(gradient.dtype)
    )
    of_inputs, of_scale, of_bias = gradients_of_sums(
        of_normalized.astype(jnp.float32),
        inputs.astype(jnp.float32) - moments.mean[:, None],
        sums[:, 0],
        sums[:, 1],
        lax.rsqrt(moments.var + epsilon),
        scale,
        "gpu",
    )
    factor, offset = (channels[:, None] for channels in affine)
    of_kernel = _kernel_gradient(_activated(inputs, factor, offset), gradient)
    nothing = jax.tree.map(jnp.zeros_like, (moments, origin))
    return of_inputs.astype(inputs.dtype), nothing[0], of_scale, of_bias, of_kernel, nothing[1]


_normalized_product.defvjp(_normalized_product_forward, _normalized_product_backward)


def _kernel_gradient(inputs: jax.Array, gradient: jax.Array) -> jax.Array:
    """Gives float32 [in, out] of [groups, rows, in] and [groups, rows, out]."""
    return jnp.einsum("gri,gro->io", inputs, gradient, preferred_element_type=jnp.float32)


def _activated(inputs: jax.Array, factor: jax.Array, offset: jax.Array) -> jax.Array:
    """Normalizes, rounds as `BatchNorm` does, and applies the ReLU."""
    normalized = (inputs.astype(jnp.float32) * factor + offset).astype(inputs.dtype)
    return jnp.maximum(normalized, 0)


def _multiply(
    inputs: jax.Array, affine: Affine | None, kernel: jax.Array, origin: jax.Array
) -> tuple[jax.Array, Moments]:
    """Gives [groups, rows, out] of [groups, rows, in] and a kernel [in, out], and its moments.

    Where `affine` is given, the inputs are normalized by it, and negative ones become 0.
    """
    rows, width = inputs.shape[1:]
    tile = _tile(kernel.shape[1], COLUMN_TILE)
    channels = _block((None, width), "group", None)
    in_specs = [
        _block((None, ROW_TILE, width), "group", "row", None),
        *([channels, channels] if affine else []),
        _block((width, tile), None, "column"),
        _block((tile,), "column"),
    ]
    outputs, sums = _call(
        functools.partial(_forward_kernel, rows=rows, normalizes=affine is not None),
        (inputs, *(affine or ()), kernel, origin),
        in_specs,
        jax.ShapeDtypeStruct((*inputs.shape[:2], kernel.shape[1]), inputs.dtype),
        tile,
    )
    return outputs, moments_about(sums[:, 0] / rows, sums[:, 1] / rows, origin)


def _multiply_back(
    gradient: jax.Array, inputs: jax.Array, affine: Affine, mean: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Gives the gradient of the normalized inputs, and its sums, alone and by centred inputs.

    Args:
      gradient: [groups, rows, out].
      inputs: [groups, rows, in].
      affine: What normalizes them.
      mean: float32 [groups, in], theirs.
      kernel: [in, out].

    Returns:
      [groups, rows, in], 0 where the ReLU gave 0, and float32 [groups, 2, in].
    """
    rows, width = gradient.shape[1:]
    tile = _tile(len(kernel), COLUMN_TILE)
    channels = _block((None, tile), "group", "column")
    in_specs = [
        _block((None, ROW_TILE, width), "group", "row", None),
        _block((None, ROW_TILE, tile), "group", "row", "column"),
        *[channels] * 3,
        _block((tile, width), "column", None),
    ]
    return _call(
        functools.partial(_backward_kernel, rows=rows),
        (gradient, inputs, *affine, mean, kernel),
        in_specs,
        jax.ShapeDtypeStruct(inputs.shape, inputs.dtype),
        tile,
    )


def _call(
    body: Callable[..., None],
    arguments: tuple[jax.Array, ...],
    in_specs: list[pl.BlockSpec],
    result: jax.ShapeDtypeStruct,
    tile: int,
) -> tuple[jax.Array, jax.Array]:
    """Runs a kernel over all tiles of [groups, rows, columns].

    Returns:
      Its result, and float32 [groups, 2, columns], two sums over all rows.
    """
    groups, rows, columns = result.shape
    blocks = pl.cdiv(rows, ROW_TILE)

    def call(*arguments: jax.Array, interpret: bool = False) -> Any:
        return pl.pallas_call(
            body,
            grid=(columns // tile, blocks, groups),
            in_specs=in_specs,
            out_specs=[
                _block((None, ROW_TILE, tile), "group", "row", "column"),
                _block((None, None, 2, tile), "group", "row", None, "column"),
            ],
            out_shape=[result, jax.ShapeDtypeStruct((groups, blocks, 2, columns), jnp.float32)],
            compiler_params=triton.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
            interpret=interpret,
        )(*arguments)

    results, sums = lax.platform_dependent(
        *arguments, cpu=functools.partial(call, interpret=True), default=call
    )
    return results, sums.sum(1)


def _block(shape: tuple[int | None, ...], *axes: str | None) -> pl.BlockSpec:
    """Says which part of an array a tile sees: which of its axes go with which of the tile's."""
    return pl.BlockSpec(
        shape, lambda *tile: tuple(0 if axis is None else tile[GRID.index(axis)] for axis in axes)
    )


def _forward_kernel(inputs_ref: Any, *refs: Any, rows: int, normalizes: bool) -> None:
    *affine_refs, kernel_ref, origin_ref, outputs_ref, sums_ref = refs
    is_row = _is_row(rows)

    def left(part: Any) -> jax.Array:
        values = _load_rows(inputs_ref, part, is_row)
        if not normalizes:
            return values
        return _activated(values, *(ref[part][None] for ref in affine_refs))

    product = _sum_of_products(left, lambda part: kernel_ref[part, :], *kernel_ref.shape)
    outputs = product.astype(outputs_ref.dtype)
    centred = outputs.astype(jnp.float32) - origin_ref[...][None]
    _store(outputs_ref, sums_ref, outputs, centred, jnp.square(centred), is_row)


def _backward_kernel(
    gradient_ref: Any,
    inputs_ref: Any,
    factor_ref: Any,
    offset_ref: Any,
    mean_ref: Any,
    kernel_ref: Any,
    outputs_ref: Any,
    sums_ref: Any,
    *,
    rows: int,
) -> None:
    is_row = _is_row(rows)
    product = _sum_of_products(
        lambda part: _load_rows(gradient_ref, part, is_row),
        lambda part: kernel_ref[:, part].T,
        *reversed(kernel_ref.shape),
    )
    inputs = _load_rows(inputs_ref, slice(None), is_row)
    active = _activated(inputs, factor_ref[...][None], offset_ref[...][None]) > 0
    outputs = jnp.where(active, product, 0.0).astype(outputs_ref.dtype)
    gradient = outputs.astype(jnp.float32)
    centred = inputs.astype(jnp.float32) - mean_ref[...][None]
    _store(outputs_ref, sums_ref, outputs, gradient, gradient * centred, is_row)


def _is_row(rows: int) -> jax.Array:
    """Gives bool [ROW_TILE, 1]: which rows of this tile there are."""
    return (pl.program_id(1) * ROW_TILE + jnp.arange(ROW_TILE) < rows)[:, None]


def _load_rows(ref: Any, part: Any, is_row: jax.Array) -> jax.Array:
    part = ref.at[:, part]
    return triton.load(part, mask=jnp.broadcast_to(is_row, part.shape), other=0)


def _sum_of_products(
    left: Callable[[Any], jax.Array],
    right: Callable[[Any], jax.Array],
    summed: int,
    columns: int,
) -> jax.Array:
    """Gives float32 [ROW_TILE, columns], taking some of the summed channels at a time."""
    tile = _tile(summed, SUMMED_TILE)

    def add(index: jax.Array, total: jax.Array) -> jax.Array:
        part = pl.ds(index * tile, tile)
        return total + triton.dot(left(part), right(part))

    return lax.fori_loop(0, summed // tile, add, jnp.zeros((ROW_TILE, columns), jnp.float32))


def _store(
    outputs_ref: Any,
    sums_ref: Any,
    outputs: jax.Array,
    first: jax.Array,
    second: jax.Array,
    is_row: jax.Array,
) -> None:
    """Writes a tile, and what two values sum to over its rows."""
    triton.store(outputs_ref, outputs, mask=jnp.broadcast_to(is_row, outputs.shape))
    for index, values in enumerate((first, second)):
        sums_ref[index, :] = jnp.where(is_row, values, 0.0).sum(0)


def _tile(channels: int, most: int) -> int:
    """Gives the largest power of two, `most` or less, that divides a number of channels."""
    return min(channels & -channels, most)
