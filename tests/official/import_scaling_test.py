"""The factor of `scaling.json`, by which a round's review multiplies an entry's score."""

import dataclasses
import json
import tarfile
from pathlib import Path

import pytest
from later_logs import evaluations, log_of, write_round

from dawnjax.errors import RunError
from dawnjax.official.importer import import_results
from dawnjax.report.boards import board_table, boards
from dawnjax.report.tables import overview_table
from dawnjax.trials.checks import check
from dawnjax.trials.group import Entry

# run_start to run_stop of the three logs of v5.0, Nebius,
# nebius_soperator_8xH200_n64_ngc25.01_nemo/llama31_405b; MLPerf's summarizer gives 14675.66 s.
NEBIUS_SECONDS = (12579.547, 12579.139, 12566.716)
NEBIUS_FACTOR = 1.1666666666666667


def scaled(top: Path, seconds: tuple[float, ...], scaling: bytes | None) -> Path:
    logs = [log_of("retinanet", *evaluations([4], 0.35), seconds=s) for s in seconds]
    folder = write_round(top, "v5.0", "retinanet", logs)
    if scaling is not None:
        (folder / "scaling.json").write_bytes(scaling)
    return folder


def only(path: Path) -> Entry:
    imported = import_results([path])
    assert not imported.rejections and not imported.other_files
    (entry,) = imported.entries
    return entry


def test_both_scores_are_given_and_the_scaled_one_ranks(tmp_path):
    scaled(tmp_path, NEBIUS_SECONDS, json.dumps({"scaling_factor": NEBIUS_FACTOR}).encode())
    entry = only(tmp_path)
    assert entry.scaling_factor == NEBIUS_FACTOR
    assert entry.figures.unscaled_score_seconds == pytest.approx(12579.139)
    assert entry.figures.score_seconds == pytest.approx(14675.662, abs=1e-3)
    # Times of trials stay as measured.
    assert entry.trials[1].time_to_accuracy_seconds == pytest.approx(12579.139)
    assert any("x 1.16667, the factor of its scaling.json" in w for w in entry.warnings)
    (row,) = overview_table([entry]).records()
    assert (row["score_seconds"], row["unscaled_score_seconds"]) == pytest.approx(
        (14675.662, 12579.139), abs=1e-3
    )
    (row,) = board_table(boards([entry])[0]).records()
    assert row["seconds"] == pytest.approx(14675.662, abs=1e-3)
    assert "12579.14 s x 1.167" in row["remark"]


def test_a_factor_in_an_archive_counts_wherever_it_stands(tmp_path):
    folder = scaled(tmp_path / "in", (100.0, 101.0, 102.0), b'{"scaling_factor":1.1}')
    for order in (sorted, lambda names: sorted(names, reverse=True)):
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            for path in order(folder.iterdir()):
                archive.add(path, path.relative_to(tmp_path / "in").as_posix())
        entry = only(tmp_path / "a.tar")
        assert entry.figures.score_seconds == pytest.approx(101 * 1.1)


def test_a_file_of_entries_cannot_carry_a_factor_that_flatters(tmp_path):
    scaled(tmp_path, (100.0, 101.0, 102.0), b'{"scaling_factor": 1.1}')
    entry = only(tmp_path)
    for factor in (0.5, -1.0, float("nan"), 1e9):
        with pytest.raises(RunError, match="scaling_factor is"):
            check(dataclasses.replace(entry, scaling_factor=factor))
