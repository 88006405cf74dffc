"""DAWNBench entries: a JSON description, and for training a TSV of epoch, hours and accuracy.

The time to accuracy is the `hours` of the first row, in file order, whose metric reaches the
threshold. Accuracies of ImageNet and CIFAR10 are percent, the F1 of SQuAD is a fraction.

Source: the entries repository stanford-futuredata/dawn-bench-entries, README and its test of the
training entries (commit fb27b82): thresholds 93 (top-5), 94 (top-1) and 0.75 (F1), fields, names.
"""

import dataclasses
import datetime
import itertools
import statistics
from typing import Any, NamedTuple

from dawnjax.official import naming, text
from dawnjax.official.outcome import Refused, of_file, quoted
from dawnjax.trials.group import Entry, Inference
from dawnjax.trials.target import Target
from dawnjax.trials.trial import Evaluation, Trial

SECONDS_PER_HOUR = 3600.0
INFERENCE_EXAMPLES = 10_000
"""Inference costs are compared for this many examples; the files give the cost of one."""

VERSION = "v1.0"

MAX_COLUMNS = 50
MAX_ROWS = 20_000
MAX_EPOCHS = 1e6
MAX_HOURS = 24 * 366 * 10.0
MAX_USD_PER_HOUR = 1e7
"""A number above these limits is a mistake."""


@dataclasses.dataclass(frozen=True)
class BenchmarkTask:
    """A task, which is reached when `metric` is at least `threshold` in `unit`."""

    name: str
    metric: str
    threshold: float
    unit: str

    @property
    def target(self) -> Target:
        return Target(metric=self.metric, value=self.threshold, unit=self.unit)


TASKS = {
    task.name: task
    for task in (
        BenchmarkTask("ImageNet", "top5Accuracy", 93.0, "percent"),
        BenchmarkTask("CIFAR10", "top1Accuracy", 94.0, "percent"),
        BenchmarkTask("SQuAD", "f1Score", 0.75, "fraction"),
    )
}


def task_of(context: str) -> BenchmarkTask:
    """Task of an entry by its folders; `Refused` if none names one."""
    by_folder = {name.lower(): task for name, task in TASKS.items()}
    for part in reversed(context.split("/")[:-1]):
        if part.lower() in by_folder:
            return by_folder[part.lower()]
    raise Refused(f"lies in no folder of {', '.join(TASKS)}")


def read_training(
    source: str, context: str, description: bytes | None, table: bytes | None
) -> Entry:
    """Read a training entry from its JSON and TSV; None stands for an absent file.

    `source` is the path without the ending, `context` the same with the folders above. A number
    that is absent or would be wrong raises `Refused`.
    """
    warnings: list[str] = []
    absent = Refused("there is no such file: an entry is a .json and a .tsv")
    with of_file(tsv_file := f"{source}.tsv"):
        if table is None:
            raise absent
        names, cells = _cells(table, warnings)
        task = task_of(context)
        rows = _rows(names, cells, task, warnings)
    with of_file(f"{source}.json"):
        if description is None:
            raise absent
        fields = text.load_object(description)
    common, cost, reasons = _common(fields, warnings)
    if cost is None:
        reasons.setdefault("cost_per_hour_usd", "the entry gives no costPerHour")
    trial = _trial(tsv_file, rows, task, warnings)
    if not trial.reached:
        best = max(row.value for row in rows)
        warnings.append(f"not reached: the best {task.metric} is {best:.9g}")
        reasons["time_to_accuracy_seconds"] = f"no row reaches {task.threshold:g}"
    reasons["global_batch_size"] = "DAWNBench asks for no batch size of the whole job"
    return Entry(
        source=source,
        suite="dawnbench",
        kind="training",
        benchmark=task.name,
        target=task.target,
        cost_per_hour_usd=cost,
        trials=(trial,),
        warnings=tuple(warnings),
        reasons=reasons,
        **common,
    )


def read_inference(source: str, context: str, description: bytes) -> Entry:
    """Read an inference entry; `Refused` if a number is absent or would be wrong."""
    warnings: list[str] = []
    fields = text.load_object(description)
    task = task_of(context)
    common, _, reasons = _common(fields, warnings)
    latency = text.finite(fields.get("latency"))
    if latency is None or not 0 < latency <= 1e9:
        raise Refused(f"latency is {quoted(fields.get('latency'))}: a number of milliseconds")
    quality = text.finite(fields.get(task.metric))
    if quality is None:
        raise Refused(f"{task.metric} is {quoted(fields.get(task.metric))}: a number is needed")
    top = 100.0 if task.unit == "percent" else 1.0
    if task.unit == "fraction" and 1 < quality <= 100:
        warnings.append(f"{task.metric} {quality:g} is read as percent: {quality / 100:g}")
        quality /= 100
    elif not 0 <= quality <= top or (task.unit == "percent" and 0 < quality <= 1):
        raise Refused(f"{task.metric}={quality:g} is not on a scale of 0 to {top:g}")
    if quality < task.threshold:
        warnings.append(f"{task.metric} {quality:.9g} is below the threshold {task.threshold:g}")
    cost = text.finite(fields.get("cost"))
    if cost is None or not 0 <= cost <= MAX_USD_PER_HOUR:
        if fields.get("cost") is not None:
            warnings.append(f"cost {quoted(fields['cost'])} is not a number of dollars; left out")
        cost = None
        reasons["inference.cost_usd"] = "the entry gives no cost"
    reasons["global_batch_size"] = "inference is of one example at a time"
    inference = Inference(
        latency_milliseconds=latency,
        cost_usd=None if cost is None else cost * INFERENCE_EXAMPLES,
        quality=quality,
    )
    return Entry(
        source=source,
        suite="dawnbench",
        kind="inference",
        benchmark=task.name,
        target=task.target,
        inference=inference,
        warnings=tuple(warnings),
        reasons=reasons,
        **common,
    )


class _Row(NamedTuple):
    line: int
    epoch: float
    hours: float
    value: float


def _cells(table: bytes, warnings: list[str]) -> tuple[list[str], list[tuple[int, list[str]]]]:
    most = max(table.count(b"\n"), table.count(b"\r"))
    if most > MAX_ROWS:
        raise Refused(f"has {most:,} lines; at most {MAX_ROWS:,} are read")
    lines = [(n, line) for n, line in enumerate(text.lines(text.decode(table)), start=1)]
    if not lines[-1][1]:
        lines.pop()  # what follows the last line's end
    filled = [(number, line) for number, line in lines if line.strip()]
    if not filled:
        raise Refused("is empty")
    if len(filled) < len(lines):
        warnings.append(f"tsv: {len(lines) - len(filled)} blank lines skipped")
    header_line, header = filled[0]
    # Bounded, because a line of tabs would become millions of cells.
    names = [name.strip() for name in header.split("\t", MAX_COLUMNS + 1)]
    while len(names) > 1 and not names[-1]:
        names.pop()
    if len(names) == 1:
        raise Refused("the header has no tabs: columns must be separated by tabs", header_line)
    if len(names) > MAX_COLUMNS:
        raise Refused(f"the header names more than {MAX_COLUMNS} columns", header_line)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise Refused(f"the header names {quoted(twice[0])} twice", header_line)
    rows = []
    for number, line in filled[1:]:
        cells = [cell.strip() for cell in line.split("\t", 2 * MAX_COLUMNS)]
        while len(cells) > len(names) and not cells[-1]:
            cells.pop()
        if len(cells) != len(names):
            raise Refused(f"{len(cells)} fields under {len(names)} columns", number)
        rows.append((number, cells))
    if not rows:
        raise Refused("has a header and no rows", header_line)
    return names, rows


def _rows(
    names: list[str], cells: list[tuple[int, list[str]]], task: BenchmarkTask, warnings: list[str]
) -> list[_Row]:
    wanted = ("epoch", "hours", task.metric)
    for name in wanted:
        if name not in names:
            shown = ", ".join(quoted(n) for n in names[:8])
            raise Refused(f"has no column {name!r}; its columns are {shown}", 1)
    unknown = [n for n in names if n not in (*wanted, "top1Accuracy", "top5Accuracy")]
    if unknown:
        warnings.append(f"tsv: columns ignored: {', '.join(quoted(n) for n in unknown)}")
    columns = [names.index(name) for name in wanted]
    rows = []
    for number, row in cells:
        values = []
        for name, column in zip(wanted, columns, strict=True):
            value = text.number_of(row[column])
            if value is None:
                raise Refused(f"{name} is {quoted(row[column])}: a finite number is needed", number)
            values.append(value)
        for name, value, most in zip(wanted, values, (MAX_EPOCHS, MAX_HOURS), strict=False):
            if abs(value) > most:
                raise Refused(f"{name} is {value:g}; at most {most:g} is believed", number)
        rows.append(_Row(number, *values))
    _check_hours(rows)
    _check_scale(rows, task)
    return rows


def _check_hours(rows: list[_Row]) -> None:
    hours = [row.hours for row in rows]
    counts = all(h == hours[0] + i for i, h in enumerate(hours))
    if len(rows) > 2 and counts and any(row.epoch != int(row.epoch) for row in rows):
        raise Refused(
            f"hours counts {hours[0]:g}, {hours[1]:g}, {hours[2]:g} while epoch is fractional: "
            "the two columns are named the wrong way round",
            1,
        )
    if hours[0] < 0:
        raise Refused(f"hours is {hours[0]:g}, below 0", rows[0].line)
    for row in rows:
        if row.epoch < 0:
            raise Refused(f"epoch is {row.epoch:g}, below 0", row.line)
    for before, row in itertools.pairwise(rows):
        if row.hours < before.hours:
            raise Refused(
                f"hours decrease from {before.hours:g} to {row.hours:g}: they must be counted from "
                "the start of training",
                row.line,
            )


def _check_scale(rows: list[_Row], task: BenchmarkTask) -> None:
    top = 100.0 if task.unit == "percent" else 1.0
    for row in rows:
        if not 0 <= row.value <= top:
            hint = " (percent where a fraction is meant?)" if 1 < row.value <= 100 else ""
            raise Refused(
                f"{task.metric}={row.value:g} is not on the scale of 0 to {top:g}{hint}", row.line
            )
    best = max(rows, key=lambda row: row.value)
    if task.unit == "percent" and best.value <= 1:
        raise Refused(
            f"no {task.metric} is above 1 (the best is {best.value:g}): fractions where percent "
            "are meant",
            best.line,
        )


def _trial(file: str, rows: list[_Row], task: BenchmarkTask, warnings: list[str]) -> Trial:
    reached = next((row for row in rows if row.value >= task.threshold), None)
    last = rows[-1] if reached is None else reached
    steps = [b.hours - a.hours for a, b in itertools.pairwise(rows)]
    # A first row labelled 0 that took as long as the others is an epoch of training.
    from_zero = rows[0].epoch == 0 and bool(steps)
    from_zero = from_zero and rows[0].hours >= 0.5 * statistics.median(steps)
    if from_zero:
        warnings.append("tsv: epochs are labelled from 0; their number is the label + 1")
    epochs = last.epoch + 1 if from_zero else last.epoch
    return Trial(
        name=file,
        reached=reached is not None,
        time_to_accuracy_seconds=None if reached is None else reached.hours * SECONDS_PER_HOUR,
        clock_seconds=rows[-1].hours * SECONDS_PER_HOUR,
        epochs=epochs,
        epochs_to_target=None if reached is None else epochs,
        status="reached" if reached is not None else "not reached",
        evaluations=tuple(
            Evaluation(
                epoch=row.epoch,
                seconds_since_run_start=row.hours * SECONDS_PER_HOUR,
                value=row.value,
            )
            for row in rows
        ),
    )


def _common(
    fields: dict[str, Any], warnings: list[str]
) -> tuple[dict[str, Any], float | None, dict[str, str]]:
    reasons: dict[str, str] = {}
    version = fields.get("version")
    if version != VERSION:
        warnings.append(f"json: version is {quoted(version)}, not {VERSION}")
    described = {}
    for name in ("author", "framework", "model", "hardware"):
        described[name] = text.words(fields.get(name))
        if not described[name]:
            warnings.append(f"json: no {name}")
    given = fields.get("costPerHour")
    cost = text.finite(given)
    if cost is not None and not 0 <= cost <= MAX_USD_PER_HOUR:
        raise Refused(f"costPerHour is {cost:g}; it must lie in 0 to {MAX_USD_PER_HOUR:g}")
    if cost is None and "costPerHour" in fields:
        why = "null" if given is None else f"{quoted(given)}, no number"
        warnings.append(f"json: costPerHour is {why}; no cost")
        reasons["cost_per_hour_usd"] = f"costPerHour is {why}"
    hardware = described["hardware"]
    accelerators, hosts = naming.machine_counts(hardware)
    for name, value in (("num_accelerators", accelerators), ("num_hosts", hosts)):
        if value is None:
            reasons[name] = f"the text {hardware!r} does not say it"
    common = {
        "submitter": described["author"],
        "system": hardware,
        "hardware": hardware,
        "processor_class": naming.processor_class(hardware),
        "num_accelerators": accelerators,
        "num_hosts": hosts,
        "framework": described["framework"],
        "framework_family": naming.framework_family(described["framework"]),
        "model": described["model"],
        "date": _date(fields.get("timestamp"), warnings),
    }
    return common, cost, reasons


def _date(value: Any, warnings: list[str]) -> str:
    try:
        return datetime.datetime.strptime(str(value).strip(), "%Y-%m-%d").date().isoformat()
    except ValueError:
        warnings.append(f"json: timestamp {quoted(value)} is not a date; left out")
        return ""
