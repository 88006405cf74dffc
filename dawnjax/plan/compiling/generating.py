"""Memory of an experiment's programs, compiled for hardware that is not here.

How long a task takes to make its examples is not predicted: that depends on what the model has
learnt.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.page.table import of_words
from dawnjax.page.words import scaled
from dawnjax.plan.compiling import compiled
from dawnjax.plan.compiling.progress import Compiling
from dawnjax.plan.hardware.systems import System

NO_TIME = "a plan does not predict how long it takes to make examples"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer of `worker.py`: bytes that each program needs, by name."""

    memory_bytes: dict[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Programs on a system, or the reason why they are not known."""

    system: str
    num_devices: int
    global_batch: int
    limit_bytes: int
    memory_bytes: dict[str, int] | None = None
    reason: str = ""


def rows(
    name: str, argv: Sequence[str], systems: Sequence[System], batches: Sequence[int]
) -> list[Row]:
    """Compile the programs of an experiment for each system and batch.

    Args:
      argv: Flags of the experiment, as of `dawnjax train`.
    """
    progress = Compiling(name)

    def row(system: System, batch: int) -> Row:
        known = Row(
            system=system.name,
            num_devices=system.num_devices,
            global_batch=batch,
            limit_bytes=system.accelerator.device.memory_bytes,
        )
        flags = [*argv, f"--global_batch_size={batch}"]
        watch = functools.partial(progress.of, f"{system.name} batch {batch:,}")
        try:
            fields = compiled.answer_of_compiler(flags, system, watch, is_memory=True)
            if "reason" in fields:
                raise RunError(fields["reason"])
            answer = records.convert(fields, Answer, others=True)
        # One system without a plan must not cost the rows of the others.
        except (RunError, ConfigError, records.FieldError) as error:
            return dataclasses.replace(known, reason=str(error))
        return dataclasses.replace(known, memory_bytes=answer.memory_bytes)

    return progress.map(lambda asked: row(*asked), itertools.product(systems, batches))


def text(found: Sequence[Row]) -> str:
    """Table of the rows, with reasons below it."""
    known = [(row, row.memory_bytes) for row in found if row.memory_bytes]
    lines = []
    if known:
        names = list(known[0][1])
        cells = [
            [
                row.system,
                f"{row.global_batch:,}",
                *(scaled(sizes[name], "B") for name in names),
                scaled(row.limit_bytes, "B"),
            ]
            for row, sizes in known
        ]
        table = of_words(["system", "batch", *names, "a device has"], cells)
        lines += [table.to_text(), "memory of each compiled program on one device"]
    lines += [f"{r.system} batch {r.global_batch:,}: {r.reason}" for r in found if r.reason]
    return "\n".join(lines)


def to_json(row: Row) -> dict[str, Any]:
    return dataclasses.asdict(row)
