"""How fast each stage of a run was, from its log. Needs no JAX."""

from collections.abc import Sequence
from typing import Any

from dawnjax.runs.past import Event
from dawnjax.runs.stages import Span, make_spans

_CHANGING = ("crop_pixels", "crop_min_area")


def spans_of(experiment: dict[str, Any], num_train_examples: int) -> tuple[Span, ...]:
    """The steps of each stage of a logged experiment; one stage where nothing changes."""
    stages = experiment.get("stages") or {}
    boundaries = stages.get("boundary_epochs") or []
    batch = experiment["global_batch_size"]
    later = (stages.get("global_batch_size") or [batch] * len(boundaries))[: len(boundaries)]
    # A log may be older than the field `num_epochs`; then its run has one stage.
    return make_spans(
        boundaries, [batch, *later], experiment.get("num_epochs", 1), num_train_examples
    )


def stage_rows(
    experiment: dict[str, Any], spans: Sequence[Span], attempts: Sequence[Sequence[Event]]
) -> list[dict[str, Any]]:
    """What a result says of each stage; nothing where there is one.

    Args:
      experiment: The experiment, as logged.
      spans: The steps of each stage.
      attempts: The events of each attempt; `stage` says which stage the next steps are of.
    """
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
                **_particulars(experiment, span.index),
                "steps_made": made,
                "train_seconds": round(span_seconds, 6),
                "examples_per_second": None if rate is None else round(rate, 6),
            }
        )
    return rows


def _particulars(experiment: dict[str, Any], index: int) -> dict[str, Any]:
    stages, first = experiment["stages"], experiment["augmentation"]
    return {
        name: stages[name][index - 1] if index and stages.get(name) else first.get(name)
        for name in _CHANGING
    }
