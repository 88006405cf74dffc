"""Whole rounds beside MLPerf's own summarizer, where both are at hand.

`DAWNJAX_MLPERF_ROUNDS` names a folder with checkouts of mlcommons/training_results_v*; the folders
`results` and `systems` of the submitters are enough. A round takes some minutes, nearly all of them
in the summarizer's compliance check.
"""

import contextlib
import fnmatch
import io
import logging
import math
import os
from pathlib import Path
from typing import Any

import pytest

from dawnjax.official import mlperf_rounds
from dawnjax.official.importer import import_results

ROUNDS = (
    "v0.6", "v0.7", "v1.0", "v1.1", "v2.0", "v2.1", "v3.0", "v3.1", "v4.0", "v4.1", "v5.0", "v5.1",
)  # fmt: skip

SUMMARIZER = "mlperf_logging.result_summarizer.result_summarizer"

DIFFERENCES = Path(__file__).parents[2] / "benchmarks" / "official_scores.md"
"""Its table names every difference: round, entries as a pattern, reason."""


def differences() -> list[tuple[str, str]]:
    """Rounds and patterns of the table."""
    text = DIFFERENCES.read_text().split("<!-- differences -->")[1].split("<!-- end")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| v")]
    return [(row[0], row[1].strip("`")) for row in rows]


def linked(submitter: Path, to: Path) -> Path:
    """Folder with links to a submitter's files, because the summarizer rewrites `scaling.json`."""
    for file in (*submitter.glob("results/*/*/*"), *submitter.glob("systems/*.json")):
        place = to / file.relative_to(submitter.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            place.symlink_to(file)
    return to / submitter.name


def scores(summarizer: Any, submitter: Path, round_name: str) -> dict[str, float | None]:
    """Scores in seconds that MLPerf's summarizer gives a submitter, by system and benchmark."""
    ruleset = f"{round_name.removeprefix('v')}.0"
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            frame, *_ = summarizer.summarize_results(str(submitter), "training", ruleset)
    finally:
        logging.disable(logging.NOTSET)
    found = {}
    for row in frame.to_dict("records"):
        system = row["details_url"].rsplit("/", 1)[-1].removesuffix(".json")
        for benchmark, minutes in row.items():
            if isinstance(minutes, float) and math.isfinite(minutes):
                found[f"{system}/{benchmark}"] = 60 * minutes
    return found


def is_same(ours: float | None, theirs: float | None) -> bool:
    """True for one score; a rejected entry is none in either."""
    if ours is None or theirs is None:
        return ours is theirs
    return math.isclose(ours, theirs, rel_tol=1e-9)


def test_the_table_of_differences_names_rounds_and_entries():
    rows = differences()
    assert rows and all(name in ROUNDS and pattern.count("/") == 3 for name, pattern in rows)


@pytest.mark.long
@pytest.mark.parametrize("round_name", ROUNDS)
def test_a_rounds_scores_are_those_of_mlperfs_summarizer(round_name, tmp_path):
    reason = "MLPerf's summarizer is not installed: pip install mlperf-logging pandas"
    summarizer = pytest.importorskip(SUMMARIZER, reason=reason, exc_type=ImportError)
    given = os.environ.get("DAWNJAX_MLPERF_ROUNDS")
    if not given:
        pytest.skip("DAWNJAX_MLPERF_ROUNDS is not set")
    top = Path(given) / f"training_results_{round_name}"
    if not top.is_dir():
        pytest.skip(f"there is no {top}")
    ours = {entry.source: entry.figures.score_seconds for entry in import_results([top]).entries}
    named = [pattern for name, pattern in differences() if name == round_name]
    folders = sorted({log.parent for log in top.glob("*/results/*/*/result_*.txt")})
    assert folders, f"{top} has no logs"
    theirs = {
        submitter: scores(summarizer, linked(submitter, tmp_path), round_name)
        for submitter in {folder.parents[2] for folder in folders}
    }
    wrong = []
    for folder in folders:
        name = folder.relative_to(top).as_posix()
        benchmark = mlperf_rounds.benchmark_of(folder.name)
        score = theirs[folder.parents[2]].get(f"{folder.parent.name}/{benchmark}")
        if not is_same(ours.get(name), score) and not any(
            fnmatch.fnmatchcase(name, pattern) for pattern in named
        ):
            wrong.append(f"{name}: {ours.get(name, 'no entry')} and {score}")
    assert not wrong, "\n".join(wrong)
