"""Ops of a traced program as `liveness` counts them: what they read, make and hold meanwhile."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from dawnjax.plan import rewriting

Size = Callable[[tuple[int, ...], Any], float]
"""Bytes of an array of a shape and dtype on one device."""

SUMMED = "summed"
"""An op of our own: devices sum a gradient."""

NAMED = "stored"
"""An op of our own: a result that lies in memory, whatever makes it."""

COPY = "copy_of_argument"
"""An op of our own: a part of a stack that a loop takes in one round, a kernel laid out anew, rows
of a table, or rows for each group of a product."""

CONVOLUTION = "conv_general_dilated"

PRODUCTS = (CONVOLUTION, "dot_general")

REDUCED = "reduce"
"""Beginning of the primitives of sums, and of maxima and the like."""

_SUMS = (REDUCED, "argmax", "argmin", "cumsum", "cumlogsumexp", "cummax", NAMED)
"""Beginnings of primitives whose result lies in memory, while their operand may be computed."""

_WHOLE = (
    CONVOLUTION, "dot_general", "ragged_dot", "scatter", "sort", "top_k",
    "select_and_scatter", "reduce_window", "fft", "dynamic_update_slice", "while", "scan", "cond",
    "dot_product_attention", "custom_call", "ffi_call", "random_bits", "pallas_call", SUMMED,
    rewriting.ZEROS,
)  # fmt: skip
"""Beginnings of primitives whose result and operands lie in memory."""


@dataclasses.dataclass
class Buffer:
    """A result of the program.

    Attributes:
      born: Place of the op that makes it.
      dies: Place of its last reader.
    """

    shape: tuple[int, ...]
    dtype: str
    num_bytes: float
    name: str
    born: int
    dies: int


@dataclasses.dataclass
class Peak:
    """Most bytes at once, and the buffers that are alive then, the largest first.

    Attributes:
      tables: Bytes of the tables of a TPU's kernels in a loop, which its program has besides.
    """

    num_bytes: float
    buffers: list[Buffer]
    tables: float = 0.0

    def plus(self, buffer: Buffer) -> "Peak":
        """The peak with one more buffer."""
        return Peak(self.num_bytes + buffer.num_bytes, [*self.buffers, buffer], self.tables)


@dataclasses.dataclass
class Op:
    """An op; arrays are numbered through the program.

    Attributes:
      inner: What it holds while it runs, such as a round of a loop.
      carried: Operands whose memory its results take over.
      num_carried: Its first results, which a loop carries from round to round.
      equation: That of a product.
    """

    primitive: str
    inputs: list[int]
    outputs: list[int]
    name: str
    inner: Peak = dataclasses.field(default_factory=lambda: Peak(0.0, []))
    carried: frozenset[int] = frozenset()
    num_carried: int = 0
    equation: Any = None

    @property
    def dimensions(self) -> Any:
        """Contracted and batch axes of a product; None of another op."""
        return self.equation and self.equation.params["dimension_numbers"]

    @property
    def label(self) -> str:
        return self.name or self.primitive


def new_op(primitive: str) -> Op:
    return Op(primitive, [], [], primitive)


def is_whole(op: Op) -> bool:
    """Whether its result and its operands lie in memory."""
    return op.primitive.startswith(_WHOLE)


def is_kernel(op: Op) -> bool:
    """Whether its result lies in memory."""
    return op.primitive.startswith((*_WHOLE, *_SUMS))


def bytes_of(shape: tuple[int, ...], dtype: Any) -> float:
    """Bytes of an array; keys of random numbers count as two words."""
    return math.prod(shape) * float(getattr(dtype, "itemsize", 8))
