"""A compiled program, counted: what each op and collective costs. `hlo` counts it."""

import dataclasses
from collections.abc import Collection

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)


@dataclasses.dataclass(frozen=True)
class Op:
    """Cost of one op of a program, each time it runs.

    Attributes:
      name: The instruction's name, by which a trace names it.
      opcode: The instruction's operation.
      product_flops: FLOPs of matrix products and convolutions.
      other_flops: Other floating-point operations.
      num_bytes: Bytes read and written.
      runs: How often it runs in one call of the program.
      product_dtype: Dtype of the products' operands; empty without products.
      passes: Times that the hardware's own product is made for one product of this precision.
      scope: The named scopes it was traced under, such as `stage_1_block_1/conv_1`.
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

    @property
    def flops(self) -> int:
        """All FLOPs of one run."""
        return self.product_flops + self.other_flops


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective of a program.

    Attributes:
      name: The instruction's name; that of the start where it is asynchronous.
      kind: One of `COLLECTIVES`.
      num_bytes: Bytes of one device's part: what it gives to a reduction, a scatter or an exchange,
        what it receives of a gather.
      group_size: Devices that take part in one group.
      runs: How often it runs in one call of the program.
      scope_bytes: The bytes by named scope of what produced them.
      group_stride: How far apart a group's devices are in the program's order; 1 if neighbours.
    """

    name: str
    kind: str
    num_bytes: int
    group_size: int
    runs: int
    scope_bytes: dict[str, int]
    group_stride: int = 1


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled program, counted; for one device.

    Attributes:
      name: The module's name.
      num_devices: Devices that run it together.
      ops: Each op, by name; loops and calls stand for what is in them.
      collectives: Each collective, by name.
      branches: By conditional, the names of the ops that are counted of it: its largest branch's.
    """

    name: str
    num_devices: int
    ops: dict[str, Op]
    collectives: dict[str, Collective]
    branches: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    def without_branches_not_seen(self, seen: Collection[str]) -> "Program":
        """Leaves out the branches that a trace did not see run.

        A trace that lacks more than a tenth of the other ops does not name what ran, and says
        nothing about branches. One that ran in some of the traced steps counts in all; what a
        smaller branch does counts in none.
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
    def flops(self) -> int:
        """All FLOPs in one call."""
        return sum(op.flops * op.runs for op in self.ops.values())

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
