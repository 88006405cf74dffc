"""`dawnjax plan --search=mesh`: arrangements of a decoder on a system that reach the target first.

Every mesh that divides the model, each batch and each `model.remat` is predicted from shapes alone
(`step.py`), and those that fit into a device's memory are compared.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dawnjax.config.experiment import Experiment
from dawnjax.errors import ConfigError
from dawnjax.machine.mesh_shape import AXES, MeshShape
from dawnjax.machine.prices import Price
from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.plan.compiling.limits import needs_larger_share
from dawnjax.plan.decoders.memory import DecoderMemory, decoder_memory
from dawnjax.plan.decoders.step import (
    Factors,
    arrangement_of,
    fitted,
    moment_bytes_of,
    why_unfit,
)
from dawnjax.plan.decoders.terms import RECOMPUTED, Arrangement, model_flops, terms
from dawnjax.plan.epochs.interval import DEVIATIONS, Interval, around
from dawnjax.plan.hardware.systems import System, parse_system
from dawnjax.plan.planned import estimate
from dawnjax.plan.steps.efficiency import peak_flops
from dawnjax.plan.steps.predict import GIVE_EPOCHS, evaluations_until, first_evaluation

if TYPE_CHECKING:
    from dawnjax.plan.epochs.epochs import Epochs

MOST = 5
"""Arrangements that are shown of each system."""

Counted = Callable[[int, int], "Epochs"]

MEMORY_ERROR = 1.75
"""Factor by which XLA's bytes may be more than those by formulas: 58.7 GB for 34.0 of `gpt_oss_20b`
on an H100, the most of the decoders whose steps were compiled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """An arrangement and its prediction.

    Attributes:
      remat: Value of `model.remat`.
      parts: Seconds of a step, by term.
      mfu: Model FLOPs over time and peak.
      time_to_accuracy_seconds: None where the epochs are not known.
      epochs_basis: Source of the epochs, or why none knows them.
      price_basis: Source of the price, or why there is none.
      price: Listed price; None where the user gave it, or none is listed.
    """

    system: str
    num_devices: int
    mesh: MeshShape
    global_batch: int
    remat: str
    memory: DecoderMemory
    limit_bytes: int
    parts: dict[str, float]
    step_seconds: Interval
    tokens_per_second: float
    mfu: float
    time_to_accuracy_seconds: Interval | None = None
    cost_usd: Interval | None = None
    epochs_basis: str = ""
    price_basis: str = ""
    price: Price | None = None


def meshes(model: Any, spec: Any, num_devices: int) -> Iterator[MeshShape]:
    """Meshes of so many devices that divide the model and its texts."""
    split = model.split_sizes(spec)
    divisors = [size for size in range(1, num_devices + 1) if num_devices % size == 0]
    for sizes in itertools.product(divisors, repeat=len(AXES) - 1):
        if num_devices % math.prod(sizes):
            continue
        others = dict(zip(AXES[1:], sizes, strict=True))
        shape = MeshShape(data=num_devices // math.prod(sizes), **others)
        if _divides(shape, split):
            yield shape


def _divides(shape: MeshShape, split: Mapping[str, Sequence[tuple[str, int]]]) -> bool:
    """True if each axis but `data` divides all that it splits."""
    sizes = dataclasses.asdict(shape)
    return all(
        sizes[axis] == 1 or (split.get(axis) and all(n % sizes[axis] == 0 for _, n in split[axis]))
        for axis in AXES[1:]
    )


def search(
    experiment: Experiment,
    spec: Any,
    system: System,
    batches: Sequence[int],
    counted: Counted,
    prices: Mapping[str, float],
) -> tuple[list[Found], list[str]]:
    """Best arrangements of an experiment on a system, and lines about batches that have none.

    Batches whose epochs are not known are compared only where no others are.

    Raises:
      ConfigError: The experiment has no decoder of the Llama family, or none of them fits; then
        with the least that a device needs.
    """
    model = experiment.model
    if reason := why_unfit(experiment, spec):
        raise ConfigError(f"--search=mesh: {reason}")
    counted = functools.cache(counted)  # slow, and a batch has hundreds of arrangements
    factors, moments = fitted(system.accelerator), moment_bytes_of(experiment, spec)
    shapes = list(meshes(model, spec, system.num_devices))
    found: list[Found] = []
    smallest: dict[int, DecoderMemory] = {}
    for batch, remat, shape in itertools.product(batches, RECOMPUTED, shapes):
        if batch % (shape.data * shape.fsdp * shape.expert):
            continue
        arrangement = arrangement_of(experiment, spec, system, batch, remat, shape, moments)
        memory = decoder_memory(model, arrangement, averages=bool(experiment.ema_decay))
        if batch not in smallest or memory.num_bytes < smallest[batch].num_bytes:
            smallest[batch] = memory
        if memory.num_bytes <= system.accelerator.device.memory_bytes:
            found.append(_found(experiment, arrangement, remat, memory, factors))
    held = {row.global_batch for row in found}
    lost = [batch for batch in batches if batch not in held]
    reasons = _lost(system, lost, smallest)
    if not found:
        raise ConfigError("; ".join(reasons))
    priced = [_priced(row, experiment, spec, system, counted, prices) for row in found]
    timed = [row for row in priced if row.time_to_accuracy_seconds]
    if timed:
        untimed = (row for row in priced if not row.time_to_accuracy_seconds)
        unknown = {row.global_batch: row.epochs_basis for row in untimed}
        reasons += [
            f"batch {batch:,} is not compared, because its time to accuracy is not known: "
            f"{basis}: {GIVE_EPOCHS}"
            for batch, basis in unknown.items()
        ]
    # Of a mesh and batch, the fastest `remat`.
    fastest: dict[tuple[MeshShape, int], Found] = {}
    for row in sorted(timed or priced, key=_order):
        fastest.setdefault((row.mesh, row.global_batch), row)
    return [*fastest.values()][:MOST], reasons


def _order(row: Found) -> tuple[float, float]:
    """Seconds to the target, or else of an example, in three digits; then memory."""
    time = row.time_to_accuracy_seconds
    seconds = time.value if time else row.step_seconds.value / row.global_batch
    return float(f"{seconds:.3g}"), row.memory.num_bytes


def _found(
    experiment: Experiment,
    arrangement: Arrangement,
    remat: str,
    memory: DecoderMemory,
    factors: Factors,
) -> Found:
    device, num_devices = arrangement.system.accelerator.device, arrangement.system.num_devices
    parts = factors.parts(terms(experiment.model, arrangement))
    step = around(sum(parts.values()), factors.spread_at(experiment.model, arrangement))
    model_rate = model_flops(experiment.model, arrangement) / step.value
    return Found(
        system=arrangement.system.name,
        num_devices=num_devices,
        mesh=arrangement.mesh,
        global_batch=arrangement.rows,
        remat=remat,
        memory=memory,
        limit_bytes=device.memory_bytes,
        parts=parts,
        step_seconds=step,
        tokens_per_second=arrangement.rows * arrangement.sequence_length / step.value,
        mfu=model_rate / peak_flops(device, "bfloat16"),
    )


def _priced(
    row: Found,
    experiment: Experiment,
    spec: Any,
    system: System,
    counted: Counted,
    prices: Mapping[str, float],
) -> Found:
    epochs = counted(row.global_batch, spec.num_train_examples)
    row = dataclasses.replace(row, epochs_basis=epochs.basis)
    if epochs.mean is None:
        return row
    batch, train = row.global_batch, spec.num_train_examples
    # A run that is near its target before the first evaluation trains until then.
    mean = max(epochs.mean, first_evaluation(experiment.evaluation, train / batch))
    evaluations = evaluations_until(experiment.evaluation, mean, train / batch)
    # The forward pass: one of three alike, or of two where the weights are frozen.
    share = 1 / 2 if experiment.model.lora.rank else 1 / 3
    evaluated = evaluations * spec.num_eval_examples * share
    step, price = row.step_seconds, system.price(prices)
    spread = math.hypot(math.log(step.high / step.value) / DEVIATIONS, epochs.spread)
    time = around((mean * train + evaluated) / batch * step.value, spread)
    return dataclasses.replace(
        row,
        time_to_accuracy_seconds=time,
        cost_usd=None if price.usd_per_hour is None else time.times(price.usd_per_hour / 3600),
        price_basis=price.basis,
        price=price.listed,
    )


def _lost(
    system: System, batches: Sequence[int], smallest: Mapping[int, DecoderMemory]
) -> list[str]:
    """Lines about batches that no mesh divides, or that no device holds."""
    reasons = []
    for batch in batches:
        if batch not in smallest:
            why = f"no mesh of {system.num_devices} devices divides the model and it"
        else:
            limit = system.accelerator.device.memory_bytes
            sizes = (smallest[batch].num_bytes, limit)
            needs, has = (words.rounded(size / 1e9, 3) for size in sizes)
            why = f"it does not fit: a device needs {needs} GB or more and has {has} GB"
        reasons.append(f"batch {batch:,}: {why}: give other --batches or more devices")
    return reasons


def to_json(row: Found) -> dict[str, Any]:
    fields = dataclasses.asdict(row)
    fields["memory"]["num_bytes"] = row.memory.num_bytes
    fields["memory_bytes"] = round(row.memory.num_bytes)
    fields["memory_limit_bytes"] = fields.pop("limit_bytes")
    fields["fits"] = fits(row)
    why = f"{row.epochs_basis}: {GIVE_EPOCHS}"
    reasons = {}
    if row.time_to_accuracy_seconds is None:
        reasons = {"time_to_accuracy_seconds": why, "cost_usd": why}
    elif row.cost_usd is None:
        reasons = {"cost_usd": row.price_basis}
    return {**fields, "reasons": reasons}


def text(rows: Sequence[Found]) -> str:
    """Table of the rows, and what to give `dawnjax train` for the first of each system."""
    head = ["system", "mesh", "batch", "remat", "memory GB", "fits", "step", "interval", "MFU",
            "tokens/s", "time to accuracy", "interval", "cost USD",
            "interval"]  # fmt: skip
    lines = [of_words(head, map(_cells, rows), texts=(0, 1, 3, 5)).to_text(), ""]
    firsts = {row.system: row for row in reversed(rows)}
    for row in rows:
        if firsts[row.system] is row:
            lines.append(f"{row.system}: {_flags(row)}")
            own = (r for r in rows if r.system == row.system)
            surely = next((r for r in own if fits(r) == "yes"), None)
            if surely is not None and surely is not row:
                first = "the first mesh that fits by more than the error"
                lines.append(f"{row.system}: {first}: {_flags(surely)}")
            if row.price_basis:
                lines.append(f"{row.system}: price: {row.price_basis}")
            device = parse_system(row.system).accelerator.device
            if note := needs_larger_share(row.memory.num_bytes, device):
                lines.append(f"{row.system}: {note}")
    notes: dict[str, dict[str, None]] = {}
    for row in rows:
        notes.setdefault(_epochs_note(row), {})[f"{row.system}/{row.global_batch}"] = None
    for note, names in notes.items():
        lines.append(f"{'all' if len(notes) == 1 else ', '.join(names)}: {note}")
    lines.append(
        "predicted from shapes; nothing was compiled. If intervals overlap, the order is open. "
        f"`close`: XLA may need {MEMORY_ERROR:g} times this memory; --memory compiles one"
    )
    return "\n".join(lines)


def _epochs_note(row: Found) -> str:
    if row.time_to_accuracy_seconds:
        return f"epochs: {row.epochs_basis}"
    return f"no time to accuracy: {row.epochs_basis}: {GIVE_EPOCHS}"


def _flags(row: Found) -> str:
    """Flags of `dawnjax train` for an arrangement."""
    flags = [f"--mesh.{part}" for part in _mesh_words(row.mesh).split()]
    flags += [f"--global_batch_size={row.global_batch}", f"--model.remat={row.remat}"]
    return " ".join(flags)


def fits(row: Found) -> str:
    """`yes`, or `close` where the error of the formulas decides."""
    return "yes" if row.memory.num_bytes * MEMORY_ERROR <= row.limit_bytes else "close"


def _mesh_words(mesh: MeshShape) -> str:
    sizes = {name: size for name, size in dataclasses.asdict(mesh).items() if size > 1}
    return " ".join(f"{name}={size}" for name, size in sizes.items()) or "data=1"


def _cells(row: Found) -> list[str]:
    needs = row.memory.num_bytes
    return [
        parse_system(row.system).described,
        _mesh_words(row.mesh),
        f"{row.global_batch:,}",
        row.remat,
        f"{words.rounded(needs / 1e9, 3)} of {words.rounded(row.limit_bytes / 1e9, 3)}",
        fits(row),
        *estimate(row.step_seconds, words.about),
        f"{words.rounded(100 * row.mfu, 2)} %",
        words.rounded(row.tokens_per_second),
        *estimate(row.time_to_accuracy_seconds, words.about),
        *estimate(row.cost_usd, lambda amount: words.rounded(amount, 3)),
    ]
