"""Records of `dawnjax race` in this repository, and what each part of their recipes is worth."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.result_tables.result_files import Record, Rows
from dawnjax.page import words
from dawnjax.race.board import read_board
from dawnjax.race.tracks import read_track
from dawnjax.statistics.sample import Sample
from dawnjax.statistics.verdict import judge_all

ENTRIES = Path(__file__).parents[2] / "entries"


def race_records(_: list[tuple[str, Record]]) -> Rows:
    """Verdict on each entry, by the judge's clock, beside the baseline of its rounds."""
    head = (
        "track | entry | code | verdict | beside the baseline | entry | baseline | judged on | date"
    )
    rows: Rows = [[*head.split(" | ")]]
    for name, board in read_board(ENTRIES).items():
        track = read_track(name)
        for place in board:
            verdict = place.verdict
            if verdict is None or verdict.baseline is None:
                continue
            sides = [verdict.sides[side] for side in (place.name, "the baseline")]
            rows.append(
                [
                    f"`{name}`",
                    f"`{place.name}`",
                    place.code,
                    verdict.word,
                    verdict.baseline.text(),
                    *(side.text(track) for side in sides),
                    f"{verdict.hardware}, jax {verdict.versions['jax']}",
                    verdict.date,
                ]
            )
    return rows


def race_lesions(name: str, record: Record) -> Iterator[list[str]]:
    """Arms of a lesion study: the recipe, and the recipe less each part."""
    arms = record["arms"]
    whole, *others = map(_sample, arms)
    verdicts = [None, *judge_all(whole, others)]
    for arm, verdict in zip(arms, verdicts, strict=True):
        row = [f"`{Path(record['study']['experiment']).stem}`", arm["arm"]]
        row += [f"{arm['reached']} of {arm['trials']}"]
        time = arm["expected_seconds"]
        row += ["-" if time is None else words.rounded(time)]
        if verdict is not None:
            row += ["-" if verdict.ratio is None else verdict.ratio.text()]
            row += [verdict.word.replace("_", " ")]
        yield row


def _sample(arm: Record) -> Sample:
    """Trials of an arm, those that missed all of one length: a recipe has a fixed number of steps.

    The file holds the length of none of them, but their sum follows from the expected time.
    """
    times = [row["time_to_accuracy_seconds"] for row in arm["rows"]]
    reached = [time for time in times if time is not None]
    spent = (arm["expected_seconds"] or 0.0) * len(reached)
    length = (spent - sum(reached)) / max(1, len(times) - len(reached))
    seeds = [row["seed"] for row in arm["rows"]]
    sample = Sample.of(times, [length] * len(times), seeds)
    assert sample is not None
    return sample
