"""Costs of each op and collective of a compiled program, as `hlo` counts them."""

import dataclasses
from collections.abc import Collection

from dawnjax.profile.device_groups import group_stride

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)

ROW_BYTES = 16
"""A GPU's tensor cores read rows of matrices that are multiples of it. Source: CUDA C++ Programming
Guide, "Tensor Memory Accelerator": strides of arrays in global memory.
"""


@dataclasses.dataclass(frozen=True)
class Op:
    """Cost of one op of a program, each time it runs.

    Attributes:
      product_flops: FLOPs of matrix products and convolutions.
      other_flops: Other floating-point operations.
      runs: Runs in one call of the program.
      product_dtype: Dtype of the products' operands; empty without products.
      passes: Hardware products that make one product of this precision.
      has_even_rows: Whether rows of the products' operands are multiples of `ROW_BYTES`.
      scope: Named scopes of its trace, such as `stage_1_block_1/conv_1`.
      source_line: `file:line`; empty where unknown.
    """

    name: str
    opcode: str
    product_flops: int
    other_flops: int
    num_bytes: int
    runs: int
    product_dtype: str
    passes: int
    scope: str
    source_line: str
    has_even_rows: bool = True

    @property
    def flops(self) -> int:
        """All FLOPs of one run."""
        return self.product_flops + self.other_flops


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective of a program, under the name of its start where it is asynchronous.

    Attributes:
      num_bytes: Bytes of one device's part: the input of a reduction, a scatter or an exchange, the
        output of a gather.
      runs: Runs in one call of the program.
      group: Devices of its first group, by their place in the program's order.
    """

    name: str
    kind: str
    num_bytes: int
    runs: int
    group: tuple[int, ...]

    @property
    def group_size(self) -> int:
        return len(self.group)

    @property
    def group_stride(self) -> int:
        """Distance of a group's devices in the program's order; 1 if neighbours."""
        return group_stride(self.group)


@dataclasses.dataclass(frozen=True)
class Program:
    """Counts of a compiled program for one device.

    Loops and calls are replaced by the ops inside them. `branches` has, by conditional, the ops of
    its largest branch, the only one that counts.
    """

    name: str
    num_devices: int
    ops: dict[str, Op]
    collectives: dict[str, Collective]
    branches: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    def without_branches_not_seen(self, seen: Collection[str]) -> "Program":
        """Program without the branches that did not run in a trace.

        A trace that lacks more than a tenth of the other ops does not name its ops and decides
        nothing. A branch that ran in some traced steps counts in all of them; a smaller branch of
        the same conditional counts in none.
        """
        always = self.ops.keys() - set().union(*self.branches.values())
        if len(always & set(seen)) < 0.9 * len(always):
            return self
        missing = (names for names in self.branches.values() if names.isdisjoint(seen))
        gone = set().union(*missing)
        return dataclasses.replace(
            self,
            ops={name: op for name, op in self.ops.items() if name not in gone},
            collectives={n: c for n, c in self.collectives.items() if n not in gone},
        )

    @property
    def product_flops(self) -> int:
        return sum(op.product_flops * op.runs for op in self.ops.values())

    @property
    def product_dtype(self) -> str:
        """Dtype of most products' operands; `f32` without products."""
        totals: dict[str, int] = {}
        for op in self.ops.values():
            if op.product_dtype:
                flops = op.product_flops * op.runs
                totals[op.product_dtype] = totals.get(op.product_dtype, 0) + flops
        return max(totals, key=lambda dtype: totals[dtype], default="f32")

    @property
    def num_bytes(self) -> int:
        """Bytes that all ops read and write in one call."""
        return sum(op.num_bytes * op.runs for op in self.ops.values())

    @property
    def collective_bytes(self) -> dict[str, int]:
        """Bytes of one device in one call, by kind of collective."""
        totals: dict[str, int] = {}
        for collective in self.collectives.values():
            num_bytes = collective.num_bytes * collective.runs
            totals[collective.kind] = totals.get(collective.kind, 0) + num_bytes
        return totals
