"""Runs as an MLPerf Training result folder: a log a trial and the description of the system.

    OUT/systems/<system>.json
    OUT/results/<system>/<benchmark>/result_N.txt

Logs are of the open division, and of the newest ruleset that has the benchmark; their times are
whole milliseconds.

Source: mlcommons/logging 4.1.68, compliance_checker/training_* (events, order, counts),
system_desc_checker (fields), mllog (form of a line).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.machine.hardware import num_chips
from dawnjax.official import mlperf_rounds
from dawnjax.official.exported_run import ExportedRun, benchmark_data, metrics_of, naming_faults
from dawnjax.official.outcome import printable
from dawnjax.runs.directory import check_name
from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import LoggedRun


class Exported(NamedTuple):
    """Form of a benchmark's entries.

    Attributes:
      data: The published set that it is trained on.
      ruleset: The newest that has the benchmark.
      most_initialization_minutes: Of its open division, from the start of a process to run_start.
      metrics: Our metrics that decide, each with its name in a log; empty for a plain number.
      quality: These metrics in words.
      differs: Settings in which our recipe is not the reference's, as
        `experiments/mlperf_recipes.md` names them.
    """

    data: str
    ruleset: str
    most_initialization_minutes: int
    metrics: Mapping[str, str]
    quality: str
    differs: tuple[str, ...]


BENCHMARKS = {
    "resnet": Exported(
        *("ImageNet", "4.0.0", 240, {"top_1_accuracy": ""}, "the top-1 accuracy"),
        ("training images", "colours", "evaluations"),
    ),
    "ssd": Exported(
        *("COCO 2017", "1.1.0", 30, {"box_ap": ""}, "the box AP"),
        ("training images", "evaluations"),
    ),
    "maskrcnn": Exported(
        *("COCO 2017", "3.1.0", 240, {"box_ap": "BBOX", "mask_ap": "SEGM"}),
        "the box AP and the mask AP",
        ("padding", "colours", "strides", "kept proposals", "search", "mask targets"),
    ),
}
"""The benchmarks that can be exported. From ruleset 2.0.0 on, `ssd` is RetinaNet."""

STATUSES = {
    "research": "Research, Development, or Internal (RDI)",
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "preview": "Preview",
}
"""The words of a log for a system's availability, and those of its description."""

# Fields that a description must have and that a run does not know.
_UNKNOWN_FIELDS = """
    host_processor_model_name host_processor_core_count host_processor_vcpu_count
    host_processor_frequency host_processor_caches host_processor_interconnect
    host_memory_capacity host_storage_type host_storage_capacity host_networking
    host_networking_topology host_memory_configuration accelerator_host_interconnect
    accelerator_frequency accelerator_on-chip_memories accelerator_memory_configuration
    accelerator_memory_capacity accelerator_interconnect accelerator_interconnect_topology
    cooling hw_notes operating_system
"""


def export(
    runs: Sequence[ExportedRun],
    out: Path,
    *,
    submitter: str,
    system: str = "dawnjax_system",
    status: str = "research",
) -> list[Path]:
    """Write the result folder of one experiment's trials; return the paths of the logs.

    `runs` differ in their seed only. `system` names a file and a folder, `status` is one of
    `STATUSES`, and `out` must be a new folder.
    """
    if not submitter.strip():
        raise ConfigError("--submitter is missing: the organisation that publishes the results")
    check_name("--system", system)
    with naming_faults(*(run.path for run in runs)):
        benchmark = _benchmark(runs)
        _check_alike(runs)
        for run in runs:
            _check_clock(run, BENCHMARKS[benchmark])
        ordered = sorted(runs, key=lambda run: run.trial.seed or 0)
        logs = [_log(run, benchmark, submitter, system, status) for run in ordered]
        description = _description(ordered[0], submitter, system, status)
    place = Path("results") / system / benchmark

    def write(folder: Path) -> None:
        records.write_json(folder / "systems" / f"{system}.json", description, indent=4)
        for number, lines in enumerate(logs):
            records.write(folder / place / f"result_{number}.txt", "\n".join(lines) + "\n")

    records.write_folder(out, write)
    return [out / place / f"result_{number}.txt" for number in range(len(logs))]


def _benchmark(runs: Sequence[ExportedRun]) -> str:
    for run in runs:
        named = run.experiment.get("mlperf_benchmark", "")
        if not isinstance(named, str) or named not in BENCHMARKS:
            why = f"names {named!r}" if named else "names none (its field mlperf_benchmark)"
            raise ConfigError(
                f"{run.path}: experiment {run.trial.experiment} is not an MLPerf benchmark that "
                f"can be exported: it {why}; known: {', '.join(BENCHMARKS)}"
            )
        benchmark_data(run.trial.data, (BENCHMARKS[named].data,), run.path)
    return runs[0].experiment["mlperf_benchmark"]


def _check_alike(runs: Sequence[ExportedRun]) -> None:
    first = runs[0]
    seeds: dict[int, Path] = {}
    for run in runs:
        why = run.trial.made.difference(first.trial.made)
        if not why and run.software != first.software:
            # The folder has one description of the system for all trials.
            why = f"it ran with {_words(run.software)}, not with {_words(first.software)}"
        if why:
            raise ConfigError(
                f"{run.path} is not a trial beside {first.path}: {why}; the trials of a result "
                "differ in their seed only"
            )
        seed = run.trial.seed or 0
        if seed in seeds:
            raise ConfigError(
                f"{run.path} has the seed {seed} of {seeds[seed]}; each trial needs its own"
            )
        seeds[seed] = run.path


def _words(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items())


def _check_clock(run: ExportedRun, form: Exported) -> None:
    if run.trial.interruptions:
        raise ConfigError(
            f"{run.path}: the trial was interrupted; MLPerf's clock may not pause, "
            "so it cannot be exported"
        )
    start, most = run.of("run_start")[0], 60 * form.most_initialization_minutes
    if start["t"] >= most:
        raise ConfigError(
            f"{run.path}: {start['t']:.0f} s passed before the clock started; the open division "
            f"allows {most}"
        )
    end = _end(run)
    if None not in (start["boot_seconds"], end["boot_seconds"]):
        # Only the boot clock counts a suspension; `t` stands still during it.
        slept = (end["boot_seconds"] - start["boot_seconds"]) - (end["t"] - start["t"])
        if slept > 1:
            raise ConfigError(
                f"{run.path}: the machine was suspended for {slept:.0f} s during the trial; "
                "MLPerf's clock may not pause"
            )
    if not run.of("evaluation"):
        raise ConfigError(f"{run.path}: the trial ended before its first evaluation")


def _end(run: ExportedRun) -> Event:
    reached = [event for event in run.of("evaluation") if event["reached"]]
    return reached[0] if reached else LoggedRun.from_events(run.events).training_end


def _log(run: ExportedRun, benchmark: str, submitter: str, system: str, status: str) -> list[str]:
    start, end = run.of("run_start")[0], _end(run)
    form, declared = BENCHMARKS[benchmark], metrics_of(run.trial.metrics, run.path)
    targets = {part.metric: part.value for part in run.trial.target.parts()}
    are_fractions = all(
        name in declared and declared[name].unit == "fraction" for name in form.metrics
    )
    if targets.keys() != form.metrics.keys() or not are_fractions:
        raise ConfigError(
            f"{run.path}: the target of {benchmark} is {form.quality} alone, as a fraction"
        )
    ruleset = f"v{form.ruleset.rpartition('.')[0]}"
    wanted = mlperf_rounds.target(benchmark, ruleset, None)
    if [targets[name] for name in form.metrics] != [part.value for part in wanted.parts()]:
        raise ConfigError(
            f"{run.path}: its target is {run.trial.target.words()}, and {benchmark} of ruleset "
            f"{form.ruleset} asks for {wanted.words()}"
        )
    # One offset for all lines: later changes of the wall clock do not move events.
    base = start["unix_seconds"] - start["t"]

    def line(seconds: float, key: str, value: Any = None, kind: str = "", **metadata: Any) -> str:
        record = {
            "namespace": "",
            "time_ms": round(1000 * (base + seconds)),
            "event_type": kind or "POINT_IN_TIME",
            "key": key,
            "value": value,
            "metadata": {"file": "dawnjax", "lineno": 0, **metadata},
        }
        return ":::MLLOG " + json.dumps(record, allow_nan=False)

    experiment, began = run.experiment, start["t"]
    optimizer = str(experiment["optimizer"].get("tag", ""))
    if run.trial.global_batch_size is None:
        raise ConfigError(
            f"{run.path}: the batch size changes in the run; an MLPerf log has one for the whole"
        )
    lines = [
        line(0.0, "submission_benchmark", benchmark),
        line(0.0, "submission_org", printable(submitter, 120)),
        line(0.0, "submission_division", "open"),
        line(0.0, "submission_status", status),
        line(0.0, "submission_platform", system),
        # No cache of the machine is cleared: every epoch's images are in memory.
        line(0.0, "cache_clear", False),
        line(0.0, "init_start", kind="INTERVAL_START"),
        line(0.0, "seed", run.trial.seed),
        line(0.0, "global_batch_size", run.trial.global_batch_size),
        line(0.0, "gradient_accumulation_steps", experiment.get("accumulation_steps", 1)),
        line(0.0, "train_samples", run.num_train_examples),
        line(0.0, "eval_samples", run.num_eval_examples),
        line(0.0, "opt_name", printable(optimizer, 40)),
        line(0.0, "target_accuracy", _logged(form, targets)),
        line(began, "init_stop", kind="INTERVAL_END"),
        line(began, "run_start", kind="INTERVAL_START"),
    ]
    lines += _blocks(run, line, form, end)
    word = "success" if run.trial.reached else "aborted"
    lines.append(line(end["t"], "run_stop", kind="INTERVAL_END", status=word))
    return lines


def _blocks(run: ExportedRun, line: Any, form: Exported, end: Event) -> list[str]:
    lines: list[str] = []
    begin, epoch = run.of("run_start")[0]["t"], 0.0
    phases = [event for event in run.of("phase") if event["name"] == "eval"]
    for evaluation in run.of("evaluation"):
        if evaluation["t"] > end["t"]:
            break
        trained = evaluation["epoch"]
        starts = [event["t"] for event in phases if begin <= event["t"] <= evaluation["t"]]
        eval_start = starts[-1] if starts else evaluation["t"]
        block = {"first_epoch_num": _number(epoch + 1), "epoch_count": _number(trained - epoch)}
        lines += [
            line(begin, "block_start", kind="INTERVAL_START", **block),
            line(eval_start, "block_stop", kind="INTERVAL_END", **block),
            line(eval_start, "eval_start", kind="INTERVAL_START", epoch_num=_number(trained)),
        ]
        value = _logged(form, evaluation["metrics"])
        if value is not None:  # a diverged trial's is the text NaN
            lines.append(line(evaluation["t"], "eval_accuracy", value, epoch_num=_number(trained)))
        lines.append(
            line(evaluation["t"], "eval_stop", kind="INTERVAL_END", epoch_num=_number(trained))
        )
        begin, epoch = evaluation["t"], trained
    return lines


def _logged(form: Exported, values: Mapping[str, Any]) -> Any:
    """Values of the metrics that decide, as a log has them; None where one is not a number."""
    numbers = {logged: values[name] for name, logged in form.metrics.items()}
    if not all(isinstance(number, int | float) for number in numbers.values()):
        return None
    return numbers.get("", numbers)


def _number(epochs: float) -> float | int:
    rounded = round(epochs, 6)
    return int(rounded) if rounded == int(rounded) else rounded


def _description(run: ExportedRun, submitter: str, system: str, status: str) -> dict[str, Any]:
    result, hosts = run.trial, run.num_hosts
    on_cpu = result.platform == "cpu"
    chips = num_chips(result.num_devices, result.device_kind)
    description: dict[str, Any] = dict.fromkeys(_UNKNOWN_FIELDS.split(), "")
    return description | {
        "submitter": printable(submitter, 120),
        "division": "open",
        "status": STATUSES[status],
        "system_name": system,
        "number_of_nodes": str(hosts),
        "host_processors_per_node": "1",
        "accelerators_per_node": "0" if on_cpu else str(chips // hosts),
        "accelerator_model_name": "N/A" if on_cpu else printable(result.device_kind, 120),
        "framework": run.framework,
        "other_software_stack": run.software,
        "sw_notes": "host_processors_per_node is not measured",
    }
