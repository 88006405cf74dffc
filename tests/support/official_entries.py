"""The entries of the official archives, which the tests of all workers read once."""

import os
from pathlib import Path

import pytest
from shared_runs import made_once

from dawnjax.analysis.loading import Entries
from dawnjax.official.importer import import_results
from dawnjax.trials.group import read_entries, write_entries


def official_archive(name: str) -> Path:
    """An archive of real results; the test is skipped where it is not here."""
    data = os.environ.get("DAWNJAX_TEST_DATA")
    archive = Path(data or "") / "official" / name
    if not data or not archive.exists():
        pytest.skip(f"DAWNJAX_TEST_DATA is not set, or has no {name}")
    return archive


@pytest.fixture(scope="session")
def official_entries(tmp_path_factory: pytest.TempPathFactory) -> Entries:
    """All official entries of DAWNBench and of MLPerf v0.5."""
    names = ("dawnbench_entries.tar.xz", "mlperf_v0.5_results.tar.xz")
    archives = [official_archive(name) for name in names]

    def read(folder: Path) -> None:
        imported = import_results(archives)
        assert not imported.rejections
        # The descriptions of the two entries whose logs are not in the archive.
        assert len(imported.other_files) == 6
        assert all("/intel_minigo_submission_" in name for name in imported.other_files)
        write_entries(folder / "entries.jsonl", imported.entries)

    made = made_once(tmp_path_factory, "official_entries", read)
    return Entries(read_entries(made / "entries.jsonl"))
