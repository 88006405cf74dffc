"""Whole rounds beside MLPerf's own summarizer, where both are at hand.

`DAWNJAX_MLPERF_ROUNDS` names a folder with checkouts of mlcommons/training_results_v*; the folders
`results` and `systems` of the submitters are enough. A round takes some minutes, nearly all of them
in the summarizer's compliance check.
"""

import contextlib
import fnmatch
import importlib
import inspect
import io
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from dawnjax.official import mlperf_rounds
from dawnjax.official.importer import import_results

ROUNDS = ("v0.6", "v0.7", "v1.0", "v1.1", "v2.0", "v2.1", "v3.0", "v3.1", "v4.0", "v4.1", "v5.0",
          "v5.1")  # fmt: skip

DIFFERENCES = Path(__file__).parents[2] / "docs" / "official.md"
"""Its table names every difference: round, entries as a pattern, reason."""


def differences() -> list[tuple[str, str]]:
    """Rounds and patterns of the table."""
    text = DIFFERENCES.read_text().split("<!-- differences -->")[1].split("<!-- end")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| v")]
    return [(row[0], row[1].strip("`")) for row in rows]


def summarizer() -> Any:
    """Module of MLPerf's summarizer; skips without one that this test knows."""
    name = "mlperf_logging.result_summarizer.result_summarizer"
    pytest.importorskip("mlperf_logging", reason="mlperf-logging is not installed")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"MLPerf's summarizer cannot be imported: {error}")
    compute = getattr(module, "_compute_strong_score_standalone", None)
    if compute is None or "return_full_scores" not in inspect.signature(compute).parameters:
        pytest.skip("this version of mlperf-logging has no summarizer of one folder")
    return module


def score_of(module: Any, folder: Path, round_name: str) -> float | None:
    """Score in seconds that the summarizer gives a folder of logs, its factor included."""
    benchmark = mlperf_rounds.benchmark_of(folder.name)
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            score, *_ = module._compute_strong_score_standalone(
                benchmark, folder.parent.name, False, str(folder), "training",
                f"{round_name.removeprefix('v')}.0",
            )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    return None if score is None else 60 * score


def test_the_table_of_differences_names_rounds_and_entries():
    rows = differences()
    assert rows and all(name in ROUNDS and pattern.count("/") >= 2 for name, pattern in rows)


@pytest.mark.long
@pytest.mark.parametrize("round_name", ROUNDS)
def test_a_rounds_scores_are_those_of_mlperfs_summarizer(round_name):
    module = summarizer()
    given = os.environ.get("DAWNJAX_MLPERF_ROUNDS")
    if not given:
        pytest.skip("DAWNJAX_MLPERF_ROUNDS is not set")
    top = Path(given) / f"training_results_{round_name}"
    if not top.is_dir():
        pytest.skip(f"there is no {top}")
    ours = {
        entry.source: entry.summary.score_seconds
        for entry in import_results([top]).entries
        if entry.summary is not None
    }
    named = [pattern for name, pattern in differences() if name == round_name]
    folders = sorted({log.parent for log in top.glob("*/results/*/*/result_*.txt")})
    assert folders, f"{top} has no logs"
    wrong = []
    for folder in folders:
        name = folder.relative_to(top).as_posix()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in named):
            continue
        theirs = score_of(module, folder, round_name)
        if name not in ours or ours[name] != pytest.approx(theirs, rel=1e-9):
            wrong.append(f"{name}: {ours.get(name, 'no entry')} and {theirs}")
    assert not wrong, "\n".join(wrong)
