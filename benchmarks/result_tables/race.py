"""Records of `dawnjax race` in this repository."""

from pathlib import Path

from benchmarks.result_tables.result_files import Record, Rows
from dawnjax.race.board import read_board
from dawnjax.race.tracks import read_track

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
