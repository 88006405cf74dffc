"""What a compiled program computes, moves and sends: FLOPs, bytes and collectives of each op.

Counting rules. FLOPs of matrix products and convolutions are 2 x multiply-adds of whole windows:
positions of the padding count (hardware computes them; model FLOPs leave them out), the zeros that
a dilation inserts do not. Other floating-point operations count one an element and are kept apart.
Bytes are what an op reads and writes if nothing stays in a cache; a fused slice counts as the
slice, an update in place as the update. A loop's body counts as often as it runs, and once where
the program does not say how often, as of the loop over a call's steps. An asynchronous pair counts
once, where it starts.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from dawnjax.profile.attention_calls import ATTENTION_CALL, attention_call_flops
from dawnjax.profile.convolution_windows import convolution_multiply_adds, parse_window
from dawnjax.profile.hlo_text import (
    Computation,
    Instruction,
    Module,
    Shape,
    parse_module,
    scope_of,
)

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)

# fmt: off
_FREE = frozenset((
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "opt-barrier", "add-dependency", "domain", "iota", "async-update",
))
# fmt: on
"""Operations that move and compute nothing, or were counted where they started."""

# fmt: off
_ARITHMETIC = frozenset((
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "negate",
    "abs", "sign", "sqrt", "rsqrt", "cbrt", "exponential", "exponential-minus-one", "log",
    "log-plus-one", "logistic", "tanh", "sine", "cosine", "tan", "erf", "atan2", "floor", "ceil",
    "round-nearest-afz", "round-nearest-even", "clamp",
))
# fmt: on

_ELEMENT_WISE = _ARITHMETIC | {"bitcast", "convert", "reshape"}

_FLOATS = ("f", "b", "c")  # f32, bf16, f8e4m3, c64; `pred`, `s32`, `u8` are none

_CONVOLUTION_CALLS = {
    "__cudnn$convForward": "forward",
    "__cudnn$convBiasActivationForward": "forward",
    "__cudnn$convForwardGraph": "forward",
    "__cudnn$convBackwardInput": "input_gradient",
    "__cudnn$convBackwardFilter": "kernel_gradient",
}

_MATMUL_CALLS = ("__cublas$", "__onednn$matmul", "__triton_gemm", "__cutlass")


@dataclasses.dataclass(frozen=True)
class Op:
    """What one op of a program costs, each time it runs.

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

        Args:
          seen: Names of the ops in the trace.
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
        """FLOPs of matrix products and convolutions in one call."""
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


def analyze(text: str, unknown_rounds: int = 1) -> Program:
    """Counts a compiled program, as `compiled.as_text()` prints it.

    Args:
      text: The program.
      unknown_rounds: How often a loop runs where the program does not say it.

    Raises:
      ProgramTextError: The text is no compiled program.
    """
    return _Counter(parse_module(text), unknown_rounds).count()


class _Flops(NamedTuple):
    """FLOPs of products and of other operations; the products' dtype and passes, as of an `Op`."""

    product: int = 0
    other: int = 0
    dtype: str = ""
    passes: int = 1


class _Counter:
    """Counts one module; holds what is found on the way."""

    def __init__(self, module: Module, unknown_rounds: int):
        self._module = module
        self._unknown_rounds = unknown_rounds
        self._ops: dict[str, Op] = {}
        self._collectives: dict[str, Collective] = {}
        self._branches: dict[str, frozenset[str]] = {}

    def count(self) -> Program:
        self._walk(self._module.entry, 1)
        return Program(
            self._module.name,
            self._module.num_devices,
            self._ops,
            self._collectives,
            self._branches,
        )

    def _walk(self, name: str, runs: int) -> None:
        computation = self._module.computations.get(name)
        if computation is None:
            return
        for instruction in computation.instructions.values():
            match instruction.opcode:
                case opcode if opcode in _FREE or opcode.endswith("-done"):
                    continue
                case "while":
                    rounds = self._trip_count(computation, instruction)
                    self._walk(instruction.called("body"), runs * rounds)
                    self._walk(instruction.called("condition"), runs * rounds)
                case "call":
                    self._walk(instruction.called("to_apply"), runs)
                case "conditional":
                    before = set(self._ops)
                    self._walk(self._largest_branch(instruction), runs)
                    self._branches[instruction.name] = frozenset(self._ops.keys() - before)
                case "async-start":
                    self._async(computation, instruction, runs)
                case opcode if opcode.removesuffix("-start") in COLLECTIVES:
                    self._add_collective(computation, instruction, instruction, runs)
                    self._add_op(computation, instruction, runs)
                case _:
                    self._add_op(computation, instruction, runs)

    def _async(self, computation: Computation, start: Instruction, runs: int) -> None:
        """Counts what an asynchronous start calls, under the name of the start."""
        inner = self._module.computations.get(start.called("calls"))
        wrapped = None if inner is None else inner.root
        if inner is not None and wrapped is not None and wrapped.opcode in COLLECTIVES:
            self._add_collective(inner, wrapped, start, runs, outer=computation)
        elif inner is not None:
            self._walk(inner.name, runs)

    def _add_collective(
        self,
        computation: Computation,
        instruction: Instruction,
        named: Instruction,
        runs: int,
        outer: Computation | None = None,
    ) -> None:
        kind = instruction.opcode.removesuffix("-start")
        group_size = self._group_size(instruction)
        factor = group_size if kind == "all-gather" else 1
        given = [] if outer is None else outer.operands(named)
        scope_bytes: dict[str, int] = {}
        for index, operand in enumerate(computation.operands(instruction)):
            scope = _producer_scope(computation, operand)
            if outer is not None and operand.opcode == "parameter" and index < len(given):
                scope = _producer_scope(outer, given[index])
            scope = scope or scope_of(instruction.op_name)
            scope_bytes[scope] = scope_bytes.get(scope, 0) + operand.num_bytes * factor
        self._collectives[named.name] = Collective(
            named.name,
            kind,
            sum(scope_bytes.values()),
            group_size,
            runs,
            scope_bytes,
            group_stride(instruction.attribute("replica_groups")),
        )

    def _group_size(self, instruction: Instruction) -> int:
        if instruction.attribute("source_target_pairs"):
            return 2
        return group_size(instruction.attribute("replica_groups"), self._module.num_devices)

    def _trip_count(self, computation: Computation, loop: Instruction) -> int:
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes)
        rounds = int(known[1]) if known else self._counted_loop(computation, loop)
        return self._unknown_rounds if rounds is None else rounds

    def _counted_loop(self, computation: Computation, loop: Instruction) -> int | None:
        """Counts the rounds of `while i < constant` from `i = constant` by steps of 1, or None."""
        condition = self._module.computations.get(loop.called("condition"))
        if condition is None or condition.root.opcode != "compare":
            return None
        if condition.root.attribute("direction") != "LT":
            return None
        sides = condition.operands(condition.root)
        if len(sides) != 2 or sides[0].opcode != "get-tuple-element":
            return None
        bound = _literal(condition, sides[1])
        index = sides[0].attribute("index")
        initial = computation.operands(loop)
        if bound is None or not initial or initial[0].opcode != "tuple" or not index.isdigit():
            return None
        values = computation.operands(initial[0])
        body = self._module.computations.get(loop.called("body"))
        if int(index) >= len(values) or body is None or body.root.opcode != "tuple":
            return None
        start, updates = _literal(computation, values[int(index)]), body.operands(body.root)
        if start is None or int(index) >= len(updates) or updates[int(index)].opcode != "add":
            return None
        added = [_literal(body, operand) for operand in body.operands(updates[int(index)])]
        return max(0, bound - start) if 1 in added else None

    def _largest_branch(self, instruction: Instruction) -> str:
        names = re.findall(r"%?([\w.\-]+)", instruction.attribute("branch_computations"))
        names += [instruction.called(f"{side}_computation") for side in ("true", "false")]
        known = [name for name in names if name in self._module.computations]
        return max(known, key=lambda name: sum(self._flops(name)[:2]), default="")

    def _add_op(self, computation: Computation, instruction: Instruction, runs: int) -> None:
        flops = self._instruction_flops(computation, instruction)
        self._ops[instruction.name] = Op(
            name=instruction.name,
            opcode=instruction.opcode,
            product_flops=flops.product,
            other_flops=flops.other,
            num_bytes=self._bytes(computation, instruction),
            runs=runs,
            product_dtype=flops.dtype,
            passes=flops.passes,
            scope=scope_of(instruction.op_name),
            source_line=self._module.source_line(instruction),
        )

    @functools.cache  # noqa: B019  The counter lives as long as one count.
    def _flops(self, name: str) -> _Flops:
        """Sums the FLOPs of a computation; dtype and passes are those of its largest product."""
        computation = self._module.computations.get(name)
        if computation is None:
            return _Flops()
        parts = [self._instruction_flops(computation, i) for i in computation.instructions.values()]
        largest = max(parts, key=lambda part: part.product)
        product, rest = sum(part.product for part in parts), sum(part.other for part in parts)
        return _Flops(product, rest, largest.dtype, largest.passes) if product else _Flops(0, rest)

    def _instruction_flops(self, computation: Computation, instruction: Instruction) -> _Flops:
        opcode, operands = instruction.opcode, computation.operands(instruction)
        if opcode in ("fusion", "call"):
            return self._flops(instruction.called("calls") or instruction.called("to_apply"))
        if opcode == "dot" and operands:
            contracted = _dims(instruction.attribute("lhs_contracting_dims"))
            return _product(instruction, operands[0].shapes[0], contracted)
        if opcode == "convolution" and len(operands) == 2:
            lhs, rhs = operands[0].shapes[0], operands[1].shapes[0]
            adds = convolution_multiply_adds(instruction, rhs, instruction.shapes[0], lhs)
            # A TPU reads uint8 images as they are; the product is that of the second operand.
            dtype = lhs.dtype if lhs.dtype.startswith(_FLOATS) else rhs.dtype
            return _Flops(2 * adds, 0, dtype, _passes(instruction, dtype))
        if opcode == "custom-call":
            return _custom_call_flops(instruction, operands)
        if not instruction.shapes or not instruction.shapes[0].dtype.startswith(_FLOATS):
            return _Flops()
        if opcode in _ARITHMETIC:
            return _Flops(other=instruction.size)
        if opcode == "reduce" and operands:
            return _Flops(other=operands[0].size)
        if opcode in ("reduce-window", "select-and-scatter"):
            window = parse_window(instruction.attribute("window"))
            return _Flops(other=instruction.size * math.prod(dim.size for dim in window))
        return _Flops()

    def _bytes(self, computation: Computation, instruction: Instruction) -> int:
        opcode, operands = instruction.opcode, computation.operands(instruction)
        read = sum(operand.num_bytes for operand in operands)
        match opcode:
            case "slice" | "dynamic-slice" | "gather":
                return 2 * instruction.num_bytes
            case "dynamic-update-slice" | "scatter":
                updates = operands[-1 if opcode == "scatter" else 1 :][:1]
                return 2 * sum(update.num_bytes for update in updates)
            case "fusion":
                inner = self._module.computations.get(instruction.called("calls"))
                if inner is not None:
                    return _fusion_bytes(inner, instruction)
            case "copy-start":
                return 2 * (operands[0].num_bytes if operands else 0)
            case _ if opcode.endswith("-start"):
                return 2 * read  # the result holds the operands again
        return read + instruction.num_bytes


def _fusion_bytes(inner: Computation, fusion: Instruction) -> int:
    """Bytes that a fusion reads and writes; slices of operands count as slices."""
    total = 0
    root = inner.root
    results = inner.operands(root) if root.opcode == "tuple" else [root]
    updates = [result for result in results if result.opcode == "dynamic-update-slice"]
    updated = {update.operands[0] for update in updates if update.operands}
    for instruction in inner.instructions.values():
        if instruction.opcode != "parameter" or instruction.name in updated:
            continue
        sliced = _sliced_elements(inner, instruction)
        if sliced is None or sliced > instruction.size:
            total += instruction.num_bytes
        else:
            total += instruction.num_bytes * sliced // max(1, instruction.size)
    for result in results:
        if result in updates and len(result.operands) > 1:
            update = inner.instructions.get(result.operands[1])
            total += 2 * (update.num_bytes if update else 0)
        else:
            total += result.num_bytes
    return total or fusion.num_bytes


def _sliced_elements(inner: Computation, value: Instruction) -> int | None:
    """Elements of a value that slices take; None where anything else reads it.

    A fusion makes what lies between, such as a factor, of those elements alone.
    """
    elements = 0
    for user in inner.users[value.name]:
        if user.opcode in ("slice", "dynamic-slice", "gather"):
            elements += user.size
        elif user.opcode in _ELEMENT_WISE and user.size == value.size and user is not inner.root:
            behind = _sliced_elements(inner, user)
            if behind is None:
                return None
            elements += behind
        else:
            return None
    return elements or None


def _custom_call_flops(instruction: Instruction, operands: list[Instruction]) -> _Flops:
    if not operands or not instruction.shapes or not operands[0].shapes:
        return _Flops()
    target = instruction.attribute("custom_call_target").strip('"')
    lhs = operands[0].shapes[0]
    role = _CONVOLUTION_CALLS.get(target)
    if role is not None and len(operands) >= 2:
        # Labels and window are those of the forward convolution, whichever of its three arrays
        # the call computes; the result comes first, then the workspace.
        rhs, result = operands[1].shapes[0], instruction.shapes[0]
        kernel = result if role == "kernel_gradient" else rhs
        output = {"forward": result, "input_gradient": lhs, "kernel_gradient": rhs}[role]
        adds = convolution_multiply_adds(instruction, kernel, output)
        return _Flops(2 * adds, 0, lhs.dtype, _passes(instruction, lhs.dtype))
    if target.startswith(ATTENTION_CALL):
        config, channels = instruction.attributes, lhs.dims[-1]
        flops = attention_call_flops(config, channels, is_gradient="Backward" in target)
        return _Flops(flops, 0, lhs.dtype, 1)
    dims = re.search(r'"lhs_contracting_dimensions":(\[[^\]]*\])', instruction.attributes)
    if target.startswith(_MATMUL_CALLS) and dims:
        return _product(instruction, lhs, _dims(dims[1]))
    return _Flops()


def _product(instruction: Instruction, lhs: Shape, contracted: list[int]) -> _Flops:
    """FLOPs of a matrix product whose result comes first."""
    depth = math.prod(lhs.dims[dim] for dim in contracted)
    flops = 2 * instruction.shapes[0].size * depth
    return _Flops(flops, 0, lhs.dtype, _passes(instruction, lhs.dtype))


def _passes(instruction: Instruction, dtype: str) -> int:
    """How many bfloat16 products a TPU makes of one float32 product.

    Source: JAX, `jax.lax.Precision`: on TPU, DEFAULT is one pass of bfloat16, HIGH three, HIGHEST
    six.
    """
    if dtype != "f32":
        return 1
    precision = instruction.attribute("operand_precision")
    return 6 if "highest" in precision else 3 if "high" in precision else 1


def group_size(text: str, num_devices: int) -> int:
    """Number of devices that take part in one group of a collective.

    Args:
      text: Its `replica_groups`, in any of XLA's three ways: `{{0,1},{2,3}}`, `[16,4]<=[64]T(1,0)`
        (16 groups of 4) or `mesh['x'=16,'y'=4] {'y'}` (groups along the named axes).
      num_devices: Devices of the program: one group of all where none are listed.
    """
    text = text.strip()
    mesh = re.match(r"@?mesh\w*\[([^\]]*)\]\s*\{([^}]*)\}", text)
    if mesh:
        sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", mesh[1])}
        # A part of an axis is written 'x':(before)size.
        total = 1
        for name, part in re.findall(r"'([^']*)'(?::\(\d+\)(\d+))?", mesh[2]):
            total *= int(part) if part else sizes.get(name, 1)
        return total
    tiled = re.match(r"\[(\d+),(\d+)\]<=", text)
    if tiled:
        return int(tiled[2])
    groups = re.findall(r"\{([\d,\s]+)\}", text)
    if groups:
        return max(len(group.split(",")) for group in groups)
    return num_devices


def group_stride(text: str) -> int:
    """How far apart the devices of a collective's group are, on average and rounded down.

    Args:
      text: Its `replica_groups`, in any of the three ways of `group_size`; 1 where it lists none.
    """
    first = _first_group(text.strip())
    return max(1, (max(first) - min(first)) // (len(first) - 1)) if len(first) > 1 else 1


def _first_group(text: str) -> list[int]:
    """Devices of the first group that is listed; empty where none is."""
    tiled = re.match(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if tiled:
        devices = np.arange(int(tiled[1]) * int(tiled[2]))
        devices = devices.reshape([int(size) for size in tiled[3].split(",")])
        order = [int(axis) for axis in (tiled[4] or "").split(",") if axis]
        if len(order) == devices.ndim:
            devices = devices.transpose(order)
        return devices.reshape(-1)[: int(tiled[2])].tolist()
    mesh = re.match(r"@?mesh\w*\[([^\]]*)\]\s*\{([^}]*)\}", text)
    if mesh:
        axes = re.findall(r"'([^']*)'=(\d+)", mesh[1])
        along = set(re.findall(r"'([^']*)'", mesh[2]))
        sizes = [int(size) for _, size in axes]
        devices = np.arange(math.prod(sizes)).reshape(sizes)
        place = tuple(slice(None) if name in along else 0 for name, _ in axes)
        return devices[place].reshape(-1).tolist()
    listed = re.search(r"\{([\d,\s]+)\}", text)
    return [int(device) for device in listed[1].split(",")] if listed else []


def _producer_scope(computation: Computation, instruction: Instruction) -> str:
    """The scope of what made a value, through ops that only pass it on."""
    passes_on = ("bitcast", "get-tuple-element", "copy", "convert", "transpose", "reshape")
    for _ in range(16):
        scope = scope_of(instruction.op_name)
        sources = computation.operands(instruction)
        if scope or not sources:
            return scope
        # The compiler's own fusions, such as one that joins small arrays, have no name of JAX's.
        if instruction.opcode not in passes_on and instruction.op_name:
            return ""
        instruction = sources[0]
    return ""


def _literal(computation: Computation, instruction: Instruction) -> int | None:
    """The whole number that a constant is, or a copy of one; None of anything else."""
    while instruction.opcode == "copy":
        instruction = computation.operands(instruction)[0]
    text = instruction.attribute("literal") if instruction.opcode == "constant" else ""
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _dims(text: str) -> list[int]:
    return [int(dim) for dim in re.findall(r"\d+", text)]
