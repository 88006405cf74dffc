"""Self-play: trials to the target, where their time goes, and a move beside a plain loop."""

import statistics
from collections.abc import Iterator

from benchmarks.result_tables.cells import compared_row, machine, present, spread, when
from benchmarks.result_tables.result_files import Record
from dawnjax.trials.figures import coefficient_of_variation

_PHASES = ("self_play", "gating", "train", "eval", "checkpoint", "other")
"""Phases of a run's clock, apart from setup, compilation and the profile."""


def trials_by_simulations(name: str, record: Record) -> Iterator[list[str]]:
    """Trials of one number of simulations a move."""
    trials = record["trials"]
    reached = [trial for trial in trials if trial["reached"]]
    ran = [trial for trial in trials if "cpu_seconds" in trial]
    used = {id(trial): sum(_of_run(trial["cpu_seconds"]).values()) for trial in ran}
    spent = sum(used.values())
    expected = f"{spent / len(reached):,.0f}" if reached and len(ran) == len(trials) else "none"
    first = trials[0].get("made", {})
    a_move = first["simulations"] / first["positions"] if first else None
    wall = present(reached, "time_to_accuracy_seconds")
    yield [
        "" if a_move is None else f"{a_move:.0f}",
        f"{len(reached)} of {len(trials)}",
        spread(present(reached, "epochs"), 1) + _cv(present(reached, "epochs")),
        spread([used[id(t)] for t in reached], 0) + _cv([used[id(t)] for t in reached]),
        spread(wall, 0) + _cv(wall),
        expected,
        machine(name, record),
        when(record, "jax"),
    ]


def phases(name: str, record: Record) -> Iterator[list[str]]:
    """Mean seconds of a trial in each phase."""
    trials = [trial for trial in record["trials"] if "cpu_seconds" in trial]
    cpu = {phase: _mean([t["cpu_seconds"].get(phase, 0.0) for t in trials]) for phase in _PHASES}
    made = {what: _mean([t["made"][what] for t in trials]) for what in trials[0]["made"]}
    notes = {
        "self_play": ", ".join(f"{count:,.0f} {what}" for what, count in made.items()),
        "train": f"{_mean([t['steps'] for t in trials]):,.0f} steps",
        "eval": f"{_mean([len(t['evaluations']) for t in trials]):,.1f} evaluations",
    }
    for phase, seconds in cpu.items():
        wall = _mean([trial["phases"].get(phase, 0.0) for trial in trials])
        if wall >= 0.05:
            share = f"{100 * seconds / sum(cpu.values()):.0f} %"
            words = phase.replace("_", "-")
            yield [words, f"{wall:.1f}", f"{seconds:.1f}", share, notes.get(phase, "")]


def peer(name: str, record: Record) -> Iterator[list[str]]:
    """A move of all games against the plain loop."""
    what = f"{record['games']} games, {record['simulations']} simulations a move, CPU s"
    yield compared_row(name, record, what, record["move"], 3)


def _of_run(seconds: dict[str, float]) -> dict[str, float]:
    return {phase: seconds[phase] for phase in _PHASES if phase in seconds}


def _cv(values: list[float]) -> str:
    found = coefficient_of_variation(values)
    return "" if found is None else f", CV {found:.2f}"


def _mean(values: list[float]) -> float:
    return statistics.fmean(values)
