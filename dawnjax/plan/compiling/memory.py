"""Memory of compiled programs on one device: whether they fit, what fills it, the largest batch.

XLA's own assignment of buffers is read before it makes kernels (`assigned.py`). Beside a train step
lie the data: the set where a run keeps it on each device, else batches that wait for their step.
"""

import dataclasses
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

LINE_ERROR = 0.05
"""Memory is affine in the batch if a third batch needs what the line says, give or take this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramMemory:
    """Bytes that XLA assigns to a program on one device, without its code.

    Attributes:
      num_bytes: All of them.
      argument_bytes: Of the arguments: state and inputs.
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
      points: The two batches.
      batch: The largest that fits by the line.
      line_bytes: What it needs by the line.
      num_bytes: What it needs as compiled; 0 where the compiler refuses it as too large.
      fits: The largest compiled batch that fits.
      is_all: Whether no larger batch was looked for, since there are no more examples.
    """

    points: tuple[int, int]
    batch: int
    line_bytes: int
    num_bytes: int
    fits: int
    is_all: bool

    def __str__(self) -> str:
        line = "the line through batches {:,} and {:,}".format(*self.points)
        if self.fits < self.batch:
            needs = f"needs {_size(self.num_bytes)}" if self.num_bytes else "does not fit"
            return (
                f"{line} says that {self.batch:,} needs {_size(self.line_bytes)}; compiled, it "
                f"{needs}. The largest compiled batch that fits is {self.fits:,}"
            )
        largest = "even a batch of all training examples fits" if self.is_all else "largest batch"
        found = f"{largest}: about {self.batch:,}, which needs {_size(self.num_bytes)}"
        is_near = abs(self.num_bytes / self.line_bytes - 1) <= LINE_ERROR
        return found if is_near else f"{found}, where {line} says {_size(self.line_bytes)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A batch on a system.

    Attributes:
      reason: Why its memory is not known.
      largest: In the last row of a system.
      largest_reason: Why there is none.
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
    if "reason" in answer:
        raise RunError(answer["reason"])
    limit = system.accelerator.device.memory_bytes
    return records.convert({**answer, "system": system.name, "limit_bytes": limit}, Memory)


Compile = Callable[[int], Memory | None]
"""Memory with a global batch; None where the compiler refuses it as too large."""


def largest_batch(compile: Compile, batch: int, unit: int, most: int) -> LargestBatch | None:
    """Largest batch that fits; None where not even the smallest does.

    Args:
      compile: It is called once for each batch: three times where the first one fits and memory
        grows evenly.
      batch: Where to begin; as all batches, a multiple of `unit` and at most `most`.
    """
    known: dict[int, Memory | None] = {}

    def fits(batch: int) -> bool:
        if batch not in known:
            known[batch] = compile(batch)
        memory = known[batch]
        return memory is not None and memory.num_bytes <= memory.usable_bytes

    high = batch
    for _ in range(3):
        if not fits(high):
            memory = known[high]
            share = 0.9 * memory.usable_bytes / memory.num_bytes if memory else 0.5
            high = max(unit, int(share * high) // unit * unit)
    high = high if fits(high) else unit
    if not fits(high):
        return None
    low = max(unit, high // 2 // unit * unit)
    if low == high:
        high = 2 * unit if 2 * unit <= most and fits(2 * unit) else high
    fits(low)
    points, wanted, line = (low, high), high, 0
    for _ in range(2):
        points, wanted = (low, high), high
        first, second = known[low], known[high]
        assert first and second
        line = second.num_bytes
        if high > low:
            slope = (second.num_bytes - first.num_bytes) / (high - low)
            room = (second.usable_bytes - second.num_bytes) / slope if slope > 0 else most
            wanted = min(most, high + int(room)) // unit * unit
            line += round(slope * (wanted - high))
        if not fits(wanted):
            _close_in(known, fits, unit)
            break
        # Where it needs much less than the line says, a longer line finds a larger batch.
        checked = known[wanted]
        if wanted == high or (checked and checked.num_bytes >= (1 - LINE_ERROR) * line):
            break
        low, high = high, wanted
    checked = known[wanted]
    return LargestBatch(
        points=points,
        batch=wanted,
        line_bytes=line,
        num_bytes=checked.num_bytes if checked else 0,
        fits=max(batch for batch in known if fits(batch)),
        is_all=wanted + unit > most,
    )


def _close_in(known: Mapping[int, Memory | None], fits: Callable[[int], bool], unit: int) -> None:
    """Try two more batches between the largest that fits and the smallest that does not."""
    for _ in range(2):
        below = max(batch for batch in known if fits(batch))
        above = min(batch for batch in known if batch > below)
        first, second = known[below], known[above]
        assert first  # it fits
        share = 0.5
        if second:
            room = first.usable_bytes - first.num_bytes
            share = room / (second.num_bytes - first.num_bytes)
        between = (below + int(share * (above - below))) // unit * unit
        if between > below:
            fits(between)


def rows(
    system: System, batches: Sequence[int], of: Callable[[int], Memory], unit: int, most: int
) -> list[Row]:
    """Memory of each batch on a system, and the largest batch that fits.

    Args:
      of: Memory of a batch; RunError or ConfigError where there is none.
      unit: As of `largest_batch`; 0 looks for none.
    """
    sizes: dict[int, Memory | None] = {}

    def compile(batch: int) -> Memory | None:
        if batch not in sizes:
            try:
                sizes[batch] = of(batch)
            except RunError as error:
                if not str(error).startswith(limits.DOES_NOT_FIT):
                    raise
                sizes[batch] = None
        return sizes[batch]

    found = []
    for batch in batches:
        row = Row(system=system.name, num_devices=system.num_devices, global_batch=batch)
        # One batch without a plan must not cost the rows of the others.
        try:
            row = dataclasses.replace(row, memory=of(batch))
            sizes[batch] = row.memory
        except (RunError, ConfigError) as error:
            row = dataclasses.replace(row, reason=str(error))
            if row.reason.startswith(limits.DOES_NOT_FIT):
                sizes[batch] = None
        found.append(row)
    if unit and sizes:
        try:
            start = max(unit, max(sizes) // unit * unit)
            largest = largest_batch(compile, start, unit, max(most, start))
            why = "" if largest else NO_BATCH.format(unit)
        except (RunError, ConfigError) as error:
            largest, why = None, str(error)
        found[-1] = dataclasses.replace(found[-1], largest=largest, largest_reason=why)
    return found


NO_BATCH = (
    "no batch fits, not even {:,}: use more devices; --mesh.fsdp=N splits parameters and optimizer "
    "among them"
)


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
    notes.append(compilers.needs_cuda_12(accelerator))
    notes += [
        f"to fit, XLA runs {program.recomputed:,} kernels of {name} again, which takes time"
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
