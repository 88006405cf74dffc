"""The windows of convolutions and reductions, and what a convolution multiplies in them.

Whole windows count: positions of the padding too, the zeros that a dilation inserts not.
"""

import dataclasses
import functools
import re

import numpy as np

from dawnjax.profile.hlo_text import Instruction, Shape


@dataclasses.dataclass(frozen=True)
class WindowDim:
    """One dimension of a window: its taps, how it moves, its padding before, its dilations."""

    size: int
    stride: int
    low: int
    lhs_dilation: int
    rhs_dilation: int


def parse_window(text: str) -> list[WindowDim]:
    """Parses `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=1x1}`, by dimension."""
    fields = dict(part.split("=", 1) for part in text.strip("{}").split() if "=" in part)
    sizes = [size for size in fields.get("size", "").split("x") if size]

    def numbers(name: str, default: str) -> list[int]:
        parts = fields[name].split("x") if name in fields else [default] * len(sizes)
        return [int(part.partition("_")[0]) for part in parts]

    names = (("stride", "1"), ("pad", "0"), ("lhs_dilate", "1"), ("rhs_dilate", "1"))
    columns = (numbers(*name) for name in names)
    return [WindowDim(*dim) for dim in zip(map(int, sizes), *columns, strict=True)]


def convolution_multiply_adds(instruction: Instruction, rhs: Shape, result: Shape) -> int:
    """Counts the multiply-adds of a convolution: whole windows, without a dilation's holes.

    Args:
      instruction: Has `window` and `dim_labels`.
      rhs: The kernel operand.
      result: The result.
    """
    labels = re.match(r"(\w+)_(\w+)->(\w+)", instruction.attribute("dim_labels"))
    if labels is None:
        return 0
    window = parse_window(instruction.attribute("window"))
    in_features = rhs.dims[labels[2].index("i")]
    positions = 1
    for index, dim in enumerate(window):
        positions *= window_taps(result.dims[labels[3].index(str(index))], dim)
    batch, out_features = result.dims[labels[3].index("b")], result.dims[labels[3].index("f")]
    # Groups, of features or of the batch, are in the shapes already.
    return batch * out_features * in_features * positions


@functools.cache
def window_taps(out_size: int, dim: WindowDim) -> int:
    """Counts the pairs of result position and tap that meet an element, not a dilation's zero.

    Elements of the padding count.
    """
    if dim.lhs_dilation == 1:
        return out_size * dim.size
    starts = np.arange(out_size)[:, None] * dim.stride - dim.low
    positions = starts + np.arange(dim.size) * dim.rhs_dilation
    return int((positions % dim.lhs_dilation == 0).sum())
