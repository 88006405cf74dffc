"""Multiply-adds of convolutions and windows of reductions.

A model's mathematics needs the taps that meet an element of the image (`valid_taps`). A compiled
convolution also multiplies the padding (`whole_window_taps`). Neither counts the zeros that a
dilation inserts.
"""

import dataclasses
import functools
import re

import numpy as np

from dawnjax.profile.hlo_text import Instruction, Shape


@dataclasses.dataclass(frozen=True)
class WindowDim:
    """One dimension of a window: its taps, stride, padding before, and dilations."""

    size: int
    stride: int
    low: int
    lhs_dilation: int
    rhs_dilation: int


def parse_window(text: str) -> list[WindowDim]:
    """Dimensions of `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=1x1}`."""
    fields = dict(part.split("=", 1) for part in text.strip("{}").split() if "=" in part)
    sizes = [size for size in fields.get("size", "").split("x") if size]

    def numbers(name: str, default: str) -> list[int]:
        parts = fields[name].split("x") if name in fields else [default] * len(sizes)
        return [int(part.partition("_")[0]) for part in parts]

    names = (("stride", "1"), ("pad", "0"), ("lhs_dilate", "1"), ("rhs_dilate", "1"))
    columns = (numbers(*name) for name in names)
    return [WindowDim(*dim) for dim in zip(map(int, sizes), *columns, strict=True)]


def convolution_multiply_adds(
    instruction: Instruction, rhs: Shape, result: Shape, lhs: Shape | None = None
) -> int:
    """Number of multiply-adds that a compiled convolution makes, those on padding included.

    Compilers for TPUs exchange the operands of some gradients, so that the window is wider than
    the image. Such padding exists in the notation alone and does not count. `lhs` is None where
    its windows are not those of the instruction.
    """
    labels = re.match(r"([^\W_]+)_([^\W_]+)->(\w+)", instruction.attribute("dim_labels"))
    if labels is None:
        return 0
    window = parse_window(instruction.attribute("window"))
    in_features = rhs.dims[labels[2].index("i")]
    positions = 1
    for index, dim in enumerate(window):
        out_size = result.dims[labels[3].index(str(index))]
        in_size = lhs.dims[labels[1].index(str(index))] if lhs else dim.size
        is_exchanged = dim.size > in_size
        positions *= (
            valid_taps(out_size, in_size, dim) if is_exchanged else whole_window_taps(out_size, dim)
        )
    batch, out_features = result.dims[labels[3].index("b")], result.dims[labels[3].index("f")]
    # Groups, of features or of the batch, are in the shapes already.
    return batch * out_features * in_features * positions


@functools.cache
def whole_window_taps(out_size: int, dim: WindowDim) -> int:
    """Number of pairs of result position and tap that meet the image or its padding."""
    return int(_meets_an_element(_positions(out_size, dim), dim).sum())


@functools.cache
def valid_taps(out_size: int, in_size: int, dim: WindowDim) -> int:
    """Number of pairs of result position and tap that meet the image."""
    positions = _positions(out_size, dim)
    inside = (positions >= 0) & (positions <= (in_size - 1) * dim.lhs_dilation)
    return int((inside & _meets_an_element(positions, dim)).sum())


def _positions(out_size: int, dim: WindowDim) -> np.ndarray:
    """Image position of each tap for each result position: int [results, taps]."""
    starts = np.arange(out_size)[:, None] * dim.stride - dim.low
    return starts + np.arange(dim.size) * dim.rhs_dilation


def _meets_an_element(positions: np.ndarray, dim: WindowDim) -> np.ndarray:
    # A dilated image has its elements at multiples; the zeros between them do not count.
    return positions % dim.lhs_dilation == 0
