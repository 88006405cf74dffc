"""The accelerator's benchmarks, tried at tiny sizes: both sides, checks, and what is written."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from quick_compilation import QUICK

from benchmarks import (
    compared,
    harness,
    language_model_peer,
    record,
)

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
@pytest.mark.parametrize(
    "model, tolerance",
    [("resnet50", 0.002), ("transformer_big", 0.002), ("multi30k_transformer_bfloat16", 0.02)],
)
def test_steps_of_both_sides_have_the_same_losses(model, tolerance, tmp_path):
    done = run_benchmark(
        tmp_path,
        *("steps", f"--model={model}", "--tiny", "--variants=base"),
        *("--settings=eager", "--rounds=2", "--steps=1"),
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / f"steps_{model}_cpu_tiny.json").read_text())
    assert written["is_tiny"]
    base = written["variants"]["base"]
    against = base["against_pytorch"]
    assert against["check"] == "losses of the first steps"
    assert against["largest_difference"] < against["tolerance"] == tolerance
    assert len(against["first"]) == len(against["second"]) == len(base["rounds"]) == 2
    assert base["share_of_limit"] is None and base["mfu"] is None
    assert written["pytorch"]["fastest"] == "eager" == written["pytorch"]["settings"]


@pytest.mark.processes
def test_variants_that_are_not_ready_in_time_are_told(tmp_path):
    done = run_benchmark(
        tmp_path,
        *("steps", "--model=resnet50", "--tiny", "--without_pytorch"),
        *("--variants=base,cublaslt", "--rounds=1", "--steps=1", "--limit=0.2"),
    )
    assert done.returncode == 1
    assert done.stdout.count("no answer in 1 s") == 2  # the least limit
    assert done.stderr.strip().endswith("no variant ran")


PEER = """
print("|  run     |  epoch  |  train_acc  |  val_acc  |  tta_val_acc  |  time_seconds  |")
for run, accuracy, seconds in (("warmup", 0.1, 9.9), (0, 0.4, 0.25), (1, 0.5, 0.35)):
    print(f"|     {run}  |      1  |     0.9000  |   0.8000  |               |        0.1000  |")
    print(f"|          |   eval  |     0.9000  |   0.8000  |  {accuracy:.4f}  |  {seconds:.4f}  |")
"""


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
    assert both is not None
    our_seconds = [part["seeds"][0]["time_seconds"] for part in (first, second)]
    assert both[0].value == pytest.approx(np.mean(our_seconds) / 0.3)
    our_accuracies = [part["seeds"][0]["metrics"]["top_1_accuracy"] for part in (first, second)]
    assert both[1].value == pytest.approx(np.mean(our_accuracies) - 0.45)
    assert "range of 2: " in done.stdout


def test_a_peer_that_fails_is_told_with_its_words(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no GPU here')")
    arguments = record.argparse.Namespace(data="", peer_seconds=100)
    answer = record.run_peer(script, arguments)
    assert (answer["runs"], answer["failed"]) == ([], "no GPU here")


MODDED_NANOGPT = """
import os, time, numpy
folder = os.environ["DATA_PATH"] + "/data/fineweb10B/"
assert os.environ["WORLD_SIZE"] == "1" and os.environ["RANK"] == os.environ["LOCAL_RANK"] == "0"
for name in ("train_000001", "train_000002", "val_000000"):
    header = numpy.fromfile(f"{folder}fineweb_{name}.bin", "<i4", 256)
    tokens = numpy.fromfile(f"{folder}fineweb_{name}.bin", "<u2", offset=1024)
    assert header[:2].tolist() == [20240520, 1] and header[2] == len(tokens)
    assert 0.001 < (tokens == 50256).mean() < 0.003 and tokens.max() == 50256
print("Compiling model and warming up kernels (~7 minutes on first execution)")
for step in range(1000):
    if step % 25 == 0:
        print(f"step:{step}/1000 val_loss:10.8 train_time:{250 * step}ms step_avg:250.00ms")
    print(f"step:{step + 1}/1000 train_time:{250 * (step + 1) + step % 3}ms step_avg:250.00ms")
time.sleep(1000)
"""


@pytest.mark.processes
def test_the_language_model_beside_a_peers_steps(tmp_path):
    peer = tmp_path / "train_gpt.py"
    peer.write_text(MODDED_NANOGPT)
    command = ["language_model_peer", f"--peer={peer}", "--tiny", "--rounds=2", "--steps=50"]
    done = run_benchmark(tmp_path, *command, "--peer_tokens=256")
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "gpt2_peer_cpu_tiny.json").read_text())
    assert written["peer"]["seconds_a_step"] == pytest.approx([0.25] * 3, abs=1e-3)
    assert "ours / its: " in done.stdout and "range of 2: " in done.stdout
    assert (written["tokens_a_step"], written["dawnjax"]["units_a_step"]) == (256, 256)
    assert len(written["dawnjax_seconds_a_step"]) == 2
    assert "configurations differ in" in written["differences"]
    assert written["differences"] in done.stdout
    peer.write_text("raise SystemExit('no GPU here')")
    assert "no GPU here" in language_model_peer.run_peer(peer, 50, 100)["failed"]


@pytest.mark.processes
@pytest.mark.parity
@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_the_first_step_of_both_sides_cold_and_warm(tmp_path):
    done = run_benchmark(tmp_path, "first_step", "--tiny", "--rounds=1")
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "first_step_cpu_tiny.json").read_text())
    for side in written["rounds"][0]:
        assert side["warm"]["first_step_seconds"] < side["cold"]["first_step_seconds"]


@pytest.mark.processes
def test_parts_share_their_time_and_go_on_after_one_that_failed(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "  -c*) echo cpu ;;\n"
        "  *resnet50*) echo {} > $DAWNJAX_BENCHMARK_RESULTS/new.json ;;\n"
        "  *amoebanet_d*) exit 7 ;;\n"
        "  *transformer_big*) sleep 100 ;;\n"
        "esac\n"
    )
    python.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.json").touch()
    os.utime(out / "old.json", (0, 0))

    def said_of(parts: str, *flags: str) -> list[str]:
        done = subprocess.run(
            ["bash", "benchmarks/gpu.sh", parts, *flags, "--tiny", f"--out={out}"],
            cwd=TOP,
            env={**os.environ, "PYTHON": str(python)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 1
        return done.stdout.strip().splitlines()

    said = said_of("amoebanet_d,resnet50,transformer_big,gpt2_small", "--seconds=8")
    assert said[:2] == ["amoebanet_d: failed, with exit status 7", "resnet50: ran"]
    assert said[2].startswith("transformer_big: ended after its ")
    assert said[3:] == ["gpt2_small: ran", f"results in {out}:", f"{out}/new.json"]
    said = said_of("all", "--seconds=0")
    assert said[0] == "record: no time" and "start_up: no time" in said
    assert said[-1] == f"results in {out}:"


@pytest.mark.processes
def test_every_part_of_the_script_names_commands_that_exist():
    script = TOP / "benchmarks" / "gpu.sh"
    done = subprocess.run(
        ["bash", str(script), "plan"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stderr.splitlines() if line.startswith("+ ")]
    assert len(lines) >= 12
    for words in lines:
        package, name = words[3], words[4]
        folder = "dawnjax/commands" if package == "dawnjax" else "benchmarks"
        assert (TOP / folder / f"{name}.py").is_file(), words
    refused = subprocess.run(["bash", str(script), "nothing"], capture_output=True, text=True)
    assert refused.returncode == 2


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
