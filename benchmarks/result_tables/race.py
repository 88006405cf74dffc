"""Records of `dawnjax race` in this repository, and what each part of their recipes is worth."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.result_tables.result_files import Record, Rows
from dawnjax.page import words
from dawnjax.race.board import read_board

ENTRIES = Path(__file__).parents[2] / "entries"


def race_records(_: list[tuple[str, Record]]) -> Rows:
    """Verdict on each entry, by the judge's clock, beside the baseline of its rounds."""
    head = "track | entry | verdict | expected time over the baseline's | reached | "
    head += "expected time, s: entry, baseline | judged on | date"
    rows: Rows = [[*head.split(" | ")]]
    for track, board in read_board(ENTRIES).items():
        for entry, verdict in board:
            if verdict is None or verdict.baseline is None:
                continue
            sides = [verdict.sides[name] for name in (entry.name, "the baseline")]
            rows.append(
                [
                    f"`{track}`",
                    f"`{entry.name}`",
                    verdict.word,
                    verdict.baseline.text(),
                    f"{sides[0].reached}; baseline {sides[1].reached}",
                    ", ".join(side.time for side in sides),
                    f"{verdict.hardware}, jax {verdict.versions['jax']}",
                    verdict.date,
                ]
            )
    return rows


def race_lesions(name: str, record: Record) -> Iterator[list[str]]:
    """Arms of a lesion study: the recipe, and the recipe less each part."""
    for arm in record["arms"]:
        row = [f"`{Path(record['study']['experiment']).stem}`", arm["arm"]]
        row += [f"{arm['reached']} of {arm['trials']}"]
        time = arm["expected_seconds"]
        row += ["-" if time is None else words.rounded(time)]
        verdict = arm["verdict"]
        if verdict is not None:
            row += ["-" if verdict["ratio"] is None else _ratio(verdict)]
            row += [verdict["word"].replace("_", " ")]
        yield row


def _ratio(verdict: Record) -> str:
    text = f"{verdict['ratio']:.3f}"
    if verdict["low"] is None:
        return text
    return f"{text} ({verdict['ends']}: {verdict['low']:.3f} to {verdict['high']:.3f})"
