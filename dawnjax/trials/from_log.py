"""A trial from the log of its run, which is the only truth about it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.runs import goodput
from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.runs.directory import flatten
from dawnjax.runs.log import LOSSES, Event
from dawnjax.runs.logged_run import (
    HEARTBEAT_SECONDS,
    NO_RUN_START,
    NOT_REACHED,
    LoggedRun,
    chooses,
    events_of,
    last_event,
)
from dawnjax.runs.loss_curve import averaged, loss_curve
from dawnjax.runs.rows import generation_rows, spans_of, stage_rows
from dawnjax.runs.stages import examples_before
from dawnjax.runs.warnings import run_warnings
from dawnjax.tasks.metric import declared_metrics
from dawnjax.trials.origin import timed_options, timed_settings
from dawnjax.trials.target import Target
from dawnjax.trials.trial import Evaluation, Trial, day_of

FIRST_LOSSES = 10
"""First losses that a trial keeps: enough to distinguish two recipes."""

MOST_LOSSES = 120
"""Points of a trial's training loss."""

BACKBONE = frozenset({"stem", "stem_norm", "blocks"})
"""Parts of a ResNet that MLPerf's SSD and Mask R-CNN begin with, trained on ImageNet."""

_LOST_LOG = (
    "an earlier log or its end was lost: how long its last attempt went on after its last "
    "checkpoint is not known"
)
_NOT_THE_FIRST = (
    "an earlier run of the same process imported the libraries and compiled programs: a total "
    "without that would be too short"
)

Figure = float | str
"""A number, or why there is none."""


def trial_of(events: Sequence[Event], name: str = "") -> Trial:
    """Make a trial of the events of process 0.

    Args:
      name: The trial's name; its run's id if empty.

    Raises:
      RunError: The log says too little, or a field is of another kind than our programs write.
    """
    try:
        return _trial_of(LoggedRun.from_events(events), name)
    except records.FORGED as error:
        raise RunError(of_another_kind(error)) from None


def of_another_kind(error: Exception) -> str:
    """Message for a log that an error at one of its fields made unreadable."""
    reason = " ".join(str(error).split())[:200]
    return f"a field of the log is missing or of another kind ({type(error).__name__}: {reason})"


def _trial_of(run: LoggedRun, name: str) -> Trial:
    record, devices = last_event(run.events, "experiment"), last_event(run.events, "devices")
    if record is None or devices is None:
        raise RunError("the log ends before the run described itself; nothing can be summarized")
    start = next((attempt.start for attempt in reversed(run.attempts) if attempt.start), {})
    run_id = start.get("run_id", "")
    target = _target(record)
    evaluations = _evaluations(run, target)
    host_summary = last_event(run.attempts[-1].events, "host_summary") or {
        "hosts": [],
        "no_hosts": "the last attempt ended before the hosts were summed up",
    }
    figures = {**_times_to_accuracy(run), **_times(run), **_costs(run)}
    known: dict[str, Any] = {n: None if isinstance(v, str) else v for n, v in figures.items()}
    speed, reasons = _speed(run, record)
    reasons |= {field: value for field, value in figures.items() if isinstance(value, str)}
    if why := host_summary.get("no_hosts"):
        reasons["hosts"] = why
    elif why := host_summary.get("no_straggler"):
        reasons["straggler"] = why
    return Trial(
        name=name or run_id,
        run_id=run_id,
        status=_status(run),
        reached=run.reached is not None,
        target=target,
        evaluations=evaluations,
        best=_best(target, evaluations),
        epochs_to_target=None if run.reached is None else run.reached["epoch"],
        date=day_of(run.events[0].get("unix_seconds")),
        began_unix_seconds=run.events[0].get("unix_seconds"),
        interruptions=len(run.attempts) - 1,
        first_losses=_first_losses(run.events),
        losses=tuple(averaged(loss_curve(run.events), MOST_LOSSES)),
        diverged_step=(last_event(run.events, "diverged") or {}).get("step"),
        generations=tuple(generation_rows(run)),
        compile_cache=_compile_cache(run),
        hosts=tuple(host_summary["hosts"]),
        load=_load(run),
        straggler=host_summary.get("straggler"),
        versions=start.get("versions", {}),
        reasons=reasons,
        warnings=(*run_warnings(run), *_changes(run)),
        budget_seconds=_budget(run, record),
        **_recipe(run, record),
        **_system(run, devices),
        **speed,
        **known,
    )


def _load(run: LoggedRun) -> dict[str, float]:
    """Mean load over the attempts that recorded one, each by its length."""
    loads = []
    for attempt in run.attempts:
        told = last_event(attempt.events, "host_summary") or {}
        if load := told.get("load"):
            loads.append((float(told["hosts"][0]["seconds"]), load))
    total = sum(seconds for seconds, _ in loads)
    if not total:
        return {}
    names = loads[-1][1]
    return {
        name: round(sum(seconds * load[name] for seconds, load in loads) / total, 4)
        for name in names
    }


def _recipe(run: LoggedRun, record: Event) -> dict[str, Any]:
    """What was trained, and how."""
    experiment = record["experiment"]
    official = experiment.get("mlperf_benchmark")
    settings = (last_event(run.events, "devices") or {}).get("settings")
    model = experiment.get("model")
    return {
        "experiment": experiment["name"],
        "identity": record["identity"],
        "overrides": record["overrides"],
        "seed": record["seed"],
        "model": str(model.get("tag", "")) if isinstance(model, dict) else "",
        "num_params": (last_event(run.events, "work") or {}).get("num_params"),
        "official": official if isinstance(official, str) else "",
        "target_note": experiment["target_note"],
        "initialized_from": str(experiment.get("initial_state", "")),
        "begins_by_the_rules": _begins_by_the_rules(run.events, official),
        "chooses": chooses(run.events),
        "metrics": tuple(record["metrics"]),
        "example_unit": record["example_unit"],
        "data": record["data"],
        "fields": flatten(experiment),
        "run_options": record["run_options"],
        "timed_options": {
            **timed_options(record["run_options"]),
            **timed_settings(settings if isinstance(settings, dict) else {}),
        },
    }


def _begins_by_the_rules(events: Sequence[Event], benchmark: Any) -> bool:
    """True if MLPerf's rules begin with what a run took from another run: the backbone alone."""
    told = events_of(events, "initialized_from")
    parts = {name.split("/")[1] for event in told for name in event.get("taken", ())}
    sources = {event.get("source_model") for event in told}
    is_backbone = sources == {"resnet"} and parts <= BACKBONE
    return benchmark in ("ssd", "maskrcnn") and is_backbone


def _system(run: LoggedRun, devices: Event) -> dict[str, Any]:
    """Devices of the newest attempt, and the prices of all."""
    cores = _cores(run.events)
    names = ("platform", "device_kind", "num_devices", "num_processes", "num_hosts", "mesh")
    return {
        **{name: devices[name] for name in names},
        "cores": cores[max(cores)] if cores else None,
        "prices_per_hour_usd": tuple(dict.fromkeys(one.usd_per_hour for one in run.attempts)),
    }


def _cores(events: Sequence[Event]) -> dict[int, int]:
    """Cores open to process 0 in each attempt that tells them."""
    samples = events_of(events, "host_sample")
    return {e["attempt"]: e["cores"] for e in samples if isinstance(e.get("cores"), int)}


def _changes(run: LoggedRun) -> list[str]:
    """Warnings on attempts that ran on different systems or with different options."""
    cores, warnings = _cores(run.events), []
    systems = {
        (
            event["device_kind"],
            event["num_devices"],
            event["num_processes"],
            cores.get(event["attempt"]) if event["platform"] == "cpu" else None,
        )
        for event in events_of(run.events, "devices")
    }
    if len(systems) > 1:
        warnings.append("the attempts ran on different systems")
    options = [timed_options(e["run_options"]) for e in events_of(run.events, "experiment")]
    names = sorted({name for chosen in options for name in chosen})
    if changed := [n for n in names if len({repr(chosen.get(n)) for chosen in options}) > 1]:
        warnings.append(f"the attempts ran with different {', '.join(changed)}")
    return warnings


def _status(run: LoggedRun) -> str:
    ends = ("trained", "attempt_end")  # before the profile, and after it
    end = next((e for e in reversed(run.attempts[-1].events) if e["event"] in ends), None)
    return "running" if end is None else end["status"]


def _target(record: Event) -> Target:
    """Target of a run with its metric's declaration: the first, and any others beside it."""
    metrics = declared_metrics(record["metrics"])
    parts = []
    for part in record["experiment"]["targets"]:
        metric = metrics.get(part["metric"])
        declared = {} if metric is None else {"unit": metric.unit, "title": metric.title}
        fields = {name: part[name] for name in ("metric", "value", "direction")}
        parts.append(records.convert({**fields, **declared}, Target))
    if not parts:
        return Target()
    return records.convert({**records.plain(parts[0]), "others": records.plain(parts[1:])}, Target)


def _evaluations(run: LoggedRun, target: Target) -> tuple[Evaluation, ...]:
    """Evaluations by step: the first measurement, where an attempt repeated work."""
    rows: dict[int, Evaluation] = {}
    work_before = _work(run)
    for event in events_of(run.events, "evaluation"):
        seconds = run.run_seconds(event)
        evaluation = Evaluation(
            step=event["step"],
            **work_before(event["step"]),
            epoch=event["epoch"],
            seconds_since_run_start=None if seconds is None else round(seconds, 6),
            value=number(event["metrics"].get(target.metric)),
            metrics=event["metrics"],
        )
        rows.setdefault(event["step"], evaluation)
    return tuple(rows[step] for step in sorted(rows))


def _work(run: LoggedRun) -> Callable[[int], dict[str, float]]:
    """Tokens and model FLOPs of the examples before a step, where the log tells them."""
    record, work = last_event(run.events, "experiment"), last_event(run.events, "work") or {}
    assert record is not None
    spans, flops = spans_of(record), work.get("flops_per_example") or ()
    tokens = record.get("parts_of_examples", {}).get("tokens")

    def before(step: int) -> dict[str, float]:
        examples = [
            span.examples_before(min(step, span.last_step)) - span.first_example
            for span in spans
            if span.first_step < step
        ]
        found = {}
        if tokens:
            found["tokens"] = sum(examples) * tokens
        if flops:
            found["flops"] = sum(n * of for n, of in zip(examples, flops, strict=False))
        return found

    return before


def number(value: Any) -> float:
    """A metric's value; NaN for infinities too, which are text in a log, and for other text."""
    return value if isinstance(value, int | float) and math.isfinite(value) else math.nan


def _best(target: Target, evaluations: Sequence[Evaluation]) -> dict[str, float]:
    best = {}
    for part in target.parts():
        values = [number(row.metrics.get(part.metric)) for row in evaluations]
        if known := [value for value in values if not math.isnan(value)]:
            best[part.metric] = (max if part.direction == "at_least" else min)(known)
    return best


def _times_to_accuracy(run: LoggedRun) -> dict[str, Figure]:
    names = (
        "time_to_accuracy_seconds",
        "elapsed_seconds_to_accuracy",
        "total_seconds_to_accuracy",
        "compile_seconds_in_time_to_accuracy",
    )
    reached, start = run.reached, run.run_start
    why = NOT_REACHED if reached is None else run.why_no_time(reached)
    if reached is None or start is None or why:
        return dict.fromkeys(names, why)
    runs_before = run.attempts[0].start.get("runs_before")
    compiled = run.compile_seconds(reached) - run.compile_seconds(start)
    values = (
        _rounded(run.run_seconds(reached)),
        _rounded(run.elapsed_seconds(reached)),
        _NOT_THE_FIRST if runs_before else _rounded(run.total_seconds(reached)),
        _rounded(compiled),
    )
    return dict(zip(names, values, strict=True))


def _times(run: LoggedRun) -> dict[str, Figure]:
    phases = run.phase_seconds()
    start = run.run_start
    # A killed attempt may have lived for a heartbeat after its last event.
    uncertainty = sum(not attempt.ended for attempt in run.attempts) * HEARTBEAT_SECONDS
    return {
        "clock_seconds": _rounded(run.run_seconds(run.training_end), NO_RUN_START),
        "total_seconds": _rounded(sum(attempt.seconds for attempt in run.attempts)),
        "time_uncertainty_seconds": _LOST_LOG if run.lost_log else uncertainty,
        "train_seconds": _rounded(phases["train"]),
        "compile_seconds": _rounded(phases["compile"]),
        "compile_seconds_before_run_start": NO_RUN_START
        if start is None
        else _rounded(run.compile_seconds(start)),
    }


def _budget(run: LoggedRun, record: Event) -> float | None:
    """Seconds of the whole budget, at the run's own pace."""
    clock, steps = run.run_seconds(run.training_end), run.newest_step
    longest = record["experiment"].get("max_seconds") or math.inf
    if clock is None or not steps:
        return None
    return round(min(longest, clock * max(1.0, spans_of(record)[-1].last_step / steps)), 6)


def _costs(run: LoggedRun) -> dict[str, Figure]:
    allocated, unpriced = run.allocated_cost()
    on_clock, no_clock = run.run_cost(run.training_end)
    to_target, why = None, unpriced or NOT_REACHED
    if run.reached is not None:
        to_target, why = run.run_cost(run.reached)
    # A run of seconds on a cheap machine costs some millionths.
    return {
        "cost_usd": _rounded(to_target, why, 9),
        "clock_cost_usd": _rounded(on_clock, no_clock, 9),
        "allocated_cost_usd": _rounded(allocated, unpriced, 9),
    }


def _speed(run: LoggedRun, record: Event) -> tuple[dict[str, Any], dict[str, str]]:
    """What the train steps made, in which time, and why a field is unknown."""
    spans, stages = spans_of(record), stage_rows(record, run)
    sizes = {span.global_batch_size for span in spans}
    steps = run.newest_step
    seconds = run.phase_seconds()
    examples = sum(row["steps_made"] * row["global_batch_size"] for row in stages)
    wall, no_wall = goodput.wall_seconds(run)
    fields = {
        "steps": steps,
        "steps_made": sum(row["steps_made"] for row in stages),
        "epochs": round(examples_before(spans, steps) / record["num_train_examples"], 6),
        "global_batch_size": sizes.pop() if len(sizes) == 1 else None,
        "stages": tuple(stages) if len(stages) > 1 else (),
        "examples_per_second": round(examples / seconds["train"], 6)
        if examples and seconds["train"]
        else None,
        "phases": _used({name: round(value, 6) for name, value in seconds.items()}),
        "wall_seconds": _used(wall),
        "goodput": round(goodput.share(wall), 6) if wall else None,
    }
    why = {
        "global_batch_size": "it changes in the run; stages has each",
        "examples_per_second": "the log has no train step with its time",
        "goodput": no_wall,
    }
    return fields, {name: reason for name, reason in why.items() if fields[name] is None}


def _used(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase, without those of generations where there are none."""
    return {n: value for n, value in seconds.items() if value or n not in GENERATION_PHASES}


def _rounded(value: float | None, why: str = "", digits: int = 6) -> Figure:
    return why if value is None else round(value, digits)


def _compile_cache(run: LoggedRun) -> dict[str, str]:
    """State of each program of the compile phase when the run first had it."""
    states: dict[str, str] = {}
    for attempt in run.attempts:
        phase = ""
        for event in attempt.events:
            if event["event"] == "phase":
                phase = event["name"]
            elif event["event"] == "compiled" and phase == "compile":
                # The first state counts: what is compiled again comes from the cache.
                states.setdefault(event["program"], event["cache"])
    return states


def _first_losses(events: Sequence[Event]) -> tuple[float | str, ...]:
    losses: dict[int, float | str] = {}
    for event in events_of(events, LOSSES):
        for step, loss in zip(event["at_steps"][:FIRST_LOSSES], event["losses"], strict=False):
            losses.setdefault(step, loss)
    return tuple(losses[step] for step in range(1, FIRST_LOSSES + 1) if step in losses)
