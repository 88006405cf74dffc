"""Rows of a result: the stages and generations of a run, from its log."""

import dataclasses
from typing import Any

from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import LoggedRun, save_point
from dawnjax.runs.stages import Span


def spans_of(record: dict[str, Any]) -> tuple[Span, ...]:
    """Steps of each stage of a logged experiment; one stage where nothing changes."""
    fields = [field.name for field in dataclasses.fields(Span)]
    return tuple(Span(**{name: span[name] for name in fields}) for span in record["spans"])


def stage_rows(record: Event, run: LoggedRun) -> list[dict[str, Any]]:
    """Speed of each stage of a run."""
    spans = spans_of(record)
    seconds, steps = [0.0] * len(spans), [0] * len(spans)
    for attempt in run.attempts:
        phase, stage, begin = "setup", 0, 0.0
        for event in attempt.events:
            if event["event"] == "train":
                steps[stage] += event["steps"]
            if event["event"] in ("phase", "stage", "attempt_end"):
                if phase == "train":
                    seconds[stage] += event["t"] - begin
                begin = event["t"]
                phase = event.get("name", phase)
                stage = event.get("index", stage)
        if phase == "train" and not attempt.ended:
            seconds[stage] += attempt.seconds - begin  # killed in it
    rows = []
    for span, span_seconds, made in zip(spans, seconds, steps, strict=True):
        rate = made * span.global_batch_size / span_seconds if made and span_seconds else None
        rows.append(
            {
                "first_step": span.first_step,
                "last_step": span.last_step,
                "global_batch_size": span.global_batch_size,
                **record["spans"][span.index]["values"],
                "steps_made": made,
                "train_seconds": round(span_seconds, 6),
                "examples_per_second": None if rate is None else round(rate, 6),
            }
        )
    return rows


def generation_rows(run: LoggedRun) -> list[dict[str, Any]]:
    """What each generation made before which step, and the seconds.

    A generation that two attempts made has the seconds of both, but for those after the save from
    which the second began. Where an attempt made a whole generation again, the first of both stays.
    """
    rows: dict[int, dict[str, Any]] = {}
    saved: dict[tuple[int, int], dict[str, float]] = {}  # of the generation that it was saved in
    for attempt in run.attempts:
        seconds: dict[str, float] = dict.fromkeys(GENERATION_PHASES, 0.0)
        phase, begin = "setup", 0.0
        for event in attempt.events:
            kind = event["event"]
            if kind in ("phase", "generation", "checkpoint"):
                if phase in seconds:
                    seconds[phase] += event["t"] - begin
                phase, begin = event.get("name", phase), event["t"]
            if kind == "restored":
                seconds = dict(saved.get(save_point(event), seconds))
            elif kind == "checkpoint":
                saved[save_point(event)] = dict(seconds)
            elif kind == "generation":
                spent = {f"{name}_seconds": round(value, 6) for name, value in seconds.items()}
                row = {"generation": event["number"], "step": event["step"], **spent}
                rows.setdefault(event["number"], {**row, **event["figures"]})
                seconds = dict.fromkeys(GENERATION_PHASES, 0.0)
    return [rows[number] for number in sorted(rows)]
