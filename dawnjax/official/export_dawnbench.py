"""A run as an entry of DAWNBench: a JSON description and a TSV of epoch, hours and accuracy.

What `dawnjax infer` measured becomes an inference entry: a JSON alone, with the mean latency in
milliseconds and the cost of one example.

Source: the entries repository stanford-futuredata/dawn-bench-entries (commit fb27b82): README for
the fields and names, tests/test_submissions.py for what it accepts.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax.errors import ConfigError
from dawnjax.official import dawnbench
from dawnjax.official.exported_run import ExportedRun, checked_name, write_folder
from dawnjax.official.outcome import printable

# The task of a dataset, and the accuracies that its table has in our words.
_TASKS = {
    "cifar10": ("CIFAR10", {"top1Accuracy": "top_1_accuracy"}),
    "imagenet": ("ImageNet", {"top1Accuracy": "top_1_accuracy", "top5Accuracy": "top_5_accuracy"}),
}


def export(
    runs: Sequence[ExportedRun],
    out: Path,
    *,
    author: str,
    author_email: str = "",
    name: str = "dawnjax",
    hardware: str = "",
) -> list[Path]:
    """Writes one entry a run, and gives the paths of their descriptions.

    Args:
      runs: The runs.
      out: A new folder; entries go to `<Task>/train/` in it.
      author: Who made them.
      author_email: The repository asks for the field; empty unless given.
      name: What the files' names begin with.
      hardware: A short description of the machine; empty takes number and kind of the devices.

    Raises:
      ConfigError: A run is of no task of the benchmark, or a name cannot be one of a file.
      ConfigError: A run does not reach the task's threshold.
    """
    if not author.strip():
        raise ConfigError("--submitter is missing: the entry's author")
    checked_name("name", name)
    entries = [_entry(run, author, author_email, hardware) for run in runs]
    paths: list[Path] = []

    def write(folder: Path) -> None:
        for index, (task, description, table) in enumerate(entries):
            stem = name if len(entries) == 1 else f"{name}_{index}"
            place = Path(task) / "train"
            (folder / place).mkdir(parents=True, exist_ok=True)
            text = json.dumps(description, indent=4, allow_nan=False) + "\n"
            (folder / place / f"{stem}.json").write_text(text)
            (folder / place / f"{stem}.tsv").write_text(table)
            paths.append(out / place / f"{stem}.json")

    write_folder(out, write)
    return paths


def _entry(
    run: ExportedRun, author: str, author_email: str, hardware: str
) -> tuple[str, dict[str, Any], str]:
    result, experiment = run.result, run.experiment
    tag = experiment["data"].get("tag")
    if tag not in _TASKS:
        raise ConfigError(
            f"{run.path}: experiment {result.experiment} is no task of DAWNBench: its data are "
            f"{tag!r}; its tasks here need one of {', '.join(_TASKS)}"
        )
    task_name, columns = _TASKS[tag]
    task = dawnbench.TASKS[task_name]
    rows, best = [], 0.0
    for row in result.evaluations:
        values = {}
        for column, metric in columns.items():
            if not isinstance(row.get(metric), int | float):
                raise ConfigError(f"{run.path}: an evaluation has no {metric}")
            # Six decimals: a metric is a float32, and one of 0.94 must not become 93.9999998.
            values[column] = round(100 * row[metric], 6)
        best = max(best, values[task.metric])
        rows.append((row["epoch"], row["seconds_since_run_start"], values))
    if best < task.threshold:
        raise ConfigError(
            f"{run.path}: the best {task.metric} is {best:g}, below the {task.threshold:g} of "
            f"{task.name}; the benchmark takes no entry that does not reach it"
        )
    lines = ["\t".join(["epoch", "hours", *columns])]
    for epoch, seconds, values in rows:
        cells = [f"{epoch:g}" if epoch == round(epoch, 4) else repr(epoch)]
        cells.append(repr(seconds / dawnbench.SECONDS_PER_HOUR))
        lines.append("\t".join(cells + [repr(values[column]) for column in columns]))
    price = result.run_options.get("price_per_hour_usd")
    hosts = f" on {run.num_hosts} hosts" if run.num_hosts > 1 else ""
    machine = hardware or f"{result.num_devices} x {result.device_kind}{hosts}"
    description: dict[str, Any] = {
        "version": dawnbench.VERSION,
        "author": printable(author, 200),
        "authorEmail": printable(author_email, 200),
        "framework": run.framework,
        "model": printable(str(experiment["model"].get("tag", "")), 80),
        "hardware": printable(machine, 200),
        "timestamp": run.date,
    }
    if price is not None:
        description["costPerHour"] = price * run.num_hosts
    description["misc"] = {
        "experiment": printable(result.experiment, 80),
        "seed": result.seed,
        "batchSize": result.global_batch_size
        or [stage["global_batch_size"] for stage in result.stages],
        "interruptions": result.interruptions,
        "compileSecondsBeforeTheClock": result.compile_seconds_before_run_start,
        "totalSecondsToAccuracy": result.total_seconds_to_accuracy,
        "clock": "from the end of compilation and warm-up, before the first example is read",
    }
    return task.name, description, "\n".join(lines) + "\n"


def export_inference(
    files: Sequence[Path],
    out: Path,
    *,
    author: str,
    author_email: str = "",
    name: str = "dawnjax",
    hardware: str = "",
) -> list[Path]:
    """Writes one inference entry a measurement, and gives their paths.

    Args:
      files: What `dawnjax infer` wrote.
      out: A new folder; entries go to `<Task>/inference/` in it.
      author: Who made them.
      author_email: The repository asks for the field; empty unless given.
      name: What the files' names begin with.
      hardware: A short description of the machine; empty takes device and processor.

    Raises:
      ConfigError: A file is none, of no task of the benchmark, or its model is below the threshold.
    """
    if not author.strip():
        raise ConfigError("--submitter is missing: the entry's author")
    checked_name("name", name)
    entries = [_inference_entry(file, author, author_email, hardware) for file in files]
    paths: list[Path] = []

    def write(folder: Path) -> None:
        for index, (task, description) in enumerate(entries):
            stem = name if len(entries) == 1 else f"{name}_{index}"
            place = Path(task) / "inference"
            (folder / place).mkdir(parents=True, exist_ok=True)
            text = json.dumps(description, indent=4, allow_nan=False) + "\n"
            (folder / place / f"{stem}.json").write_text(text)
            paths.append(out / place / f"{stem}.json")

    write_folder(out, write)
    return paths


def _inference_entry(
    file: Path, author: str, author_email: str, hardware: str
) -> tuple[str, dict[str, Any]]:
    try:
        record = json.loads(file.read_text())
        data, device, versions = record["data"], record["device"], record["versions"]
        mean, cost = record["latency_seconds"]["mean"], record["cost_of_10000_usd"]
        quality, whole = record["quality"], record["reached"] is not None
        machine = hardware or f"{device['used']} x {device['kind']} ({device['processor']})"
        misc = {
            "experiment": printable(str(record["experiment"]), 80),
            "computeDtype": printable(str(record["compute_dtype"]), 20),
            "examples": int(record["examples"]),
            **{
                f"{name}LatencyMilliseconds": 1000 * record["latency_seconds"][name]
                for name in ("p50", "p99")
                if record["latency_seconds"][name] is not None
            },
            "timed": printable(str(record["timed"]), 200),
        }
        model, date = str(record["model"]), str(record["date"])
        price = record["price_per_hour_usd"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is nothing that `dawnjax infer` wrote ({error!r})") from None
    if data not in _TASKS:
        raise ConfigError(
            f"{file}: its data are {data!r}; DAWNBench's tasks here need one of {', '.join(_TASKS)}"
        )
    if not whole:
        raise ConfigError(
            f"{file}: not the whole evaluation split was answered, so that its quality is not known"
        )
    task_name, columns = _TASKS[data]
    task = dawnbench.TASKS[task_name]
    values = {column: round(100 * quality[metric], 6) for column, metric in columns.items()}
    if values[task.metric] < task.threshold:
        raise ConfigError(
            f"{file}: {task.metric} is {values[task.metric]:g}, below the {task.threshold:g} of "
            f"{task.name}; the benchmark takes no entry that does not reach it"
        )
    parts = [f"{name} {versions[name]}" for name in ("jax", "flax") if name in versions]
    description: dict[str, Any] = {
        "version": dawnbench.VERSION,
        "author": printable(author, 200),
        "authorEmail": printable(author_email, 200),
        "framework": printable(f"DawnJAX {versions.get('dawnjax', '')} ({', '.join(parts)})", 120),
        "model": printable(model, 80),
        "hardware": printable(machine, 200),
        "timestamp": date,
        "latency": 1000 * mean,
        **values,
    }
    if cost is not None:
        description["cost"] = cost / dawnbench.INFERENCE_EXAMPLES
    if price is not None:
        description["costPerHour"] = price
    description["misc"] = misc
    return task.name, description
