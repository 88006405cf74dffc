"""Full disks, lost readers and slow hosts: what a run does when its surroundings fail."""

import subprocess
import sys

import pytest
from fault_runs import SMALL, command, environment, events_of, run, small_disk
from trained import result_of

from dawnjax.commands.check import check_run

pytestmark = pytest.mark.faults


DISKS = [round(32 * 512 ** (number / 19)) for number in range(20)]
"""KiB: 20 sizes from 32 KiB to 16 MiB, each 1.39 times the one before."""


@pytest.mark.processes
@pytest.mark.parametrize(
    "sizes", [[DISKS[9]], pytest.param(DISKS, marks=pytest.mark.long)], ids=["one", "all"]
)
def test_a_small_disk_costs_no_result_unsaid(tmp_path, compile_cache, campaign, sizes):
    """The save, the log, the result or the profile after the target: which fails is the size's."""
    tries = campaign(
        "small_disks",
        "a run and its profile on a disk of 32 KiB to 16 MiB",
        "it reaches its target with a whole `result.json`, or ends with a line that names the file",
    )
    flags = ("--targets.0.value=100.0", "--profile.after_run=true")
    disk = tmp_path / "disk"
    for size in sizes:
        with small_disk(disk, size):
            done = run(command(disk / "run", compile_cache, *flags))
            whole = (disk / "run" / "result.json").exists() and result_of(disk / "run")["reached"]
            faults = check_run(disk / "run")[0] if whole else []
            events_of(disk / "run")  # no line is damaged
            named = done.returncode == 1 and "cannot write" in done.stderr.splitlines()[-1]
            held = "Traceback" not in done.stderr and not faults
            held &= whole if done.returncode == 0 else whole or named
            tries.tried(f"{size} KiB", held=held, why=f"{done.returncode} {faults} {done.stderr}")
    tries.finish()


@pytest.mark.processes
def test_a_run_outlives_the_reader_of_its_output(tmp_path, compile_cache):
    process = subprocess.Popen(
        command(tmp_path / "run", compile_cache, "--num_epochs=4"),
        env=environment() | {"PYTHONUNBUFFERED": ""},  # what is buffered is tried again at exit
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stderr.readline()
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=300) == 3
    assert result_of(tmp_path / "run")["status"] == "not_reached"


STUCK = '''
import dataclasses, time
from dawnjax.own import Synthetic, load_experiment

@dataclasses.dataclass(frozen=True, kw_only=True)
class Stuck(Synthetic):
    """Data on a disk that never answers."""

    TAG = "stuck"

    def load(self, split):
        time.sleep(600)

EXPERIMENT = dataclasses.replace(
    load_experiment("synthetic_image"), name="stuck", data=Stuck()
)
'''


@pytest.mark.long
@pytest.mark.processes
def test_a_host_that_is_alive_but_stuck_before_step_1_ends_in_one_line(
    uninterrupted, tmp_path, compile_cache
):
    """At each change tests/cluster/processes_test.py has one that hangs."""
    # The run before it has filled the cache of programs, so that nothing but the data is slow.
    assert uninterrupted.exists()
    file = tmp_path / "stuck.py"
    file.write_text(STUCK)
    done = run(
        [
            *(sys.executable, "-m", "dawnjax", "train", *SMALL, f"--experiment={file}"),
            *(
                compile_cache,
                f"--run_dir={tmp_path / 'run'}",
                "--processes.progress_deadline_seconds=15",
            ),
        ]
    )
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert "no progress" in line and "resume with" in line
    assert "Traceback" not in done.stderr
