"""From a flag to a result, and the promises of the loop."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys

import jax
import jax.monitoring
import numpy as np
import pytest
from quick_compilation import FUSIONS_OF_A_USER
from told import told
from trained import SMALL, final_state_of

from dawnjax import journal
from dawnjax import train as loop
from dawnjax.attempt import Attempt
from dawnjax.call_queue import CallMetrics
from dawnjax.commands.check import check_run
from dawnjax.errors import RunError
from dawnjax.runs.log import read_events
from dawnjax.stops import Stops, Wish
from dawnjax.trials.trial import Trial

FLAGS = [
    *(*SMALL, "--data.num_train_examples=200", "--data.num_eval_examples=90", "--num_epochs=4"),
    *("--schedule.warmup_epochs=0.5", "--model.stage_widths=16"),
]
UNREACHABLE = "--targets.0.value=1.0"


@pytest.mark.compiles
def test_from_flag_to_result(train, tmp_path, capsys):
    status, result = train("--targets.0.value=0.3", "--price_per_hour_usd=3.6")
    assert status == 0
    not_written = {"name", "fields", "began_unix_seconds", "directory"}
    assert {field.name for field in dataclasses.fields(Trial)} - not_written == set(result)
    assert result["reached"] and result["status"] == "reached"
    target = result["target"]
    assert (target["metric"], target["value"]) == ("top_1_accuracy", 0.3)
    last = result["evaluations"][-1]
    assert last["top_1_accuracy"] >= 0.3
    assert result["time_to_accuracy_seconds"] == last["seconds_since_run_start"]
    assert all(row["top_1_accuracy"] < 0.3 for row in result["evaluations"][:-1])
    assert result["total_seconds_to_accuracy"] > result["time_to_accuracy_seconds"] > 0
    assert sum(result["phases"].values()) == pytest.approx(result["total_seconds"], abs=1e-4)
    # 200 / 16 = 12.5 steps an epoch: evaluations after 13, 25, 38 and 50 steps.
    assert [row["step"] for row in result["evaluations"]] == [13, 25, 38, 50][
        : len(result["evaluations"])
    ]
    assert len(result["first_losses"]) == 10
    assert result["num_devices"] == 4 and result["platform"] == "cpu"
    # The work of half the steps is half of it.
    assert result["num_params"] > 0
    assert all(
        row["flops"] / row["step"] == last["flops"] / last["step"] > 0
        for row in result["evaluations"]
    )
    assert result["cost_usd"] == pytest.approx(result["time_to_accuracy_seconds"] / 1000, abs=1e-6)
    host = result["hosts"][0]
    assert host["process_index"] == 0 and host["hostname"]
    assert host["step_seconds"]["p99"] >= host["step_seconds"]["p50"] > 0
    assert 0 <= host["input_wait_fraction"] < 1 and host["memory_bytes"] > 1e6
    assert set(host["network_bytes"]) >= {"sent", "received"}
    run_dir = tmp_path / "run"
    assert check_run(run_dir) == ([], [])
    out = capsys.readouterr().out
    assert "time to accuracy" in out and "compilation" in out

    # The same command again has nothing to do; it neither trains nor writes.
    before = (run_dir / "log.jsonl").read_bytes()
    assert train("--targets.0.value=0.3", "--price_per_hour_usd=3.6")[0] == 0
    assert "is not added" not in capsys.readouterr().err
    assert train("--targets.0.value=0.3", "--price_per_hour_usd=7.2")[0] == 0
    text = " ".join(capsys.readouterr().err.split())
    assert "7.2 USD an hour is not added; its cost is time_to_accuracy_seconds / 3600" in text
    assert (run_dir / "log.jsonl").read_bytes() == before

    # Another experiment or seed is refused, with the difference named.
    assert train("--targets.0.value=0.4")[0] == 2
    assert "targets.0.value is 0.3 there and 0.4 here" in capsys.readouterr().err
    assert train("--targets.0.value=0.3", "--seed=1")[0] == 2
    assert "seed is 0 there and 1 here" in capsys.readouterr().err

    # The checkpoint, evaluated by itself, gives the same numbers.
    row = told(capsys, "evaluate", str(run_dir))
    assert row["step"] == last["step"]
    assert row["own"]["metrics"]["top_1_accuracy"] == last["top_1_accuracy"]


@pytest.mark.compiles
def test_what_follows_the_target_cannot_fail_the_run(train, tmp_path, monkeypatch, capsys):
    def full(*_: object) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(Attempt, "finish", full)
    status, result = train("--targets.0.value=0.3")
    assert status == 0 and result["status"] == "reached"
    assert result["time_to_accuracy_seconds"] > 0
    assert result["warnings"][-1] == "RunError: the disk is full"
    assert "the disk is full" in capsys.readouterr().err
    assert check_run(tmp_path / "run") == ([], [])


@pytest.mark.compiles
def test_divergence_ends_the_trial_at_its_step(train, tmp_path):
    status, result = train("--optimizer.base_learning_rate=1e30", "--schedule.warmup_epochs=0.0")
    assert status == 4
    assert result["status"] == "diverged" and result["reached"] is False
    events = read_events(tmp_path / "run" / "log.jsonl")
    losses = next(event["losses"] for event in events if event["event"] == "losses")
    first_bad = next(i for i, loss in enumerate(losses, 1) if not isinstance(loss, float))
    assert result["diverged_step"] == first_bad
    assert check_run(tmp_path / "run")[0] == []


@pytest.mark.compiles
def test_nothing_compiles_and_nothing_moves_unasked_once_the_clock_runs(train, monkeypatch):
    compiled, compiled_before = [], []

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(duration_secs)

    start_clock = Attempt.start_clock

    def start_and_guard(self):
        start_clock(self)
        compiled_before.extend(compiled)
        compiled.clear()
        # Explicit placement stays allowed; what JAX would move on its own is an error.
        jax.config.update("jax_transfer_guard", "disallow")

    monkeypatch.setattr(Attempt, "start_clock", start_and_guard)
    jax.monitoring.register_event_duration_secs_listener(note)
    in_loop = []
    finish = Attempt.finish

    def unguard_and_finish(self, *arguments):
        in_loop.extend(compiled)
        jax.config.update("jax_transfer_guard", "allow")
        finish(self, *arguments)

    monkeypatch.setattr(Attempt, "finish", unguard_and_finish)
    try:
        status, result = train(UNREACHABLE, "--num_epochs=2")
    finally:
        jax.config.update("jax_transfer_guard", "allow")
        jax.monitoring.unregister_event_duration_listener(note)
    assert status == 3 and result["steps"] == 25
    assert compiled_before and in_loop == []


class Unread:
    """An array that may be waited for and not read: on a CPU no guard of JAX's sees a read."""

    def __init__(self, array):
        self._array, self.is_open = array, False

    def block_until_ready(self):
        self._array.block_until_ready()

    def is_ready(self):
        return self._array.is_ready()

    def _read(self, *_, **__):
        assert self.is_open, "a value was read from the device inside the loop"
        return np.asarray(self._array)

    __array__ = _read

    def __int__(self):
        return int(self._read())


@pytest.mark.compiles
def test_the_loop_reads_nothing_back_between_its_records(train, monkeypatch):
    train_until, handed_out = loop.train_until, []
    monkeypatch.setattr(journal, "RECORD_SECONDS", 1e6)

    def watched(stop, stepper, *rest):
        programs = stepper.programs

        def unread_metrics(*inputs):
            state, metrics = programs.train(*inputs)
            handed_out.extend(Unread(array) for array in metrics[:2])
            return state, CallMetrics(*handed_out[-2:])

        stepper.programs = dataclasses.replace(programs, train=unread_metrics)
        given = train_until(stop, stepper, *rest)
        stepper.programs = programs
        for array in handed_out:
            array.is_open = True  # after the stretch, where the loop waits anyway
        return given

    monkeypatch.setattr(loop, "train_until", watched)
    status, result = train(UNREACHABLE, "--num_epochs=2", "--steps_per_call=1")
    assert status == 3 and result["steps"] == 25 and len(handed_out) == 50
    assert len(result["first_losses"]) == 10
    with pytest.raises(AssertionError, match="read from the device"):
        int(Unread(jax.numpy.ones(())))


@pytest.mark.compiles
def test_batches_fed_from_the_host_are_those_on_the_device(train, tmp_path):
    flags = [UNREACHABLE, "--num_epochs=1", "--steps_per_call=1", "--model.stage_widths=8"]
    flags += [f"--xla_options={option}=true" for option in FUSIONS_OF_A_USER]
    on_device = train(*flags, "--data_placement=device", run_dir="device")[1]
    from_host = train(*flags, "--data_placement=host", run_dir="host")[1]
    assert from_host["first_losses"] == on_device["first_losses"]
    keep = ("step", "top_1_accuracy", "loss")
    assert [[row[k] for k in keep] for row in from_host["evaluations"]] == [
        [row[k] for k in keep] for row in on_device["evaluations"]
    ]
    host_state = final_state_of(tmp_path / "host")
    device_state = final_state_of(tmp_path / "device")
    assert host_state[0] == device_state[0]
    np.testing.assert_array_equal(host_state[1], device_state[1])


@pytest.mark.compiles
def test_the_averaged_parameters_are_evaluated_when_asked(train):
    raw = train(UNREACHABLE, "--num_epochs=1", "--ema_decay=0.9", run_dir="raw")[1]
    ema = train(
        UNREACHABLE, "--num_epochs=1", "--ema_decay=0.9", "--evaluation.weights=ema", run_dir="ema"
    )[1]
    assert raw["first_losses"] == ema["first_losses"]
    assert raw["evaluations"][-1]["loss"] != ema["evaluations"][-1]["loss"]


MINE = """
import dataclasses
from dawnjax.own import load_experiment
EXPERIMENT = dataclasses.replace(load_experiment("synthetic_image"), name="mine")  # für mich
"""


@pytest.mark.compiles
def test_a_run_keeps_the_text_of_its_experiment_s_file(
    train, tmp_path, monkeypatch, capsys, kept_programs
):
    file, run_dir = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(MINE, encoding="utf8")
    flags = (f"--experiment={file}", UNREACHABLE, "--num_epochs=1")
    with monkeypatch.context() as patched:
        patched.setattr(Stops, "after_call", lambda *_: Wish.INTERRUPT)
        assert train(*flags)[0] == 5
    source = json.loads((run_dir / "experiment.json").read_text())["source"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    told = {"name": "mine.py", "path": str(file), "sha256": digest, "text": MINE}
    assert source == told
    assert check_run(run_dir)[0] == []
    # The same experiment in other words goes on, and says so; another experiment is refused.
    file.write_text(MINE + "# a remark\n", encoding="utf8")
    status, result = train(*flags)
    assert status == 3 and result["interruptions"] == 1
    (warning,) = result["warnings"]
    assert "mine.py was changed since the run began" in warning
    assert warning in " ".join(capsys.readouterr().err.split())
    assert train(*flags)[0] == 3 and warning in " ".join(capsys.readouterr().err.split())
    file.write_text(MINE.replace('name="mine"', 'name="mine", ema_decay=0.9'), encoding="utf8")
    assert train(*flags)[0] == 2
    assert "ema_decay is 0.0 there and 0.9 here" in capsys.readouterr().err
    # The file is not needed to read the run.
    file.unlink()
    assert check_run(run_dir)[0] == []


@pytest.mark.processes
def test_a_terminal_that_knows_few_characters_is_no_reason_to_fail(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import dataclasses\n"
        "from dawnjax.own import load_experiment\n"
        "EXPERIMENT = dataclasses.replace(load_experiment('digits'), target_note='für │ sich')\n",
        encoding="utf8",
    )
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for argv, encoding, status, text in [
        (["list", str(file)], {"PYTHONIOENCODING": "ascii"}, 0, r"f\xfcr \u2502 sich"),
        (["check", str(tmp_path / "ü")], ascii_alone, 2, "there is nothing at"),
    ]:
        done = subprocess.run(
            [sys.executable, "-m", "dawnjax", *argv],
            capture_output=True,
            text=True,
            env={**os.environ, **encoding},
        )
        assert done.returncode == status, (argv, done.stderr)
        assert text in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.processes
def test_a_platform_that_is_not_here_is_one_line(tmp_path):
    command = [sys.executable, "-m", "dawnjax", "train", "--experiment=digits"]
    done = subprocess.run(
        [*command, f"--run_dir={tmp_path / 'run'}"],
        env=os.environ | {"JAX_PLATFORMS": "cuda", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("dawnjax train: JAX finds no devices to use: ")
    assert "Traceback" not in done.stderr
