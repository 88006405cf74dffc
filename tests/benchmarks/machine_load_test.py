"""Load during a trial: measured always, and a rule that names disturbed trials."""

import os
import signal
import subprocess
import sys

import pytest

from benchmarks import compared, machine_load
from benchmarks.result_tables.cells import machine
from benchmarks.result_tables.trials import against_pytorch


def trial(seed, seconds, others=0.0, stolen=0.0):
    times = {"time_to_accuracy_seconds": seconds, "total_seconds_to_accuracy": seconds}
    load = {"load_before": 0.1, "others_fraction": others, "stolen_fraction": stolen}
    own = {"seed": seed, "reached": True, "train_seconds": seconds, "epochs": 1.0}
    return {**times, **own, "machine": load}


def record(ours, theirs, **environment):
    facts = {"processor": "Some", "cores": 2, "versions": {}, "date": "2026-01-02", **environment}
    sides = {"dawnjax": ours, "pytorch": theirs}
    told = {
        side: {
            "num_reached": sum(one["reached"] for one in trials),
            "num_trials": len(trials),
            "trials": trials,
        }
        for side, trials in sides.items()
    }
    return {"environment": facts, **told}


def test_the_load_stands_beside_the_machine_also_when_it_is_low():
    assert machine(record([], [], load_before=0.02)) == "2 cores of Some, load 0.02 before"
    gpus = {"accelerators": ["NVIDIA H200, 1 MiB"], "load_before": 1.5}
    assert machine(record([], [], **gpus)) == "1 x NVIDIA H200, load 1.5 before"


def test_a_trial_is_disturbed_by_what_others_and_the_host_took_together():
    assert not machine_load.is_disturbed(trial(0, 1.0, others=0.05))
    assert machine_load.is_disturbed(trial(0, 1.0, others=0.03, stolen=0.03))
    assert not machine_load.is_disturbed({"seed": 0})


def test_disturbed_trials_are_named_and_the_ratio_is_given_without_them():
    ours = [trial(seed, 10.0 + seed / 10) for seed in range(6)]
    theirs = [trial(seed, 20.0 + seed / 10) for seed in range(5)] + [trial(5, 60.0, others=0.3)]
    rows = list(against_pytorch(record(ours, theirs)))
    assert rows[0][2] == "6 of 6 and 6 of 6; disturbed: PyTorch seed 5"
    ratios = {row[3]: row[6] for row in rows}
    assert ratios["time to accuracy, s"] == "0.382"
    assert ratios["time to accuracy, s, without disturbed trials"] == "0.507"
    calm = list(against_pytorch(record(ours, theirs[:5])))
    assert calm[0][2].endswith("no trial disturbed") and len(calm) == len(rows) - 1
    old = [{**one, "machine": {}} for one in ours]
    assert "load during the trials not recorded" in next(against_pytorch(record(old, old)))[2]
    assert list(compared.trial_ratios(old, old))[0] == "time to accuracy, s"
    missed = [{**ours[0], "reached": False, "time_to_accuracy_seconds": None}, *ours[1:]]
    first = next(against_pytorch(record(missed, theirs)))
    assert first[2].startswith("5 of 6 and 6 of 6")
    assert first[3] == "time to accuracy, s: no ratio, a trial did not reach"


@pytest.mark.processes
def test_work_of_others_is_seen_and_a_child_s_own_is_not():
    if sys.platform != "linux":
        pytest.skip("the load is read from /proc/stat")
    busy = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass"
    # No child of this process: the shell that started it has ended.
    started = ["sh", "-c", '"$0" -c "$1" >/dev/null 2>&1 & echo $!', sys.executable]
    done = subprocess.run([*started, busy.format(60)], capture_output=True, check=True)
    try:
        with machine_load.watched() as load:
            subprocess.run([sys.executable, "-c", busy.format(1)], check=True)
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)
    assert load["load_before"] >= 0 and 0 <= load["stolen_fraction"] <= 1
    # The other process has a processor for itself, or a share of it where more work is there.
    assert load["others_fraction"] * (os.cpu_count() or 1) > 0.1
