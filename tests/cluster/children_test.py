"""Children that hear of their parent's stop, and that never outlive it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fault_runs import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.waits]

PARENT = """
import sys, tempfile
from dawnjax.cluster.children import Children
with tempfile.TemporaryFile() as errors, Children(60.0) as children:
    for _ in range(2):
        children.start([sys.executable, "-c", CHILD], errors)
    children.wait_for_one()
    children.wait_for_one()
sys.exit(10 + len(children.asked))
"""
SAVES = """
import pathlib, signal, subprocess, time
heard = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: heard.append(number))
grandchild = subprocess.Popen(["sh", "-c", "trap '' TERM INT; sleep 60"])
pathlib.Path(f"started_{grandchild.pid}").touch()
while not heard:
    time.sleep(0.01)
pathlib.Path(f"saved_{grandchild.pid}").write_text(signal.Signals(heard[0]).name)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_children_save_when_their_parent_is_stopped_and_leave_nobody(number, tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.replace("CHILD", repr(SAVES))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    wait_for(lambda: len(list(tmp_path.glob("started_*"))) == 2)
    children = psutil.Process(parent.pid).children()
    family = psutil.Process(parent.pid).children(recursive=True)
    try:
        assert len(children) == 2 and len(family) >= 4
        parent.send_signal(number)
        is_killed = number == signal.SIGKILL
        assert parent.wait(timeout=60) == (-9 if is_killed else 11)
        saved = [file.read_text() for file in tmp_path.glob("saved_*")]
        assert saved == ([] if is_killed else ["SIGTERM"] * 2)
        # The kernel ends the children of a parent that is killed, and not theirs.
        assert not psutil.wait_procs(children if is_killed else family, timeout=20)[1]
    finally:
        for process in family:
            if process.is_running():
                process.kill()
