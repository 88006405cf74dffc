"""Tests of what real faults leave of the checkpoints.

The file is also the program that its tests starve of disk and run twice side by side:
`python tests/checkpoints/checkpoint_faults_test.py ROLE DIRECTORY ...`. Runs are killed in
tests/train/faults_test.py, in their saves too.
"""

import errno
import os
import resource
import subprocess
import sys
import traceback
from pathlib import Path

import jax
import pytest
from etils import epath
from ports import free_port
from quick_compilation import QUICK
from saved_states import (
    abstract_state,
    assert_exact,
    compilations,
    folders_of,
    open_checkpoints,
    restore,
    save,
    truncate,
)

from dawnjax.checkpoints import location
from dawnjax.checkpoints.saved import folders
from dawnjax.cluster import processes
from dawnjax.cluster.options import ProcessOptions
from dawnjax.errors import CheckpointError

pytestmark = pytest.mark.processes

REPOSITORY = Path(__file__).resolve().parents[2]
SUPPORT = REPOSITORY / "tests" / "support"


def run_role(role, *arguments):
    """Starts this file as a program with one simulated device, unless the role makes more."""
    path = os.pathsep.join([str(REPOSITORY), str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICK}
    command = [sys.executable, str(Path(__file__).resolve()), role, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def fill_disk(directory):
    """Saves around failures for want of space; the parent sees the exit status and this output.

    A limit on the size of files stands for a full disk: it needs no mount.
    """
    checkpoints, warnings = open_checkpoints(directory)
    save(checkpoints, 1)
    step = 1
    for room in (0, 20_000, 250_000):
        checkpoints.wait()
        assert warnings == []
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        for _ in range(2):
            save(checkpoints, step + 1)
            checkpoints.wait()
        assert len(warnings) == 2
        assert all(os.strerror(errno.EFBIG) in warning for warning in warnings), warnings
        warnings.clear()
        assert_exact(checkpoints.restore_newest(abstract_state(1)), step, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        step += 2
        save(checkpoints, step)
        assert_exact(checkpoints.restore_newest(abstract_state(1)), step, 1)
        # What the failed saves left is deleted.
        assert len(folders_of(Path(directory))) == 2
    checkpoints.close()
    assert warnings == []
    print("done")


@pytest.mark.faults
def test_a_full_disk_harms_neither_older_nor_later_checkpoints(tmp_path):
    process = run_role("fill_disk", tmp_path / "checkpoints")
    # A failed save is told once, as a warning.
    assert process.communicate(timeout=300) == ("done\n", "")


def one_of_two(index, port, directory):
    """One of two processes with two devices each, which save and restore together."""
    jax.config.update("jax_num_cpu_devices", 2)
    address = f"localhost:{port}"
    processes.join(
        ProcessOptions(coordinator_address=address, num_processes=2, process_id=int(index))
    )
    assert (jax.process_index(), len(jax.devices())) == (int(index), 4)
    shared = Path(directory) / "shared"
    checkpoints, warnings = open_checkpoints(shared)
    with compilations() as compiled:
        assert checkpoints.restore_newest(abstract_state(4)) is None
        for step in (1, 2, 3, 3):
            save(checkpoints, step, 4)
        assert_exact(checkpoints.restore_newest(abstract_state(4)), 3, 4)
    assert compiled == []
    assert warnings == []

    save(checkpoints, 11, 4)
    checkpoints.wait()
    # A part that one process cannot read is a fault for both.
    if index == "0":
        newest = next(iter(folders(epath.Path(shared)).values()))
        truncate(Path(newest) / "state" / "_METADATA")
    assert_exact(checkpoints.restore_newest(abstract_state(4)), 3, 4)
    assert len(warnings) == 1 and "cannot be restored" in warnings[0]
    without_count = abstract_state(4)
    del without_count["count"]
    with pytest.raises(CheckpointError, match="count is int32"):
        checkpoints.restore_newest(without_count)
    checkpoints.close()

    location.VISIBLE_WITHIN_SECONDS = 0.2
    with pytest.raises(CheckpointError, match="process 1 does not see"):
        open_checkpoints(Path(directory) / f"private_{index}")
    print("done", flush=True)
    processes.leave(0)


@pytest.mark.faults
def test_two_processes_save_together_and_agree(tmp_path):
    port = free_port()
    both = [run_role("one_of_two", index, port, tmp_path) for index in (0, 1)]
    try:
        for process in both:
            output, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
            assert output.endswith("done\n")
    finally:
        for process in both:
            process.kill()
    # And one process with as many, or fewer, devices reads what two have written.
    assert_exact(restore(tmp_path / "shared", 4)[0], 3, 4)
    assert_exact(restore(tmp_path / "shared", 1)[0], 3, 1)


if __name__ == "__main__":
    roles = {function.__name__: function for function in (fill_disk, one_of_two)}
    try:
        roles[sys.argv[1]](*sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # Without the barrier at which one of several processes would wait for others.
