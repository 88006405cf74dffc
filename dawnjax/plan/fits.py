"""`dawnjax plan --memory`: whether a train step fits into a device, and what fills it."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dawnjax.errors import ConfigError
from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.plan.predict import needs_larger_share
from dawnjax.plan.systems import System, parse_system

if TYPE_CHECKING:
    from dawnjax.config.experiment_flags import Request
    from dawnjax.plan.memory import Memory

ERROR = 1.25
"""Factor by which XLA's bytes for a GPU may be more or less. Of the steps that were compared one
needed 1.07 times these bytes (`docs/plan.md`)."""

TPU_ERROR = 1.5
"""The same for a TPU. One needed 1.24 times these bytes, and one 1/1.22 of them, since XLA computes
arrays again that do not fit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Memory of a step on a system; `reason` says why it is not known.

    Attributes:
      largest_batch: About the largest that fits, 0 for none, where this batch does not.
      hint: What would split the state, where no batch fits beside it.
    """

    system: str
    num_devices: int
    global_batch: int
    limit_bytes: int
    memory: "Memory | None"
    reason: str = ""
    largest_batch: int | None = None
    hint: str = ""

    @property
    def most(self) -> float:
        """Factor by which XLA's bytes may be more or less."""
        is_tpu = parse_system(self.system).accelerator.device.platform == "tpu"
        return TPU_ERROR if is_tpu else ERROR

    @property
    def verdict(self) -> str:
        """`yes`, `no`, or `close` where the error of the estimate decides."""
        assert self.memory is not None, self.reason
        needs = self.memory.num_bytes
        if needs * self.most <= self.limit_bytes:
            return "yes"
        return "no" if needs / self.most > self.limit_bytes else "close"


def fits(request: "Request", systems: Sequence[System], batches: Sequence[int]) -> list[Fit]:
    """Memory of each system and batch; a row without one names the reason."""
    from dawnjax.plan.compiled import spec_of
    from dawnjax.plan.memory import largest_batch, step_memory

    spec, _ = spec_of(request.experiment.data)
    shards_update = request.options.weight_update_sharding
    rows = []
    for system in systems:
        limit = system.accelerator.device.memory_bytes
        for batch in batches:
            experiment = dataclasses.replace(request.experiment, global_batch_size=batch)
            memory, reason, largest, hint = None, "", None, ""
            try:
                experiment.validate(spec)
                step = (experiment, spec, request.options.mesh, system, shards_update)
                memory = step_memory(*step)
                if memory.num_bytes > limit and not experiment.stages.boundary_epochs:
                    largest = largest_batch(*step, limit, memory)
                    if largest == 0 and request.options.mesh.fsdp == 1 < system.num_devices:
                        hint = _hint(memory, limit)
            # One system that the mesh does not fit must not cost the rows of the others.
            except ConfigError as error:
                reason = str(error)
            rows.append(
                Fit(
                    system=system.name,
                    num_devices=system.num_devices,
                    global_batch=batch,
                    limit_bytes=limit,
                    memory=memory,
                    reason=reason,
                    largest_batch=largest,
                    hint=hint,
                )
            )
    return rows


def _hint(memory: "Memory", limit_bytes: int) -> str:
    """What to do where parameters and optimizer take most of a device; else empty."""
    state = memory.parameters + memory.optimizer + memory.averages
    if 2 * state < limit_bytes:
        return ""
    return f"parameters and optimizer take {_size(state)} of it, which --mesh.fsdp=N splits"


def smaller_batch(request: "Request", system: System, batch: int) -> str:
    """Part of a line on a batch that did not fit when compiled: about the largest that does."""
    try:
        [row] = fits(request, [system], [batch])
    except Exception:  # it only adds to a reason, and must not cost the rows that were compiled
        return ""
    if row.largest_batch is None:  # by the estimate it fits, or nothing is known
        return ""
    found = f"of about {row.largest_batch:,}" if row.largest_batch else "of no batch"
    hint = f": {row.hint}" if row.hint else ""
    return f"; by the estimate of --memory a train step {found} fits{hint}"


def to_json(row: Fit) -> dict[str, Any]:
    fields = dataclasses.asdict(row)
    if row.memory:
        fields["memory"]["num_bytes"] = row.memory.num_bytes
        fields["fits"] = row.verdict
    return fields


def text(rows: Sequence[Fit]) -> str:
    """A table of the rows, and the largest arrays of the fullest."""
    known = [(row, row.memory) for row in rows if row.memory]
    lines = []
    if known:
        head = ["system", "batch", "fits", "needs", "of", "left", "parameters",
                "optimizer", "averages", "inputs", "results at the peak"]  # fmt: skip
        makes = any(memory.made for _, memory in known)
        more = [name for name in _MORE if any(getattr(memory, name) for _, memory in known)]
        head += [_MORE[name] for name in more]
        cells = (_cells(row, memory, more) for row, memory in known)
        lines += [of_words(head, cells).to_text(), ""]
        fullest, memory = max(known, key=lambda pair: pair[1].num_bytes / pair[0].limit_bytes)
        title = f"largest arrays, {fullest.system} batch {fullest.global_batch:,}"
        largest = [
            [
                tensor.name,
                "x".join(map(str, tensor.shape)) or "1",
                tensor.dtype,
                _size(tensor.num_bytes),
            ]
            for tensor in memory.tensors
        ]
        lines.append(
            of_words([title, "shape", "dtype", "size"], largest, texts=(0, 1, 2)).to_text()
        )
        lines.append(
            "a train step of the stage that needs most, traced from shapes and not compiled, "
            f"without evaluation. `close`: a step may need {_factors(known)} times these bytes, or "
            "as many times less, by the steps that were compared (docs/plan.md). Where the mesh "
            "splits layers or texts, activations count whole. A plan without --memory compiles the "
            "step and has XLA's own figure"
        )
        if makes:
            lines.append(
                "a step and a call that makes examples do not run at once: the larger one counts"
            )
    for row, memory in known:
        device = parse_system(row.system).accelerator.device
        if note := needs_larger_share(memory.num_bytes, device):
            lines.append(f"{row.system} batch {row.global_batch:,}: {note}")
    lines += [_too_large(row) for row, _ in known if row.largest_batch is not None]
    lines += [f"{r.system} batch {r.global_batch:,}: {r.reason}" for r in rows if not r.memory]
    return "\n".join(lines)


def _factors(known: Sequence[tuple[Fit, Any]]) -> str:
    names = {ERROR: "", TPU_ERROR: " (on a TPU)"}
    return " or ".join(f"{most:g}{names[most]}" for most in sorted({row.most for row, _ in known}))


def _too_large(row: Fit) -> str:
    batch = row.largest_batch
    fits = f"about {batch:,} does" if batch else "nor does the smallest"
    it = "by the estimate it" if row.verdict == "close" else "it"
    line = f"{row.system} batch {row.global_batch:,}: {it} does not fit, {fits}"
    line += f": {row.hint}" if row.hint else ""
    if parse_system(row.system).accelerator.device.platform == "tpu":
        line += "; XLA may compute arrays again so that it does, which takes time"
    return line


_MORE = {
    "gathered": "gathered",
    "data": "data",
    "made": "examples made",
    "call": "a call that makes them",
}
"""Parts of a memory that most experiments do not have, and the heads of their columns."""


def _cells(row: Fit, memory: "Memory", more: Sequence[str]) -> list[str]:
    parts = [memory.parameters, memory.optimizer, memory.averages, memory.inputs, memory.results]
    parts += [getattr(memory, name) for name in more]
    left = row.limit_bytes - memory.num_bytes
    totals = (memory.num_bytes, row.limit_bytes, left)
    return [
        row.system,
        f"{row.global_batch:,}",
        row.verdict,
        *map(_size, totals),
        *map(_size, parts),
    ]


def _size(num_bytes: float) -> str:
    return words.scaled(num_bytes, "B")
