"""Count of a compiled program: FLOPs, bytes and collectives of each op.

Products and convolutions count 2 x multiply-adds of whole windows, padding included, because the
hardware computes it; model FLOPs leave it out. Zeros that a dilation inserts do not count. Other
floating-point operations count one per element and are kept apart. Bytes assume that nothing stays
in a cache; a fused slice or an update in place counts its elements alone. A loop's body counts once
per round, and an asynchronous pair once, where it starts.
"""

import functools
import math
import re
from typing import NamedTuple

import numpy as np

from dawnjax.profile.convolution_windows import convolution_multiply_adds, parse_window
from dawnjax.profile.device_groups import first_group
from dawnjax.profile.hlo_text import Computation, Instruction, Module, parse_module, scope_of
from dawnjax.profile.program import COLLECTIVES, ROW_BYTES, Collective, Op, Program

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

_SLICES = {"dynamic-slice", "slice"}

_FLOATS = ("f", "b", "c")  # f32, bf16, f8e4m3, c64; `pred`, `s32`, `u8` are none

_CONVOLUTION_CALLS = {
    "__cudnn$convForward": "forward",
    "__cudnn$convBiasActivationForward": "forward",
    "__cudnn$convForwardGraph": "forward",
    "__cudnn$convBackwardInput": "input_gradient",
    "__cudnn$convBackwardFilter": "kernel_gradient",
}

_MATMUL_CALLS = ("__cublas$", "__onednn$matmul", "__triton_gemm", "__cutlass")


def analyze(text: str, unknown_rounds: int = 1) -> Program:
    """Count a program's `compiled.as_text()`; an uncounted loop runs `unknown_rounds` times."""
    return _Counter(parse_module(text), unknown_rounds).count()


class _Flops(NamedTuple):
    """FLOPs of products and of other operations; the rest as of an `Op`."""

    product: int = 0
    other: int = 0
    dtype: str = ""
    passes: int = 1
    has_even_rows: bool = True


class _Counter:
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
                    self._async(instruction, runs)
                case "fusion":
                    self._add_fused_collectives(instruction, runs)
                    self._add_op(computation, instruction, runs)
                case opcode if opcode.removesuffix("-start") in COLLECTIVES:
                    self._add_collective(computation, instruction, instruction, runs)
                    self._add_op(computation, instruction, runs)
                case _:
                    self._add_op(computation, instruction, runs)

    def _async(self, start: Instruction, runs: int) -> None:
        inner = self._module.computations.get(start.called("calls"))
        wrapped = None if inner is None else inner.root
        if inner is not None and wrapped is not None and wrapped.opcode in COLLECTIVES:
            self._add_collective(inner, wrapped, start, runs)
        elif inner is not None:
            self._walk(inner.name, runs)

    def _add_fused_collectives(self, fusion: Instruction, runs: int) -> None:
        inner = self._module.computations.get(fusion.called("calls"))
        for instruction in () if inner is None else inner.instructions.values():
            if inner is not None and instruction.opcode in COLLECTIVES:
                self._add_collective(inner, instruction, fusion, runs)

    def _add_collective(
        self, computation: Computation, instruction: Instruction, named: Instruction, runs: int
    ) -> None:
        kind = instruction.opcode.removesuffix("-start")
        inside = {other.opcode for other in computation.instructions.values()}
        if kind == "all-reduce" and named.opcode == "fusion" and inside & _SLICES:
            # A TPU scatters sums by a fusion of their all-reduce and of slices of its result.
            kind = "reduce-scatter"
        group = first_group(
            instruction.attribute("replica_groups"),
            instruction.attribute("source_target_pairs"),
            self._module.num_devices,
        )
        # An all-gather receives the operand of every device in its group.
        factor = len(group) if kind == "all-gather" else 1
        num_bytes = factor * sum(o.num_bytes for o in computation.operands(instruction))
        self._collectives[named.name] = Collective(named.name, kind, num_bytes, runs, tuple(group))

    def _trip_count(self, computation: Computation, loop: Instruction) -> int:
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes)
        rounds = int(known[1]) if known else self._counted_loop(computation, loop)
        return self._unknown_rounds if rounds is None else rounds

    def _counted_loop(self, computation: Computation, loop: Instruction) -> int | None:
        """Number of rounds of `while i < constant` from `i = constant` by steps of 1, or None."""
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
            has_even_rows=flops.has_even_rows,
            scope=scope_of(instruction.op_name),
            source_line=self._module.source_line(instruction),
        )

    @functools.cache  # noqa: B019  The counter lives as long as one count.
    def _flops(self, name: str) -> _Flops:
        """FLOPs of a computation; dtype, passes and rows are those of its largest product."""
        computation = self._module.computations.get(name)
        if computation is None:
            return _Flops()
        parts = [self._instruction_flops(computation, i) for i in computation.instructions.values()]
        largest = max(parts, key=lambda part: part.product)
        product, rest = sum(part.product for part in parts), sum(part.other for part in parts)
        return largest._replace(product=product, other=rest) if product else _Flops(0, rest)

    def _instruction_flops(self, computation: Computation, instruction: Instruction) -> _Flops:
        opcode, operands = instruction.opcode, computation.operands(instruction)
        if opcode in ("fusion", "call"):
            return self._flops(instruction.called("calls") or instruction.called("to_apply"))
        if opcode == "dot" and operands:
            contracted = _dims(instruction.attribute("lhs_contracting_dims"))
            return _product(instruction, operands, contracted)
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
                # It reads only the elements that it writes, not the whole array.
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
    """Bytes that a fusion reads and writes; a sliced operand counts as its slices."""

    @functools.cache
    def sliced_elements(name: str) -> int | None:
        """Elements of a value that slices take; None where anything else reads it."""
        value, elements = inner.instructions[name], 0
        for user in inner.users[name]:
            if user.opcode in ("slice", "dynamic-slice", "gather"):
                elements += user.size
                continue
            # What lies before a slice is made of the slice alone.
            is_same = user.opcode in _ELEMENT_WISE and user.size == value.size
            behind = sliced_elements(user.name) if is_same and user is not inner.root else None
            if behind is None:
                return None
            elements += behind
        return elements or None

    total = 0
    root = inner.root
    results = inner.operands(root) if root.opcode == "tuple" else [root]
    updates = [result for result in results if result.opcode == "dynamic-update-slice"]
    # An update in place neither reads nor writes the rest of its array.
    updated = {update.operands[0] for update in updates if update.operands}
    for value in inner.instructions.values():
        if value.opcode == "parameter" and value.name not in updated:
            sliced = min(sliced_elements(value.name) or value.size, value.size)
            total += value.num_bytes * sliced // max(1, value.size)
    for result in results:
        if result in updates and len(result.operands) > 1:
            update = inner.instructions.get(result.operands[1])
            total += 2 * (update.num_bytes if update else 0)
        else:
            total += result.num_bytes
    return total or fusion.num_bytes


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
    if target.startswith("__cudnn$fmha"):
        config, channels = instruction.attributes, lhs.dims[-1]
        flops = _attention_flops(config, channels, is_gradient="Backward" in target)
        return _Flops(flops, 0, lhs.dtype, 1)
    dims = re.search(r'"lhs_contracting_dimensions":(\[[^\]]*\])', instruction.attributes)
    if target.startswith(_MATMUL_CALLS) and dims:
        return _product(instruction, operands, _dims(dims[1]))
    return _Flops()


def _attention_flops(config: str, channels: int, *, is_gradient: bool) -> int:
    """FLOPs of cuDNN's attention: two products, five in the gradient, which recomputes the scores.

    Only the pairs of query and key that a causal mask or window lets through count, although
    cuDNN computes whole blocks. 0 where the configuration lacks the shape of the scores.
    """
    scores = re.search(r'"dimensions":\s*\[([^\]]*)\]', config)
    if not scores:
        return 0
    batch, heads, queries, keys = (int(size.strip(' "')) for size in scores[1].split(","))
    seen = np.full(queries, keys)
    if re.search(r'"mask_type":\s*"(?:PADDING_)?CAUSAL"', config):
        seen = np.minimum(seen, np.arange(queries) + 1)
    window = re.search(r'"sliding_window_length":\s*"?(\d+)', config)
    if window and int(window[1]):
        seen = np.minimum(seen, int(window[1]))
    products = 5 if is_gradient else 2
    return 2 * products * batch * heads * int(seen.sum()) * channels


def _product(
    instruction: Instruction, operands: list[Instruction], contracted: list[int]
) -> _Flops:
    sides = [shape for operand in operands[:2] for shape in operand.shapes[:1]]
    lhs = sides[0]
    depth = math.prod(lhs.dims[dim] for dim in contracted)
    flops = 2 * instruction.shapes[0].size * depth
    has_even_rows = all(side.row_bytes % ROW_BYTES == 0 for side in sides)
    return _Flops(flops, 0, lhs.dtype, _passes(instruction, lhs.dtype), has_even_rows)


def _passes(instruction: Instruction, dtype: str) -> int:
    """Number of bfloat16 products that a TPU makes of one float32 product.

    Source: JAX, `jax.lax.Precision`: on TPU, DEFAULT is one pass of bfloat16, HIGH three, HIGHEST
    six.
    """
    if dtype != "f32":
        return 1
    precision = instruction.attribute("operand_precision")
    return 6 if "highest" in precision else 3 if "high" in precision else 1


def _literal(computation: Computation, instruction: Instruction) -> int | None:
    for _ in range(16):  # Real chains are short; the bound ends a cycle in a damaged program.
        if instruction.opcode == "copy":
            instruction = computation.operands(instruction)[0]
    text = instruction.attribute("literal") if instruction.opcode == "constant" else ""
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _dims(text: str) -> list[int]:
    return [int(dim) for dim in re.findall(r"\d+", text)]
