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
    """One dimension of a window: its taps, how it moves, its padding and its dilations."""

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    lhs_dilation: int = 1
    rhs_dilation: int = 1


def parse_window(text: str) -> list[WindowDim]:
    """Gives the dimensions of `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=1x1}`."""
    fields = dict(part.split("=", 1) for part in text.strip("{}").split() if "=" in part)
    sizes = [int(size) for size in fields.get("size", "").split("x") if size]
    dims = []
    for index, size in enumerate(sizes):

        def number(name: str, default: int, index: int = index) -> int:
            return int(fields[name].split("x")[index]) if name in fields else default

        low, high = 0, 0
        if "pad" in fields:
            low, high = (int(p) for p in fields["pad"].split("x")[index].split("_"))
        dims.append(
            WindowDim(
                size,
                number("stride", 1),
                low,
                high,
                number("lhs_dilate", 1),
                number("rhs_dilate", 1),
            )
        )
    return dims


def convolution_multiply_adds(instruction: Instruction, rhs: Shape, result: Shape) -> int:
    """Gives the multiply-adds of a convolution: whole windows, without the holes of a dilation.

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
        out_size = result.dims[labels[3].index(str(index))]
        positions *= window_taps(
            out_size, dim.size, dim.stride, dim.low, dim.lhs_dilation, dim.rhs_dilation
        )
    batch, out_features = result.dims[labels[3].index("b")], result.dims[labels[3].index("f")]
    # Groups, of features or of the batch, are in the shapes already.
    return batch * out_features * in_features * positions


@functools.cache
def window_taps(
    out_size: int, kernel: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    """Counts the pairs of result position and tap that meet an element, not a dilation's zero.

    Elements of the padding count.
    """
    if lhs_dilation == 1:
        return out_size * kernel
    positions = np.arange(out_size)[:, None] * stride + np.arange(kernel) * rhs_dilation - low
    return int((positions % lhs_dilation == 0).sum())
