"""Trackers: the real libraries in their offline and local modes, and ones that fail or hang."""

import json
import time
from types import SimpleNamespace

import pytest

import dawnjax
from dawnjax.__main__ import main
from dawnjax.runs import trackers

SMALL = ["train", "digits", "--max_steps=20", "--num_epochs=0", "--evaluation.first_epoch=0"]
SMALL += ["--evaluation.every_steps=10", "--schedule=constant", "--profile.after_run=false"]
SMALL += ["--model.stage_sizes=1", "--model.stage_widths=16"]


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No account of the person who runs the tests is used."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "MLFLOW_TRACKING_URI", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.compiles
def test_both_trackers_get_what_the_log_has(alone, tmp_path, compile_cache):
    pytest.importorskip("wandb", reason="wandb is not installed")
    mlflow = pytest.importorskip("mlflow.tracking", reason="mlflow is not installed")
    run_dir = tmp_path / "run"
    command = [*SMALL, compile_cache, "--tracker=wandb,mlflow", "--gradient_norm"]
    command.append(f"--run_dir={run_dir}")
    assert main(command) in (0, 3)
    result = json.loads((run_dir / "result.json").read_text())
    assert not [line for line in result["warnings"] if "goes to" in line]

    client = mlflow.MlflowClient(tracking_uri=(run_dir / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("dawnjax")
    [run] = client.search_runs([experiment.experiment_id])
    seen = client.get_metric_history(run.info.run_id, "eval/top_1_accuracy")
    assert [(row.step, row.value) for row in seen] == [
        (row["step"], pytest.approx(row["top_1_accuracy"])) for row in result["evaluations"]
    ]
    losses = dawnjax.load_losses(run_dir)
    assert [point.step for point in losses] == list(range(1, 21))
    assert [point.loss for point in losses[:10]] == result["first_losses"]
    for name, field in (("train/loss", "loss"), ("train/grad_norm", "gradient_norm")):
        seen = client.get_metric_history(run.info.run_id, name)
        assert [(row.step, row.value) for row in seen] == [
            (point.step, getattr(point, field)) for point in losses
        ]
    assert run.data.params["optimizer.base_learning_rate"] == "0.4"
    assert run.data.tags["dawnjax.status"] == result["status"]
    assert run.data.tags["dawnjax.run_id"] == result["run_id"]

    [file] = run_dir.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    assert b"train/grad_norm" in content
    assert b"eval/top_1_accuracy" in content and result["run_id"].encode() in content


class Broken:
    """A tracker that fails where it is told to."""

    def __init__(self, where):
        self.where = where
        self.fail("open")

    def fail(self, now):
        if now == self.where:
            raise SystemExit(f"no network\nwhile {now}")

    def write(self, points):
        self.fail("write")

    def close(self, summary):
        self.fail("close")


@pytest.mark.parametrize("where", ["open", "write", "close"])
def test_a_tracker_that_fails_is_given_up_with_one_line(monkeypatch, tmp_path, where):
    received = []

    class Whole(Broken):
        def write(self, points):
            received.extend(points)

    engines = {"wandb": lambda *_: Broken(where), "mlflow": lambda *_: Whole("never")}
    monkeypatch.setattr(trackers, "ENGINES", engines)
    said = []
    served = trackers.Trackers(("wandb", "mlflow"), "run", tmp_path, {}, said.append)
    served.wait_until_open()
    for step in (1, 2):
        served.write(step, {"loss": 0.5})
    served.close({"status": "reached"})
    assert said == [f"no more of this run goes to wandb: no network while {where}"]
    assert received == [(1, {"loss": 0.5}), (2, {"loss": 0.5})]
    served.close({})


def test_a_tracker_that_hangs_holds_no_run_up(monkeypatch, tmp_path):
    class Hanging(Broken):
        def write(self, points):
            time.sleep(60)

    monkeypatch.setattr(trackers, "ENGINES", {"wandb": lambda *_: Hanging("never")})
    monkeypatch.setattr(trackers, "CLOSE_SECONDS", 0.2)
    said = []
    served = trackers.Trackers(("wandb",), "run", tmp_path, {}, said.append)
    started = time.monotonic()
    for step in range(1000):
        served.write(step, {"loss": 0.5})
    served.close({})
    assert time.monotonic() - started < 30
    assert said == ["wandb did not finish within 0.2 s"]


def test_a_tracker_that_is_not_installed_gets_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    assert main([*SMALL, "--tracker=mlflow", f"--run_dir={tmp_path}/a"]) == 2
    assert 'pip install "dawnjax[mlflow]"' in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_a_resumed_run_offline_keeps_each_step_once(alone, tmp_path, monkeypatch):
    """`wandb sync` would send the files of both attempts."""
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    logged = []
    recorder = SimpleNamespace(summary={}, finish=lambda: None)
    recorder.log = lambda scalars, step: logged.append((step, scalars))
    monkeypatch.setattr(wandb, "init", lambda **_: recorder)
    for mode, kept in (("offline", [(5, {"loss": 0.5}), (6, {"loss": 0.5})]), ("online", None)):
        monkeypatch.setenv("WANDB_MODE", mode)
        for first in (1, 3):
            logged.clear()
            points = [(step, {"loss": 0.5}) for step in range(first, first + 4)]
            tracker = trackers.ENGINES["wandb"]("run", tmp_path / mode, {})
            tracker.write(points)
            # Another scalar of the newest step comes later.
            tracker.write([(first + 3, {"accuracy": 0.5})])
            tracker.close({})
        # Online the service itself leaves out what it has.
        assert logged == [*(kept or points), (6, {"accuracy": 0.5})]
