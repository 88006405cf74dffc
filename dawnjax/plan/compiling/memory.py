"""Memory of compiled programs on one device: whether they fit, what fills it, the largest batch.

XLA's own assignment of buffers is read before it makes kernels (`assigned.py`). Beside a train step
lie the data: the set where a run keeps it on each device, else batches that wait for their step.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.plan.compiling import compiled, compilers, limits
from dawnjax.plan.compiling.assigned import Buffer
from dawnjax.plan.hardware.systems import System, parse_system


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramMemory:
    """Bytes that XLA assigns to a program on one device, without its code.

    Attributes:
      num_bytes: All of them.
      argument_bytes: Bytes of the arguments: state and inputs.
      recomputed: Kernels that XLA runs again so that the program fits.
      buffers: The largest, in order.
    """

    num_bytes: int
    argument_bytes: int
    recomputed: int
    buffers: tuple[Buffer, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of programs that a device runs one at a time.

    Attributes:
      programs: By name, such as `train`.
      data_bytes: Data beside each of them.
      limit_bytes: Memory of the device.
    """

    system: str
    programs: dict[str, ProgramMemory]
    data_bytes: int
    limit_bytes: int

    @property
    def num_bytes(self) -> int:
        return self.data_bytes + max(p.num_bytes for p in self.programs.values())

    @property
    def fits(self) -> str:
        """`yes`, `no`, or `close` where what XLA does not count decides."""
        if self.num_bytes > self.limit_bytes:
            return "no"
        return "yes" if self.num_bytes <= self.usable_bytes else "close"

    @property
    def usable_bytes(self) -> float:
        return limits.usable_bytes(parse_system(self.system).accelerator.device)

    def __str__(self) -> str:
        return "\n".join([_table([(0, self)]), "", _buffers(0, self)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class LargestBatch:
    """Largest batch that fits by a line through two compiled batches, and a third that checks it.

    Attributes:
      points: The two batches; both fit.
      batch: The largest that fits by the line.
      line_bytes: What it needs by the line.
      num_bytes: What it needs as compiled; 0 where the compiler refuses it as too large.
      fits: Whether it does, as compiled.
      is_all: Whether the batch holds all examples, so no larger batch was tried.
    """

    points: tuple[int, int]
    batch: int
    line_bytes: int
    num_bytes: int
    fits: bool
    is_all: bool

    def __str__(self) -> str:
        needs = f"needs {_size(self.num_bytes)}" if self.num_bytes else "does not fit"
        line = "the line through batches {:,} and {:,}".format(*self.points)
        line = f"{needs}, where {line} says {_size(self.line_bytes)}"
        if not self.fits:
            return f"largest compiled batch that fits: {self.points[1]:,}; {self.batch:,} {line}"
        if self.is_all:
            return f"even a batch of all training examples fits: {self.batch:,}"
        return f"largest batch: about {self.batch:,}, which {line}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A batch on a system.

    Attributes:
      reason: Why its memory is not known.
      largest: In the last row of a system.
      largest_reason: Why no batch is known.
    """

    system: str
    num_devices: int
    global_batch: int
    memory: Memory | None = None
    reason: str = ""
    largest: LargestBatch | None = None
    largest_reason: str = ""


def of_experiment(
    argv: Sequence[str], system: System, watch: compiled.Watch = nullcontext
) -> Memory:
    """Memory of an experiment's programs.

    Args:
      argv: Flags of the experiment, as of `dawnjax train`.

    Raises:
      RunError: They cannot be compiled; one line says why.
    """
    return _memory({"argv": list(argv), "is_memory": True}, system, watch)


def of_function(function: Any, shapes: Sequence[Any], on: str) -> Memory:
    """Memory of a function of the user's; `dawnjax.plan.memory` says more."""
    import jax
    import jax.export

    system = parse_system(on)
    platform = {"gpu": "cuda"}.get(system.accelerator.device.platform, "tpu")
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    exported = jax.export.export(jitted, platforms=[platform])(*shapes)
    donated = [leaf.donated for leaf in jax.tree.leaves(jitted.trace(*shapes).args_info)]
    if exported.nr_devices not in (1, system.num_devices):
        raise ConfigError(
            f"the function is for {exported.nr_devices} devices, and {on} has {system.num_devices}"
        )
    # Nodes of the user's own cannot be written; leaves can.
    flat = dataclasses.replace(
        exported,
        in_tree=jax.tree.structure(((0,) * len(exported.in_avals), {})),
        out_tree=jax.tree.structure([0] * len(exported.out_avals)),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "function")
        try:
            path.write_bytes(flat.serialize())
        except ImportError as error:  # JAX writes functions with a library that it does not install
            raise RunError(f"{error}: {compilers.INSTALL}") from None
        found = _memory({"exported": str(path), "donated": donated}, system)
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    names = {f"args[{i}]": jax.tree_util.keystr(path) for i, (path, _) in enumerate(leaves)}
    program = found.programs["function"]
    buffers = tuple(b._replace(name=names.get(b.name, b.name)) for b in program.buffers)
    program = dataclasses.replace(program, buffers=buffers)
    return dataclasses.replace(found, programs={"function": program})


def _memory(
    request: Mapping[str, Any], system: System, watch: compiled.Watch = nullcontext
) -> Memory:
    answer = compiled.answer_of_compiler(request, system, watch)
    limit = system.accelerator.device.memory_bytes
    return records.convert({**answer, "system": system.name, "limit_bytes": limit}, Memory)


def largest_batch(
    compile: Callable[[int], Memory | None], batch: int, unit: int, most: int
) -> LargestBatch | None:
    """Largest batch that fits; None where not even the smallest does.

    Args:
      compile: Memory of a batch, None where it is refused as too large: of three, if one fits.
      batch: Where to begin; as all batches, a multiple of `unit` and at most `most`.
    """

    def fitting(batch: int) -> Memory | None:
        memory = compile(batch)
        return memory if memory and memory.fits == "yes" else None

    def half(batch: int) -> int:
        return max(unit, batch // 2 // unit * unit)

    while not (second := fitting(batch)):
        if batch == unit:
            return None
        batch = half(batch)
    low, high, first = half(batch), batch, second
    if batch > unit:
        first = compile(low) or second
    elif 2 * unit <= most and (larger := fitting(2 * unit)):
        high, second = 2 * unit, larger
    wanted, slope = high, 0.0
    if low < high:
        slope = (second.num_bytes - first.num_bytes) / (high - low)
        room = (second.usable_bytes - second.num_bytes) / slope if slope > 0 else most
        wanted = min(most, high + int(room)) // unit * unit
    checked = compile(wanted)
    return LargestBatch(
        points=(low, high),
        batch=wanted,
        line_bytes=second.num_bytes + round(slope * (wanted - high)),
        num_bytes=checked.num_bytes if checked else 0,
        fits=fitting(wanted) is not None,
        is_all=wanted + unit > most,
    )


def rows(
    system: System, batches: Sequence[int], of: Callable[[int], Memory], unit: int, most: int
) -> list[Row]:
    """Memory of each batch on a system, and the largest batch that fits.

    Args:
      of: Memory of a batch; RunError or ConfigError if it has none.
      unit: As of `largest_batch`; 0 looks for none.
    """

    @functools.cache
    def known(batch: int) -> Memory | str:
        try:
            return of(batch)
        # One batch without a plan must not cost the rows of the others.
        except (RunError, ConfigError) as error:
            return str(error)

    def compile(batch: int) -> Memory | None:
        memory = known(batch)
        if isinstance(memory, Memory):
            return memory
        if not memory.startswith(limits.DOES_NOT_FIT):
            raise RunError(memory)
        return None

    found, sizes = [], []
    for batch in batches:
        row = Row(system=system.name, num_devices=system.num_devices, global_batch=batch)
        memory = known(batch)
        which = "memory" if isinstance(memory, Memory) else "reason"
        found.append(dataclasses.replace(row, **{which: memory}))
        if which == "memory" or str(memory).startswith(limits.DOES_NOT_FIT):
            sizes.append(batch)
    if unit and sizes:
        try:
            start = max(unit, max(sizes) // unit * unit)
            largest = largest_batch(compile, start, unit, max(most, start))
            more = (
                "use more devices; --mesh.fsdp=N splits parameters and optimizer state among them"
            )
            why = "" if largest else f"no batch fits, not even {unit:,}: {more}"
        except RunError as error:
            largest, why = None, str(error)
        found[-1] = dataclasses.replace(found[-1], largest=largest, largest_reason=why)
    return found


def text(rows: Sequence[Row]) -> str:
    """Table of the rows, the largest buffers of the fullest, and lines about the others."""
    known = [(row.global_batch, row.memory) for row in rows if row.memory]
    lines = []
    if known:
        fullest = max(known, key=lambda pair: pair[1].num_bytes / pair[1].limit_bytes)
        lines += [_table(known), "", _buffers(*fullest)]
    for row in rows:
        lines += [f"{row.system} batch {row.global_batch:,}: {note}" for note in _notes(row)]
    return "\n".join(lines)


def _notes(row: Row) -> list[str]:
    last = [str(row.largest)] if row.largest else [row.largest_reason]
    if row.memory is None:
        return [row.reason, *filter(None, last)]
    accelerator = parse_system(row.system).accelerator
    device, needs = accelerator.device, row.memory.num_bytes
    notes = [limits.needs_larger_share(needs, device), limits.lacks_code(needs, device)]
    notes += compilers.cautions(accelerator)
    notes += [
        f"to fit, XLA recomputes {program.recomputed:,} kernels of {name}, which takes time"
        for name, program in row.memory.programs.items()
        if program.recomputed
    ]
    return [note for note in (*notes, *last) if note]


def _table(known: Sequence[tuple[int, Memory]]) -> str:
    names = list(known[0][1].programs)
    head = ["system", "batch", "fits", "needs", "of", "left", *names, "data beside"]
    rows = [
        [
            memory.system,
            f"{batch:,}" if batch else "",
            memory.fits,
            *map(_size, (memory.num_bytes, memory.limit_bytes)),
            _size(memory.limit_bytes - memory.num_bytes),
            *(_size(program.num_bytes) for program in memory.programs.values()),
            _size(memory.data_bytes),
        ]
        for batch, memory in known
    ]
    return of_words(head, rows).to_text()


def _buffers(batch: int, memory: Memory) -> str:
    """Table of the largest buffers of the largest program."""
    name, program = max(memory.programs.items(), key=lambda item: item[1].num_bytes)
    of = f"{memory.system} batch {batch:,}" if batch else memory.system
    head = [f"largest buffers of {name}, {of}", "shape", "size"]
    rows = [[b.name, b.shape, _size(b.num_bytes)] for b in program.buffers]
    rows.append(["all arguments", "", _size(program.argument_bytes)])
    return of_words(head, rows, texts=(0, 1)).to_text()


def _size(num_bytes: float) -> str:
    return words.scaled(num_bytes, "B")


def to_json(row: Row) -> dict[str, Any]:
    fields = dataclasses.asdict(row)
    if row.memory:
        fields["memory"]["num_bytes"] = row.memory.num_bytes
        fields["fits"] = row.memory.fits
    return fields
