"""Shapes, with their padding, in which ops of a TPU want arrays; all others lie in `tiles`.

Source: programs compiled for a v5p, beside what is named below.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from dawnjax.plan.equations import inner_programs
from dawnjax.plan.tiles import LANES, ROWS, padded, tile_height

Shape = tuple[int, ...]

IMAGE_PARTS = 8
"""Into which images are split, where a device has fewer of them."""


def forms_of_images(jaxpr: Any) -> dict[Shape, Shape]:
    """Padded shape of the images that a program convolves, and of what it makes of them.

    Shapes are [batch, height, width, channels]. Batch and channels are the axes in tiles.
    """
    found: dict[Shape, Shape] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "conv_general_dilated":
            numbers = eqn.params["dimension_numbers"]
            if numbers.lhs_spec == numbers.out_spec == (0, 3, 1, 2):
                shapes = (eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape)
                found |= {shape: _form_of_images(*shape) for shape in shapes}
        for inner in inner_programs(eqn):
            found |= forms_of_images(inner)
    return found


def _form_of_images(batch: int, height: int, width: int, channels: int) -> Shape:
    """Padded shape of images; few are split along their width, and their parts are images too.

    They hold the border of a kernel of 3, as most kernels are.

    Source: XLA, `SpaceToBatchConverter`.
    """
    if batch < IMAGE_PARTS:
        batch, width = batch * IMAGE_PARTS, -(-(width + 2) // IMAGE_PARTS)
    axes = (batch, channels), (channels, batch)
    tiles = ((padded(rows, tile_height(rows)), padded(lanes, LANES)) for rows, lanes in axes)
    return height, width, *min(tiles, key=math.prod)


def with_forms(
    size: Callable[[Shape, Any], float], forms: Mapping[Shape, Shape]
) -> Callable[[Shape, Any], float]:
    """Size of arrays, of those with a padded shape as that has it."""
    return lambda shape, dtype: size(forms.get(shape, shape), dtype)


def form_of_columns(eqn: Any) -> Shape | None:
    """Padded shape of images in parts, once for each column of the kernel whose gradient is made.

    None for another op, and where images are many or are those of the data, with few channels.

    Source: XLA, `ConvolutionVisitor::PropagateOnBackpropFilterConv`.
    """
    numbers = eqn.params.get("dimension_numbers")
    if eqn.primitive.name != "conv_general_dilated" or numbers.lhs_spec != (3, 0, 1, 2):
        return None
    shape, kernel = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    columns = kernel[numbers.out_spec[3]]
    if shape[0] >= IMAGE_PARTS or shape[3] < ROWS or columns == 1:
        return None
    return columns, *_form_of_images(*shape)


def form_of_rows(eqn: Any) -> Shape | None:
    """Padded shape of what a gather takes or a scatter writes on: rows, one after another.

    None for another op, and where it takes or adds single elements or images.
    """
    name = eqn.primitive.name
    if not name.startswith(("gather", "scatter")):
        return None
    shape, numbers = eqn.outvars[0].aval.shape, eqn.params["dimension_numbers"]
    if name == "gather":
        inside = [shape[axis] for axis in numbers.offset_dims]
    else:
        outside = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        inside = [size for axis, size in enumerate(shape) if axis not in outside]
    row = [size for size in inside if size > 1]
    if len(row) != 1:
        return None
    return form_of_table((math.prod(shape) // row[0], row[0]))


def form_of_table(shape: Shape) -> Shape:
    """Padded shape of a table of rows, the last axis in lanes; other arrays are as they are."""
    if len(shape) != 2:
        return shape
    rows, lanes = shape
    return padded(rows, tile_height(rows)), padded(lanes, LANES)


def form_of_stack(shape: Shape) -> Shape:
    """Padded shape of the matrices that a loop stacks, each in tiles as its axes are.

    Other stacks are as they are.
    """
    if len(shape) != 3:
        return shape
    return shape[0], *form_of_table(shape[1:])
