"""Speed of each stage of a run, from its log. Needs no JAX."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dawnjax.runs.log import Event
from dawnjax.runs.stages import Span


def spans_of(record: dict[str, Any]) -> tuple[Span, ...]:
    """Steps of each stage of a logged experiment; one stage where nothing changes."""
    fields = [field.name for field in dataclasses.fields(Span)]
    return tuple(Span(**{name: span[name] for name in fields}) for span in record["spans"])


def stage_rows(record: dict[str, Any], attempts: Sequence[Sequence[Event]]) -> list[dict[str, Any]]:
    """Rows of a result, one per stage; none where there is one stage."""
    spans = spans_of(record)
    if len(spans) == 1:
        return []
    seconds, steps = [0.0] * len(spans), [0] * len(spans)
    for events in attempts:
        phase, stage, begin = "setup", 0, 0.0
        for event in events:
            if event["event"] == "train":
                steps[stage] += event["steps"]
            if event["event"] in ("phase", "stage", "attempt_end"):
                if phase == "train":
                    seconds[stage] += event["t"] - begin
                begin = event["t"]
                phase = event.get("name", phase)
                stage = event.get("index", stage)
        if phase == "train" and events[-1]["event"] != "attempt_end":
            seconds[stage] += max(event["t"] for event in events) - begin  # killed in it
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
