"""`dawnjax runs`: what tests/golden/run_directories.txt does not show."""

import os

from made_runs import write_run
from told import told

from dawnjax.runs.log import log_path


def test_a_log_without_end_that_nobody_writes_is_stopped(tmp_path, capsys):
    write_run(tmp_path / "live", seconds=None, status=None)
    dead = log_path(write_run(tmp_path / "dead", seconds=None, status=None))
    os.utime(dead, (1_700_000_000, 1_700_000_000))
    rows = told(capsys, "runs", str(tmp_path))["runs"]
    states = {row["run"]: row["figures"]["state"] for row in rows}
    assert states == {"live": "running", "dead": "stopped"}
