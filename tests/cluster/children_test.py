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
with tempfile.TemporaryFile() as errors, Children(STOP_SECONDS) as children:
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
DEAF = SAVES.replace("while not heard", "while True")
STOP_SECONDS = {SAVES: 60.0, DEAF: 1.0}


def parent_of(child: str, folder: Path) -> tuple[subprocess.Popen, list[psutil.Process]]:
    """A parent with two children, and these with one each, once all have begun."""
    root = Path(__file__).parents[2]
    program = PARENT.replace("CHILD", repr(child))
    program = program.replace("STOP_SECONDS", str(STOP_SECONDS[child]))
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    wait_for(lambda: len(list(folder.glob("started_*"))) == 2)
    return parent, psutil.Process(parent.pid).children(recursive=True)


def nobody_is_left(family: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(family, timeout=20)[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_children_are_asked_to_save_and_leave_nobody(number, tmp_path):
    parent, family = parent_of(SAVES, tmp_path)
    assert len(family) >= 4
    parent.send_signal(number)
    assert parent.wait(timeout=60) == 11
    assert [file.read_text() for file in tmp_path.glob("saved_*")] == ["SIGTERM"] * 2
    assert nobody_is_left(family)


def test_a_child_that_does_not_hear_is_killed(tmp_path):
    parent, family = parent_of(DEAF, tmp_path)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(timeout=30) == 11
    assert nobody_is_left(family)


def test_children_die_with_a_parent_that_is_killed(tmp_path):
    parent, family = parent_of(SAVES, tmp_path)
    children = [process for process in family if process.ppid() == parent.pid]
    parent.kill()
    parent.wait()
    assert nobody_is_left(children)
    for process in family:
        if process.is_running():
            process.kill()  # what is no child of ours is not bound to it
