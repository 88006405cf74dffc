"""Generations of a run whose task makes its examples, from its log. Needs no JAX."""

from collections.abc import Sequence
from typing import Any

from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import save_point


def generation_rows(attempts: Sequence[Sequence[Event]]) -> list[dict[str, Any]]:
    """Rows of a result, one for each generation: what was made before which step, and the seconds.

    A generation that two attempts made has the seconds of both, but for those after the save from
    which the second began. Where an attempt made a whole generation again, the first of both stays.
    """
    rows: dict[int, dict[str, Any]] = {}
    saved: dict[tuple[int, int], dict[str, float]] = {}  # of the generation that it was saved in
    for events in attempts:
        seconds: dict[str, float] = dict.fromkeys(GENERATION_PHASES, 0.0)
        phase, begin = "setup", 0.0
        for event in events:
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
