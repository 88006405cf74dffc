"""Tests of checkpoints in a bucket, against a server of Google Cloud Storage's API on this machine.

A run is a process of its own: the clients of a bucket keep the address that they were first told.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from object_store import ObjectStore, Stored
from quick_compilation import QUICK
from told import result_in

from dawnjax.__main__ import main

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gcsfs") is None, reason="gcsfs is not installed: dawnjax[gcs]"
)

DIRECTORY = "gs://runs/digits/checkpoints"


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore({"runs": {}}).serving() as serving:
        yield serving


def start(store: ObjectStore, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a command whose clients of Google Cloud Storage ask the store."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "XLA_FLAGS": QUICK, **store.environment(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(store: ObjectStore, *arguments: str, **environment: str) -> tuple[int, str]:
    """Runs `dawnjax` to its end; returns its status and what it printed."""
    child = start(store, "-m", "dawnjax", *arguments, **environment)
    output, _ = child.communicate(timeout=500)
    return child.returncode, output


def training(run_dir: Path, compile_cache: str, directory: str = DIRECTORY) -> list[str]:
    return [
        "train",
        "--experiment=digits",
        f"--run_dir={run_dir}",
        f"--checkpoint.directory={directory}",
        "--checkpoint.every_steps=20",
        # Its first evaluation ends the run, after 84 steps.
        *("--model.stage_sizes=1", "--model.stage_widths=16", "--targets.0.value=0.5"),
        "--profile.after_run=false",
        compile_cache,
    ]


def steps_in(store: ObjectStore) -> list[int]:
    """The steps whose saves were committed."""
    objects = dict(store.buckets["runs"])  # the server adds to them
    folders = [name.removesuffix("/commit_success.txt") for name in objects]
    metadata = [f"{folder}/metadata/metadata.json" for folder in folders]
    return sorted(json.loads(objects[n].data)["step"] for n in metadata if n in objects)


def wait_until(holds: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    while not holds():
        assert child.poll() is None, child.communicate()[0]
        time.sleep(0.01)


@pytest.mark.processes
def test_a_run_is_killed_and_resumed_from_a_bucket(store, tmp_path, compile_cache, capsys):
    run_dir = tmp_path / "run"
    command = training(run_dir, compile_cache)
    child = start(store, "-m", "dawnjax", *command)
    wait_until(lambda: len(steps_in(store)) >= 2, child)
    child.kill()
    child.communicate()

    *_, older, newer = steps_in(store)
    bucket = store.buckets["runs"]
    damaged = [name for name in bucket if name.endswith("state/manifest.ocdbt")][-1]
    bucket[damaged] = Stored(b"", 1, "application/octet-stream")

    status, output = run(store, *command)
    assert status == 0, output
    assert "cannot be restored: " in output and newer > older
    events = [json.loads(line) for line in (run_dir / "log.jsonl").open()]
    assert [event["step"] for event in events if event["event"] == "restored"] == [older]
    result = json.loads((run_dir / "result.json").read_text())
    assert result["reached"] and result["interruptions"] == 1
    kept = steps_in(store)
    assert len(kept) == 2, "older ones are deleted"
    assert len({name.split("/")[2] for name in bucket}) == 2
    assert not (run_dir / "checkpoints").exists()

    evaluate = ["evaluate", "--json", f"--checkpoint.directory={DIRECTORY}"]
    status, output = run(store, *evaluate, str(run_dir))
    assert status == 0, output
    evaluated = result_in(output.splitlines()[-1])
    assert evaluated["step"] == kept[-1] and evaluated["reached"]
    last = [event for event in events if event["event"] == "evaluation"][-1]
    accuracy = evaluated["own"]["metrics"]["top_1_accuracy"]
    assert accuracy == pytest.approx(last["metrics"]["top_1_accuracy"], abs=1e-6)
    # Neither asks the store.
    assert main(["evaluate", str(run_dir)]) == 2
    assert "--checkpoint.directory" in capsys.readouterr().err
    assert main(["report", str(run_dir), f"--out={tmp_path / 'page'}"]) == 0
    assert (tmp_path / "page" / "index.html").exists()


UNREACHABLE = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("bucket", "environment", "status", "reason"),
    [
        ("missing", {}, 2, "checkpoints cannot be written to gs://missing/x: there is no bucket"),
        ("closed", {}, 1, "cannot read gs://closed/x: "),
        # Asked for half a minute.
        pytest.param("runs", UNREACHABLE, 1, "cannot read gs://runs/x: ", marks=pytest.mark.long),
    ],
)
def test_a_bucket_that_cannot_be_used_is_refused_in_one_line(
    bucket, environment, status, reason, store, tmp_path, compile_cache
):
    store.buckets["closed"] = {}
    store.refuses["closed"] = 403
    argv = training(tmp_path / bucket, compile_cache, f"gs://{bucket}/x")
    found, output = run(store, *argv, **environment)
    assert found == status, output
    assert output.startswith(f"dawnjax train: {reason}") and output.count("\n") == 1, output
    assert list(store.buckets) == ["runs", "closed"], "none is made"
