"""Table that closes a run: each quantity, its value, and what the value holds."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.page import words
from dawnjax.page.table import Table, of_words
from dawnjax.profile.tables import in_one_cell
from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.tasks.metric import Metric
from dawnjax.tasks.task import find_metric
from dawnjax.trials.target import Target, reaches
from dawnjax.trials.trial import Trial

RATES = ("games", "positions", "simulations")
"""Figures of a generation that are counts of work."""


def closing_table(result: Trial, experiment: Experiment, spec: AnySpec) -> Table:
    """Closing table of a run: quantity, value, and what the value holds."""
    rows: list[tuple[str, str, str]] = []

    def add(name: str, field: str, value: str | None, holds: str) -> None:
        """Add a row; a quantity without a value has its reason."""
        rows.append((name, "-" if value is None else value, result.reasons.get(field, holds)))

    def seconds(value: float | None) -> str | None:
        return None if value is None else f"{value:.3f} s"

    epochs = result.epochs_to_target
    add(
        "time to accuracy",
        "time_to_accuracy_seconds",
        seconds(result.time_to_accuracy_seconds),
        "run_start to the evaluation that reached the target"
        + ("" if epochs is None else f", {epochs:.2f} epochs")
        + ("; it began with another run's parameters" if result.initialized_from else ""),
    )
    if result.interruptions:
        name, value = "elapsed_seconds_to_accuracy", result.elapsed_seconds_to_accuracy
        gaps = f"with the gaps of {result.interruptions} interruption(s)"
        add("elapsed to accuracy", name, seconds(value), gaps)
    add("compilation", "", seconds(result.compile_seconds), _compilation_note(result))
    add(
        "total to accuracy",
        "total_seconds_to_accuracy",
        seconds(result.total_seconds_to_accuracy),
        "from the start of the program, imports and compilation included",
    )
    whole = f", of all {result.epochs:.2f} epochs" if result.trained_on else ""
    note = f"train steps, no evaluation{whole}"
    add("training alone", "", seconds(result.train_seconds), note)
    for phase in GENERATION_PHASES:
        if phase in result.phases:
            name = phase.replace("_", "-")
            add(name, "", seconds(result.phases[phase]), _made_note(result, phase))
    for target in result.target.parts():
        best = result.best.get(target.metric)
        metric = find_metric(experiment.task, target.metric)
        if target.value is None or metric is None:
            continue
        value = None if best is None else _quality(best, metric, target)
        wanted = f"target {target.direction.replace('_', ' ')} {target.value:g}"
        add(f"best {target.metric}", "", value, wanted)
    rate = result.examples_per_second
    add(
        "throughput",
        "examples_per_second",
        None if rate is None else rate_text(rate, experiment, spec),
        _steps_note(result),
    )
    value = None if result.goodput is None else f"{100 * result.goodput:.1f} %"
    add("goodput", "goodput", value, _goodput_note(result.wall_seconds))
    rows += _profile_rows(result)
    if "straggler" in result.reasons:
        add("slowest host", "straggler", None, "")
    cost = result.cost_usd
    value = None if cost is None else f"{words.rounded(cost)} USD"
    add("cost", "cost_usd", value, "time to accuracy x price")
    hardware = f"{result.num_devices} x {result.device_kind}"
    add("hardware", "", hardware, _processes_note(result))
    table = of_words(["quantity", "value", "what it holds"], rows, texts=(0, 2))
    title = f"{result.experiment}, seed {result.seed}: {words.of_name(result.status)}"
    return dataclasses.replace(table, title=title)


def _quality(best: float, metric: Metric, target: Target) -> str:
    wanted = target.value or 0.0, target.direction
    if reaches(round(best, metric.decimals), *wanted) and not reaches(best, *wanted):
        return f"{best:.8g}"  # rounded it would stand as a target that was reached
    return metric.text(best)


def _made_note(result: Trial, phase: str) -> str:
    """Counts and rates of what a phase made, over all generations."""
    if phase != "self_play":
        return "the newest parameters against the best"
    seconds = sum(row["self_play_seconds"] for row in result.generations)
    totals = {
        name: sum(row[name] for row in result.generations)
        for name in RATES
        if all(name in row for row in result.generations)
    }
    if not seconds:
        return "no whole generation"
    made = [f"{total:,.0f} {name} ({total / seconds:,.1f}/s)" for name, total in totals.items()]
    return f"{len(result.generations)} generations: {', '.join(made)}"


def _steps_note(result: Trial) -> str:
    """Steps that the throughput counts; a killed attempt's are made again."""
    made = f"{result.steps_made} steps of {result.global_batch_size or 'changing batches'}"
    again = "" if result.steps_made == result.steps else f" made to reach step {result.steps}"
    return f"{made}{again}, {result.epochs:.2f} epochs"


def _goodput_note(seconds: Mapping[str, float]) -> str:
    counted = ("steps", *GENERATION_PHASES)
    others = sorted((n for n in seconds if n not in counted), key=lambda name: -seconds[name])
    largest = (f"{name.replace('_', ' ')} {words.duration(seconds[name])}" for name in others[:3])
    return f"steps that were kept, of {words.duration(sum(seconds.values()))}; {', '.join(largest)}"


def rate_text(rate: float, experiment: Experiment, spec: AnySpec) -> str:
    """Examples a second in the task's unit, and how many of its parts (as tokens) they hold."""
    parts = experiment.task.parts_of_examples(spec)
    more = "".join(f" ({rate * count:,.0f} {name}/s)" for name, count in parts.items())
    # A slow task makes less than one a second.
    text = words.rounded(rate) if rate < 100 else f"{rate:,.{1 if parts else 0}f}"
    return f"{text} {experiment.task.example_unit}/s{more}"


def _profile_rows(result: Trial) -> list[tuple[str, str, str]]:
    """Rows of the hosts' profiles; hosts that agree are one row."""
    said = (
        (host["process_index"], row) for host in result.hosts for row in _rows_of_host(host, result)
    )
    rows = []
    for hosts, (name, value, note) in words.shared(said):
        which = "" if len(hosts) == len(result.hosts) else f", host {in_one_cell(hosts)}"
        rows.append((f"{name}{which}", value, note))
    return rows


def _rows_of_host(host: dict[str, Any], result: Trial) -> list[tuple[str, str, str]]:
    communication, used = host.get("communication"), host.get("utilization")
    if not communication or not used or "window" not in used:
        return []
    exposed, skew = communication["exposed_fraction"], communication["exposed_skew_fraction"]
    name = "exposed communication"
    if exposed is None:
        rows = [(name, "-", communication["reasons"]["exposed_fraction"])]
    else:
        note = f"of a step, not hidden by computation: {100 * (exposed - skew):.1f} % on the wire, "
        note += f"{100 * skew:.1f} % waiting for the slowest device"
        rows = [(name, f"{100 * exposed:.1f} %", note)]
    value, note = _flops_row(used, result)
    return [*rows, ("FLOP utilization", value, note)]


def _flops_row(used: dict[str, Any], result: Trial) -> tuple[str, str]:
    """Utilization by the FLOPs that were executed, where an algorithm saves some of the model's."""
    mfu, hfu = used["mfu"], used["hfu"]
    why = used["reasons"].get("mfu") or f"model FLOPs {words.NOT_KNOWN}"
    if hfu is not None and (mfu is None or hfu < mfu):
        shown, note = hfu, "executed FLOPs; "
        note += f"{100 * mfu:.1f} % counting the model's, some of which are skipped" if mfu else why
    elif mfu is not None:
        shown, note = mfu, "model FLOPs"
        note += "" if hfu is None else f"; {100 * hfu:.1f} % counting all executed"
    else:
        return "-", why
    note += "; measured on profiled steps"
    if result.examples_per_second and result.global_batch_size:
        steps_per_second = result.examples_per_second / result.global_batch_size
        own = shown * used["step_seconds"] * steps_per_second
        note += f", {100 * own:.1f} % over all train steps"
    return f"{100 * shown:.1f} %", f"{note}; peak: {used['peak_source']}"


def _processes_note(result: Trial) -> str:
    note = f"{result.num_processes} process(es)"
    cores = sorted({host["cores"] for host in result.hosts if host.get("cores")})
    if result.platform != "cpu" or not cores:
        return note
    # Processes of one machine share its cores.
    whose = " seen by each" if result.num_processes > 1 else ""
    return f"{note}, {' or '.join(map(str, cores))} cores{whose}"


def _compilation_note(result: Trial) -> str:
    holds = "all programs, traced, compiled or read back, and run once on zeros; "
    before = result.compile_seconds_before_run_start
    within = result.compile_seconds_in_time_to_accuracy
    if before is None:
        where = "of all attempts; how much of it was before run_start is not known"
    elif not result.interruptions:
        where = "before run_start, not in the time to accuracy"
    else:
        where = f"{before:.3f} s before run_start, not in the time to accuracy"
        where += f"; {within:.3f} s in it, after a restart" if within else ""
    states = " and ".join(sorted(set(result.compile_cache.values()))) or "off"
    return f"{holds}{where}; cache of compiled programs: {states}"
