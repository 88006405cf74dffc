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
import pathlib, signal, subprocess, sys, time
heard = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: heard.append(number))
grandchild = subprocess.Popen(["sh", "-c", "trap '' TERM INT; sleep 60"])
pathlib.Path(f"started_{grandchild.pid}").touch()
while not heard:
    time.sleep(0.01)
pathlib.Path(f"saved_{grandchild.pid}").write_text(signal.Signals(heard[0]).name)
"""


@pytest.fixture
def family(tmp_path):
    """A parent with two children, and these with one each, once all have begun."""
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.replace("CHILD", repr(SAVES))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    wait_for(lambda: len(list(tmp_path.glob("started_*"))) == 2)
    family = psutil.Process(parent.pid).children(recursive=True)
    yield parent, family
    for process in family:  # the children's own are not bound to the parent
        if process.is_running():
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_children_are_asked_to_save_and_leave_nobody(number, family, tmp_path):
    parent, others = family
    assert len(others) >= 4
    parent.send_signal(number)
    assert parent.wait(timeout=60) == 11
    assert [file.read_text() for file in tmp_path.glob("saved_*")] == ["SIGTERM"] * 2
    assert not psutil.wait_procs(others, timeout=20)[1]


def test_children_die_with_a_parent_that_is_killed(family):
    parent, others = family
    children = [process for process in others if process.ppid() == parent.pid]
    parent.kill()
    parent.wait()
    assert not psutil.wait_procs(children, timeout=20)[1]
