"""Parser of a compiled program's text into computations of instructions; `hlo` counts them.

Source: OpenXLA, `docs/hlo_dumps.md` and `docs/operation_semantics.md`; syntax as printed by XLA's
compilers for CPU, GPU and TPU.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator

from dawnjax.errors import RunError

# fmt: off
_BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
    "c64": 64, "c128": 128, "token": 0, "opaque": 0,
}
# fmt: on

# From the start of a word to the next bracket: no long word and no row of brackets takes long.
_ARRAY = re.compile(r"(?<!\w)([a-z]\w*+)\[([^\[\]]*+)\](?:\{([\d,]*+))?")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([^\s=]+) = (.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([^\s(]+) \(.*\{\s*$")
_COMMENT = re.compile(r"/\*.{0,200}?\*/")
_TABLE_ROW = re.compile(r"^(\d+) (.*)$")
_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[{}()\[\], ]')


class ProgramTextError(RunError):
    """A text that is not a compiled program; one line."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """Dtype, by XLA's name such as `bf16`, and dimensions of an array.

    `minor` is the dimension along which neighbours in memory lie, of more than one element.
    """

    dtype: str
    dims: tuple[int, ...]
    minor: int = -1

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def num_bytes(self) -> int:
        """Bytes without the padding of the memory layout."""
        return self._bytes_of(self.size)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of neighbours in memory, without padding."""
        return self._bytes_of(self.dims[self.minor] if self.dims else 1)

    def _bytes_of(self, elements: int) -> int:
        bits = _BITS.get(self.dtype, 8 if self.dtype.startswith("f8") else 4)
        return -(-elements * bits // 8)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction: `name = shapes opcode(operands), attributes`.

    `attributes` is the text after the operands, with `parameter_number` or `literal` first. A tuple
    has several `shapes`, and the text of each of its `elements`.
    """

    name: str
    shapes: tuple[Shape, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool = False
    elements: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays of the result."""
        return sum(shape.num_bytes for shape in self.shapes)

    @property
    def size(self) -> int:
        return sum(shape.size for shape in self.shapes)

    def attribute(self, name: str) -> str:
        """Text of an attribute, brackets included; empty where it is absent."""
        begin = re.search(rf"(?:^|[\s,{{]){re.escape(name)}=", self.attributes)
        if not begin:
            return ""
        for position, mark, depth in _marks(self.attributes, begin.end()):
            # Replica groups may go on with the order of their mesh's devices, and with its axes.
            goes_on = {",": " device_ids=", " ": ("device_ids=", "{")}.get(mark)
            is_end = goes_on and not self.attributes.startswith(goes_on, position + 1)
            if depth < 0 or depth == 0 and is_end:
                return self.attributes[begin.end() : position].strip()
        return self.attributes[begin.end() :].strip()

    def called(self, name: str) -> str:
        """Name of the computation in an attribute; empty where there is none."""
        return self.attribute(name).lstrip("%")

    @property
    def op_name(self) -> str:
        """Path of names under which JAX traced it, such as `jit(f)/scope/dot_general`."""
        match = re.search(r'op_name="((?:[^"\\]|\\.)*)"', self.attributes)
        return match[1] if match else ""


def _marks(text: str, start: int) -> Iterator[tuple[int, str, int]]:
    """Position, mark and depth after it of each bracket, comma and space outside quotes."""
    depth = 0
    for match in _MARK.finditer(text, start):
        mark = match[0]
        depth += (mark in "([{") - (mark in ")]}")
        if len(mark) == 1:
            yield match.start(), mark, depth


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions by name, in the order of the program."""

    name: str
    instructions: dict[str, Instruction]

    @functools.cached_property
    def root(self) -> Instruction:
        """Instruction whose result the computation returns."""
        ordered = list(self.instructions.values())
        return next((instruction for instruction in ordered if instruction.is_root), ordered[-1])

    @functools.cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Instructions that read each instruction, by its name."""
        users: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for instruction in self.instructions.values():
            for operand in self.operands(instruction):
                users[operand.name].append(instruction)
        return users

    def operands(self, instruction: Instruction) -> list[Instruction]:
        return [self.instructions[o] for o in instruction.operands if o in self.instructions]


@dataclasses.dataclass(frozen=True)
class Module:
    """A compiled program; `source_lines` maps the number of a stack frame to `file:line`."""

    name: str
    num_devices: int
    entry: str
    computations: dict[str, Computation]
    source_lines: dict[int, str]

    def source_line(self, instruction: Instruction) -> str:
        """Line of Python that an instruction comes from; empty where unknown."""
        frame = re.search(r"stack_frame_id=(\d+)", instruction.attributes)
        if frame:
            return self.source_lines.get(int(frame[1]), "")
        file = re.search(r'source_file="([^"]*)"', instruction.attributes)
        line = re.search(r"source_line=(\d+)", instruction.attributes)
        return f"{file[1]}:{line[1]}" if file and line else ""


def parse_module(text: str) -> Module:
    """Parse the text of `compiled.as_text()`; `ProgramTextError` for any other text."""
    lines = text.splitlines()
    header = next((line for line in lines if line.startswith("HloModule ")), "")
    if not header:
        raise ProgramTextError("the text is not a compiled program: it has no line 'HloModule'")
    computations: dict[str, Computation] = {}
    entry, current, instructions = "", "", {}
    for line in lines:
        line = _COMMENT.sub("", line) if "/*" in line else line
        if current:
            if line.startswith("}"):
                computations[current] = Computation(current, instructions)
                current, instructions = "", {}
                continue
            instruction = _parse_instruction(line)
            if instruction is not None:
                instructions |= _elements_read(instruction, instructions)
                instructions[instruction.name] = instruction
            continue
        head = _COMPUTATION.match(line)
        if head and not line.startswith("HloModule"):
            current = head[2]
            entry = current if head[1] else entry
    if not entry:
        raise ProgramTextError("the text is not a whole program: it has no entry computation")
    name = re.split(r"[\s,]", header.removeprefix("HloModule "))[0]
    num_devices = _field(header, "num_partitions", 1) * _field(header, "replica_count", 1)
    return Module(name, num_devices, entry, computations, _source_lines(lines))


def _parse_instruction(line: str) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    if not match:
        return None
    is_root, name, rest = match.groups()
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    if end <= 0:
        return None
    shape_text, rest = rest[:end], rest[end:].lstrip()
    opened = rest.find("(")
    if opened <= 0:
        return None
    closed = _closing(rest, opened)
    opcode = rest[:opened]
    inside, attributes = rest[opened + 1 : closed], rest[closed + 1 :].lstrip(", ")
    operands: tuple[str, ...] = ()
    if opcode == "parameter":
        attributes = f"parameter_number={inside}, {attributes}"
    elif opcode == "constant":
        attributes = f"literal={inside}, {attributes}" if len(inside) < 64 else attributes
    else:
        operands = tuple(_operand_names(inside))
    shapes = tuple(_shapes(shape_text))
    return Instruction(
        name, shapes, opcode, operands, attributes, bool(is_root), _elements(shape_text)
    )


def _elements_read(
    instruction: Instruction, before: dict[str, Instruction]
) -> dict[str, Instruction]:
    """Instructions for the operands written `tuple#1`, short for `get-tuple-element(tuple)`.

    XLA of jax 0.12 writes its dumped programs so. An operand that is not known would leave its
    bytes and FLOPs out, so it is an error.
    """
    read: dict[str, Instruction] = {}
    for operand in instruction.operands:
        names = operand.split("#")
        # `tuple#1#0` is an element of an element.
        for depth in range(1, len(names) + 1):
            name, index = "#".join(names[:depth]), names[depth - 1]
            if name in before or name in read:
                continue
            whole = name.rpartition("#")[0]
            of = before.get(whole) or read.get(whole)
            if of is None or not index.isdigit() or int(index) >= len(of.elements):
                raise ProgramTextError(
                    f"the program's text is not understood: what is {operand!r}?"
                )
            shape = of.elements[int(index)]
            read[name] = Instruction(
                name,
                tuple(_shapes(shape)),
                "get-tuple-element",
                (whole,),
                f"index={index}",
                elements=_elements(shape),
            )
    return read


def _elements(shape_text: str) -> tuple[str, ...]:
    """Texts of the shapes in a tuple's; none of an array's."""
    return tuple(_parts(shape_text[1:-1])) if shape_text.startswith("(") else ()


def _shapes(text: str) -> Iterator[Shape]:
    for dtype, dims, layout in _ARRAY.findall(text):
        # A bounded dynamic dimension is printed as `<=8`.
        sizes = tuple(int(size.lstrip("<=")) for size in dims.split(",") if size)
        order = (int(place[:3]) for place in layout.split(",") if place)
        minor = next((i for i in order if i < len(sizes) and sizes[i] > 1), -1)
        yield Shape(dtype, sizes, minor)


def _operand_names(text: str) -> Iterator[str]:
    for part in _parts(text):
        name = part.rpartition(" ")[2].lstrip("%")
        if name:
            yield name


def _parts(text: str) -> Iterator[str]:
    """What commas outside brackets part."""
    cuts = [p for p, mark, depth in _marks(text, 0) if mark == "," and depth == 0]
    for start, end in itertools.pairwise([-1, *cuts, len(text)]):
        yield text[start + 1 : end].strip()


def _closing(text: str, opened: int) -> int:
    return next((p for p, _, depth in _marks(text, opened) if depth == 0), len(text))


def _source_lines(lines: list[str]) -> dict[int, str]:
    """`file:line` of each stack frame, from the tables at the head of the text."""
    tables: dict[str, dict[int, str]] = {}
    current: dict[int, str] | None = None
    for line in lines:
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            current = tables.setdefault(line, {})
            continue
        row = _TABLE_ROW.match(line) if current is not None else None
        if row and current is not None:
            current[int(row[1])] = row[2]
        elif not line.strip() or _COMPUTATION.match(line):
            current = None
    places = {}
    for number, text in tables.get("FileLocations", {}).items():
        file, line_number = _field(text, "file_name_id"), _field(text, "line")
        name = tables.get("FileNames", {}).get(file, "").strip('"')
        places[number] = f"{name}:{line_number}" if name else ""
    frames = tables.get("StackFrames", {})
    return {n: places.get(_field(text, "file_location_id"), "") for n, text in frames.items()}


def _field(text: str, name: str, default: int = 0) -> int:
    match = re.search(rf"\b{name}=(\d+)", text)
    return int(match[1]) if match else default


_DROPPED_SCOPES = re.compile(
    r"^(while|body|cond|closed_call|checkpoint|rematted_computation|branch_\d+_fun|scan|pjit"
    r"|custom_jvp_call|custom_vjp_call|shard_map|jit\(.*\)|pmap\(.*\)|xla_pmap|.*->.*|)$"
)
"""Functions, loops and einsum's own names: no layers."""

_TRANSFORM = re.compile(r"^(transpose|jvp|vmap|remat|linearize|custom_vjp)\((.*)\)$")


def scope_of(op_name: str) -> str:
    """Named scopes of an `op_name`, without functions, transformations and primitive.

    >>> scope_of("jit(train)/while/body/transpose(jvp(stem))/conv/conv_general_dilated")
    'stem/conv'
    """
    parts = []
    for part in list(_split_path(op_name))[:-1]:
        while match := _TRANSFORM.match(part):
            part = match[2]
        parts += [inner for inner in _split_path(part) if not _DROPPED_SCOPES.match(inner)]
    return "/".join(parts)


def _split_path(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "/" and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]
