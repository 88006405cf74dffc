"""Generations of a run whose task makes its examples, from its log. Needs no JAX."""

from collections.abc import Sequence
from typing import Any

from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.runs.past import Event


def generation_rows(attempts: Sequence[Sequence[Event]]) -> list[dict[str, Any]]:
    """Rows of a result, one for each generation: what was made before which step, and the seconds.

    Where an attempt made a generation again, the first of both stays.
    """
    rows: dict[int, dict[str, Any]] = {}
    # A generation may take two attempts: its seconds go on in the next.
    seconds = dict.fromkeys(GENERATION_PHASES, 0.0)
    for events in attempts:
        phase, begin = "setup", 0.0
        for event in events:
            if event["event"] in ("phase", "generation"):
                if phase in seconds:
                    seconds[phase] += event["t"] - begin
                phase, begin = event.get("name", phase), event["t"]
            if event["event"] == "generation":
                spent = {f"{name}_seconds": round(value, 6) for name, value in seconds.items()}
                row = {"generation": event["number"], "step": event["step"], **spent}
                rows.setdefault(event["number"], {**row, **event["figures"]})
                seconds = dict.fromkeys(GENERATION_PHASES, 0.0)
        if phase in seconds:
            seconds[phase] += max(event["t"] for event in events) - begin
    return [rows[number] for number in sorted(rows)]
