"""The benchmarks, tried at tiny sizes: both sides, checks, and what is written."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from quick_compilation import QUICK

from benchmarks import compared, harness

TOP = Path(__file__).resolve().parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def run_benchmark(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess:
    """Runs a benchmark on one CPU device, quickly compiled, with results in `tmp_path`."""
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICK, "NPROC": "2"}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *argv],
        cwd=TOP,
        env={**os.environ, **variables, harness.RESULTS_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.processes
@pytest.mark.parity
@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
@pytest.mark.parametrize("model", ["resnet50", "transformer_big", "gpt2_small"])
def test_steps_of_both_sides_have_the_same_losses(model, tmp_path):
    done = run_benchmark(
        tmp_path,
        *("steps", f"--model={model}", "--tiny"),
        *("--settings=eager", "--rounds=2", "--steps=1"),
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / f"steps_{model}_cpu_tiny.json").read_text())
    assert written["is_tiny"]
    base = written["variants"]["base"]
    against = base["against_pytorch"]
    assert against["check"] == "losses of the first steps"
    assert against["largest_difference"] < against["tolerance"] == 0.002
    assert len(against["first"]) == len(against["second"]) == len(base["rounds"]) == 2
    assert base["mfu"] is None  # no peak of a CPU is known
    assert written["pytorch"]["fastest"] == "eager" == written["pytorch"]["settings"]


PEER = """
print("|  run     |  epoch  |  train_acc  |  val_acc  |  tta_val_acc  |  time_seconds  |")
for run, accuracy, seconds in (("warmup", 0.1, 9.9), (0, 0.4, 0.25), (1, 0.5, 0.35)):
    print(f"|     {run}  |      1  |     0.9000  |   0.8000  |               |        0.1000  |")
    print(f"|          |   eval  |     0.9000  |   0.8000  |  {accuracy:.4f}  |  {seconds:.4f}  |")
"""


@pytest.mark.long
@pytest.mark.processes
def test_record_mode_against_a_peers_script(tmp_path):
    peer = tmp_path / "peer.py"
    peer.write_text(PEER)
    done = run_benchmark(
        tmp_path,
        *("record", "--tiny", "--trials=2", f"--peer={peer}", "--name=found", "--"),
        *("--model.group_widths=8,12", f"--compile_cache_dir={tmp_path / 'cache'}"),
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "found.json").read_text())
    first, second = written["dawnjax"]
    assert [part["seeds"][0]["seed"] for part in (first, second)] == [0, 1]
    # The second process reads the program back instead of compiling it.
    assert (first["compile_cache"], second["compile_cache"]) == ("cold", "warm")
    assert written["peers"]["peer"]["runs"] == [
        {"top_1_accuracy": 0.4, "time_seconds": 0.25},
        {"top_1_accuracy": 0.5, "time_seconds": 0.35},
    ]
    both = compared.beside_peer(written["dawnjax"], written["peers"]["peer"])
    our_seconds = [part["seeds"][0]["time_seconds"] for part in (first, second)]
    assert both[0].value == pytest.approx(np.mean(our_seconds) / 0.3)
    our_accuracies = [part["seeds"][0]["metrics"]["top_1_accuracy"] for part in (first, second)]
    assert both[1].value == pytest.approx(np.mean(our_accuracies) - 0.45)
    assert "range of 2: " in done.stdout


def test_there_is_no_ratio_where_a_trial_did_not_reach():
    def trial(reached, seconds):
        return {
            "reached": reached,
            "time_to_accuracy_seconds": seconds if reached else None,
            "total_seconds_to_accuracy": 2 * seconds if reached else None,
            "train_seconds": seconds,
            "epochs": 4.0,
        }

    pytorch = [trial(True, 2.0), trial(True, 4.0)]
    ratios = compared.trial_ratios([trial(True, 1.0), trial(True, 2.0)], pytorch)
    ours, theirs, ratio = ratios["time to accuracy, s"]
    assert (ours, theirs, ratio.value) == (1.5, 3.0, pytest.approx(0.5))
    assert (ratio.ends, ratio.low, ratio.high) == ("range of 2", 0.25, 1.0)
    assert ratios["train seconds an epoch"][1] == 0.75
    missed = compared.trial_ratios([trial(True, 1.0), trial(False, 9.0)], pytorch)
    assert list(missed) == ["train seconds an epoch"]
    crashed = [trial(True, 1.0), {"reached": False, "error": ["killed"]}]
    assert not compared.trial_ratios(crashed, pytorch)
