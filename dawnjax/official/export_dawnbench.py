"""A run as an entry of DAWNBench: a JSON description and a TSV of epoch, hours and accuracy.

A measurement of `dawnjax infer` becomes an inference entry: a JSON alone, with the mean latency in
milliseconds and the cost of one example.

Source: the entries repository stanford-futuredata/dawn-bench-entries (commit fb27b82): README for
the fields and names, tests/test_submissions.py for its checks.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.official import dawnbench
from dawnjax.official.exported_run import ExportedRun, benchmark_data, metrics_of, naming_faults
from dawnjax.official.outcome import printable
from dawnjax.records.bounds import Amount, Count, StepSeconds
from dawnjax.runs.directory import check_name
from dawnjax.tasks.metric import KNOWN_METRICS

# The task of a published set, and the metrics that its table has.
_TASKS = {
    "CIFAR-10": ("CIFAR10", ("top1Accuracy",)),
    "ImageNet": ("ImageNet", ("top1Accuracy", "top5Accuracy")),
    "SQuAD": ("SQuAD", ("f1Score",)),
}

_OUR_DATA = "comparedWithTheData"
"""In `misc`: the published set that the data were compared with."""


def has_table(data: Any) -> bool:
    """True if DAWNBench has a table for the data of a run or a measurement, as it declares them."""
    return isinstance(data, dict) and data.get("benchmark") in _TASKS


def export(
    sources: Sequence[ExportedRun] | Sequence[Path],
    out: Path,
    *,
    author: str,
    author_email: str = "",
    name: str = "dawnjax",
    hardware: str = "",
) -> list[Path]:
    """Write one training entry per run, or one inference entry per file of `dawnjax infer`.

    `out` is a new folder for `<Task>/train/` and `<Task>/inference/`, `name` the files' prefix. The
    repository asks for `author_email`. An empty `hardware` takes the source's own.
    """
    if not author.strip():
        raise ConfigError("--submitter is missing: the entry's author")
    check_name("--name", name)
    entries = []
    for source in sources:
        is_run = isinstance(source, ExportedRun)
        with naming_faults(source.path if is_run else source):
            entries.append(_training_entry(source) if is_run else _inference_entry(source))
    paths: list[Path] = []

    def write(folder: Path) -> None:
        for index, entry in enumerate(entries):
            stem = entry.place / (name if len(entries) == 1 else f"{name}_{index}")
            description = {
                "version": dawnbench.VERSION,
                "author": printable(author, 200),
                "authorEmail": printable(author_email, 200),
                **entry.description,
                "hardware": printable(hardware or entry.hardware, 200),
                **entry.measured,
            }
            records.write_json(folder / f"{stem}.json", description, indent=4)
            if entry.table:
                records.write(folder / f"{stem}.tsv", entry.table)
            paths.append(out / f"{stem}.json")

    records.write_folder(out, write)
    return paths


class _Entry(NamedTuple):
    """Files of an entry: its folder, the fields of its description in order, and its table."""

    place: Path
    description: dict[str, Any]
    hardware: str
    measured: dict[str, Any]
    table: str = ""


def _task_of(data: Any, source: Path) -> tuple[dawnbench.BenchmarkTask, tuple[str, ...]]:
    name, columns = _TASKS[benchmark_data(data, _TASKS, source)]
    return dawnbench.TASKS[name], columns


def _scales(
    task: dawnbench.BenchmarkTask,
    columns: Sequence[str],
    declarations: Sequence[dict[str, Any]],
    source: Path,
) -> dict[str, tuple[str, float]]:
    """Our metric for each column, and the factor from its unit to the task's."""
    full = 100.0 if task.unit == "percent" else 1.0
    declared = metrics_of(declarations, source)
    scales = {}
    for column in columns:
        name = KNOWN_METRICS[column].name
        unit = declared[name].unit if name in declared else "none"
        if unit not in ("fraction", "percent"):
            raise ConfigError(
                f"{source}: DAWNBench's table has {column}, and the run measures no {name} as a "
                f"fraction or in percent (its unit: {unit})"
            )
        scales[column] = name, full if unit == "fraction" else full / 100.0
    return scales


def _values(
    metrics: dict[str, Any], scales: dict[str, tuple[str, float]], source: Path
) -> dict[str, float]:
    for name, _ in scales.values():
        if not isinstance(metrics.get(name), int | float):
            raise ConfigError(f"{source}: an evaluation has no {name}")
    # Six decimals: a metric is a float32, and one of 0.94 must not become 93.9999998.
    return {column: round(by * metrics[name], 6) for column, (name, by) in scales.items()}


def _check_threshold(best: float, task: dawnbench.BenchmarkTask, source: Path) -> None:
    if best < task.threshold:
        raise ConfigError(
            f"{source}: the best {task.metric} is {best:.9g}, below the {task.threshold:g} of "
            f"{task.name}; only entries that reach it are exported"
        )


def _training_entry(run: ExportedRun) -> _Entry:
    result, experiment = run.trial, run.experiment
    task, columns = _task_of(result.data, run.path)
    scales = _scales(task, columns, result.metrics, run.path)
    lines, best = ["\t".join(["epoch", "hours", *columns])], 0.0
    for row in result.evaluations:
        values, epoch = _values(row.metrics, scales, run.path), row.epoch or 0.0
        best = max(best, values[task.metric])
        cells = [f"{epoch:g}" if epoch == round(epoch, 4) else repr(epoch)]
        cells.append(repr((row.seconds_since_run_start or 0.0) / dawnbench.SECONDS_PER_HOUR))
        lines.append("\t".join([*cells, *map(repr, values.values())]))
    _check_threshold(best, task, run.path)
    prices = result.prices_per_hour_usd
    price = prices[0] if len(prices) == 1 else None  # an entry has one price for all its hours
    misc = {
        "experiment": printable(result.experiment, 80),
        _OUR_DATA: result.data["benchmark"],
        "seed": result.seed,
        "batchSize": result.global_batch_size
        or [stage["global_batch_size"] for stage in result.stages],
        "interruptions": result.interruptions,
        "compileSecondsBeforeTheClock": result.compile_seconds_before_run_start,
        "totalSecondsToAccuracy": result.total_seconds_to_accuracy,
        "clock": "from the end of compilation and warm-up, before the first example is read",
    }
    return _Entry(
        place=Path(task.name) / "train",
        description={
            "framework": run.framework,
            "model": printable(str(experiment["model"].get("tag", "")), 80),
        },
        hardware=str(run.trial.made.system),
        measured={
            "timestamp": run.date,
            **({} if price is None else {"costPerHour": price}),
            "misc": misc,
        },
        table="\n".join(lines) + "\n",
    )


class _Device(TypedDict):
    used: Count
    kind: str
    processor: str


class _Latency(TypedDict):
    mean: StepSeconds
    p50: StepSeconds | None
    p99: StepSeconds | None


class _Measurement(TypedDict):
    data: Any
    device: _Device
    versions: dict[str, str]
    latency_seconds: _Latency
    cost_of_10000_usd: Amount | None
    price_per_hour_usd: Amount | None
    quality: dict[str, Any]
    reached: bool | None
    metrics: list[dict[str, Any]]
    experiment: str
    model: str
    compute_dtype: str
    examples: Count
    timed: str
    date: str


def _inference_entry(file: Path) -> _Entry:
    try:
        record = records.decode(records.read_plain(file), _Measurement, others=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is nothing that `dawnjax infer` wrote ({error})") from None
    data, device, versions = record["data"], record["device"], record["versions"]
    latency, price = record["latency_seconds"], record["price_per_hour_usd"]
    cost = record["cost_of_10000_usd"]
    misc = {
        "experiment": printable(record["experiment"], 80),
        _OUR_DATA: str(data.get("benchmark") if isinstance(data, dict) else ""),
        "computeDtype": printable(record["compute_dtype"], 20),
        "examples": record["examples"],
        **{
            f"{name}LatencyMilliseconds": 1000 * value
            for name, value in (("p50", latency["p50"]), ("p99", latency["p99"]))
            if value is not None
        },
        "timed": printable(record["timed"], 200),
    }
    task, columns = _task_of(data, file)
    if record["reached"] is None:
        raise ConfigError(
            f"{file}: not the whole evaluation split was answered, so that its quality is not known"
        )
    values = _values(record["quality"], _scales(task, columns, record["metrics"], file), file)
    _check_threshold(values[task.metric], task, file)
    parts = [f"{name} {versions[name]}" for name in ("jax", "flax") if name in versions]
    framework = f"DawnJAX {versions.get('dawnjax', '')} ({', '.join(parts)})"
    return _Entry(
        place=Path(task.name) / "inference",
        description={
            "framework": printable(framework, 120),
            "model": printable(record["model"], 80),
        },
        hardware=f"{device['used']} x {device['kind']} ({device['processor']})",
        measured={
            "timestamp": record["date"],
            "latency": 1000 * latency["mean"],
            **values,
            **({} if cost is None else {"cost": cost / dawnbench.INFERENCE_EXAMPLES}),
            **({} if price is None else {"costPerHour": price}),
            "misc": misc,
        },
    )
