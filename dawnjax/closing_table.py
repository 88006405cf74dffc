"""Table that closes a run: each quantity, its value, and what the value holds."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.page import words
from dawnjax.page.table import Table, of_words
from dawnjax.results.entries import reaches
from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.runs.summary import RunResult
from dawnjax.tasks.metric import Metric
from dawnjax.tasks.task import find_metric

RATES = ("games", "positions", "simulations")
"""Figures of a generation that are counts of work."""


def closing_table(result: RunResult, experiment: Experiment, spec: AnySpec) -> Table:
    """Closing table of a run: quantity, value, and what the value holds."""
    rows: list[tuple[str, str, str]] = []

    def add(quantity: str, value: str, holds: str) -> None:
        rows.append((quantity, value, holds))

    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f} s"

    add(
        "time to accuracy",
        seconds(result.time_to_accuracy_seconds),
        # A value has its definition, and no value has its reason.
        result.reasons.get(
            "time_to_accuracy_seconds", "run_start to the evaluation that reached the target"
        )
        + ("" if result.epochs_to_target is None else f", {result.epochs_to_target:.2f} epochs")
        + ("; it began with another run's parameters" if result.initialized_from else ""),
    )
    if result.interruptions:
        add(
            "elapsed to accuracy",
            seconds(result.elapsed_seconds_to_accuracy),
            result.reasons.get(
                "elapsed_seconds_to_accuracy",
                f"with the gaps of {result.interruptions} interruption(s)",
            ),
        )
    add("compilation", seconds(result.compile_seconds), _compilation_note(result))
    add(
        "total to accuracy",
        seconds(result.total_seconds_to_accuracy),
        result.reasons.get(
            "total_seconds_to_accuracy",
            "from the start of the program, imports and compilation included",
        ),
    )
    add(
        "training alone",
        seconds(result.train_seconds),
        "train steps, no evaluation"
        + (f", of all {result.epochs:.2f} epochs" if result.trained_on else "")
        + _budget_note(result, experiment, spec),
    )
    rows += _generation_rows(result)
    for target in result.target:
        best = result.best.get(target["metric"])
        metric = find_metric(experiment.task, target["metric"])
        add(
            f"best {target['metric']}",
            "-" if best is None or metric is None else _quality(best, metric, target),
            f"target {target['direction'].replace('_', ' ')} {target['value']:g}",
        )
    rate = result.examples_per_second
    add(
        "throughput",
        "-" if rate is None else rate_text(rate, experiment, spec),
        result.reasons.get(
            "examples_per_second",
            f"{result.steps} steps of {result.global_batch_size or 'changing batches'}, "
            f"{result.epochs:.2f} epochs" + _parts_note(experiment, spec),
        ),
    )
    add(
        "goodput",
        "-" if result.goodput is None else f"{100 * result.goodput:.1f} %",
        result.reasons.get("goodput", _goodput_note(result.wall_seconds)),
    )
    for host in result.hosts:
        rows += _profile_rows(host, len(result.hosts) > 1)
    if "straggler" in result.reasons:
        add("slowest host", "-", result.reasons["straggler"])
    cost = result.cost_usd
    add(
        "cost",
        "-" if cost is None else f"{words.rounded(cost)} USD",
        result.reasons.get("cost_usd", "time to accuracy x price"),
    )
    add("hardware", f"{result.num_devices} x {result.device_kind}", _processes_note(result))
    table = of_words(["quantity", "value", "what it holds"], rows, texts=(0, 2))
    title = f"{result.experiment}, seed {result.seed}: {result.status}"
    return dataclasses.replace(table, title=title)


def _quality(best: float, metric: Metric, target: Mapping[str, Any]) -> str:
    wanted = target["value"], target["direction"]
    if reaches(round(best, metric.decimals), *wanted) and not reaches(best, *wanted):
        return f"{best:.8g}"  # rounded it would stand as a target that was reached
    return metric.text(best)


def _generation_rows(result: RunResult) -> list[tuple[str, str, str]]:
    """Seconds of each phase that made examples, and rates of what it made."""
    rows = []
    for name in GENERATION_PHASES:
        spent = result.phases.get(name)
        if spent is not None:
            rows.append((name.replace("_", "-"), f"{spent:.3f} s", _made_note(result, name)))
    return rows


def _made_note(result: RunResult, phase: str) -> str:
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
    if flops := sum(row.get("model_flops", 0.0) for row in result.generations):
        rate = words.scaled(flops / seconds, "FLOP/s")
        made.append(f"{words.scaled(flops, 'FLOP')} of the model ({rate})")
    return f"{len(result.generations)} generations: {', '.join(made)}"


def _goodput_note(seconds: Mapping[str, float]) -> str:
    counted = ("steps", *GENERATION_PHASES)
    others = sorted((n for n in seconds if n not in counted), key=lambda name: -seconds[name])
    largest = (f"{name.replace('_', ' ')} {words.duration(seconds[name])}" for name in others[:3])
    what = "steps and games" if seconds.keys() & set(GENERATION_PHASES) else "steps"
    return f"{what} that count, of {words.duration(sum(seconds.values()))}; {', '.join(largest)}"


def _budget_note(result: RunResult, experiment: Experiment, spec: AnySpec) -> str:
    limit, is_whole = experiment.max_seconds, result.steps >= experiment.num_steps(spec)
    if not limit or is_whole or result.status != "not_reached":
        return ""
    return f"; max_seconds={limit:g} ended them"


def rate_text(rate: float, experiment: Experiment, spec: AnySpec) -> str:
    """Examples a second in the task's unit, and how many of its parts (as tokens) they hold."""
    parts = experiment.task.parts_of_examples(spec)
    more = "".join(f" ({rate * count:,.0f} {name}/s)" for name, count in parts.items())
    # A slow task makes less than one a second.
    text = words.rounded(rate) if rate < 100 else f"{rate:,.{1 if parts else 0}f}"
    return f"{text} {experiment.task.example_unit}/s{more}"


def _parts_note(experiment: Experiment, spec: AnySpec) -> str:
    parts = experiment.task.parts_of_examples(spec)
    unit = experiment.task.example_unit
    return "".join(f"; {unit} hold {count:.1f} {name} on average" for name, count in parts.items())


def _profile_rows(host: dict[str, Any], name_host: bool) -> list[tuple[str, str, str]]:
    communication, used = host.get("communication"), host.get("utilization")
    if not communication or not used or "window" not in used:
        return []
    which = f", host {host['process_index']}" if name_host else ""
    exposed, skew = communication["exposed_fraction"], communication["exposed_skew_fraction"]
    name = f"exposed communication{which}"
    if exposed is None:
        sent = (name, "-", communication["reasons"]["exposed_fraction"])
    else:
        note = f"of a step, hidden by no computation: {100 * (exposed - skew):.1f} % on the wire, "
        note += f"{100 * skew:.1f} % waiting for the slowest device"
        sent = (name, f"{100 * exposed:.1f} %", note)
    mfu, hfu = used["mfu"], used["hfu"]
    executed = ""
    if hfu is not None:
        executed = f"{100 * hfu:.1f} % by the FLOPs that were executed"
        if mfu is not None and hfu < mfu:
            executed += f" ({_why_fewer(hfu / mfu)})"
        executed += "; "
    utilization = (
        f"model FLOP utilization{which}",
        "-" if mfu is None else f"{100 * mfu:.1f} %",
        executed
        + (used["reasons"].get("mfu") or f"of the profiled steps; peak: {used['peak_source']}"),
    )
    return [sent, utilization]


def _why_fewer(ratio: float) -> str:
    """Reason why a step executes fewer FLOPs than the model has, from their ratio."""
    # The model's are three times those of the forward pass, which are more than those of its first
    # layer: what is missing there is a third at most.
    if ratio < 2 / 3:
        return "an algorithm saves some of the model's"
    return "the model's count the gradient of the first layer's input too, which no step needs"


def _processes_note(result: RunResult) -> str:
    note = f"{result.num_processes} process(es)"
    cores = sorted({host["cores"] for host in result.hosts if host.get("cores")})
    if result.platform != "cpu" or not cores:
        return note
    # Processes of one machine share its cores.
    whose = " seen by each" if result.num_processes > 1 else ""
    return f"{note}, {' or '.join(map(str, cores))} cores{whose}"


def _compilation_note(result: RunResult) -> str:
    before = result.compile_seconds_before_run_start
    within = result.compile_seconds_in_time_to_accuracy
    if before is None:
        where = "of all attempts; how much of it was before run_start is not known"
    elif not result.interruptions:
        where = "before run_start, not in the time to accuracy"
    else:
        where = f"{before:.3f} s before run_start, not in the time to accuracy"
        after = result.compile_seconds - before - (within or 0.0)
        if within:
            where += f"; {within:.3f} s after a restart, in it"
        if after > 0.0005 and result.time_to_accuracy_seconds is not None:
            where += f"; {after:.3f} s after the target"
        elif after > 0.0005:
            where += f"; {after:.3f} s after a restart"
    states = " and ".join(sorted(set(result.compile_cache.values()))) or "off"
    return f"{where}; cache of compiled programs: {states}"
