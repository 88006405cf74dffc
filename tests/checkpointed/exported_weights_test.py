"""Weights in one file of safetensors: bit for bit those of the checkpoint."""

import json

import jax
import numpy as np
import pytest
from each_change import rows
from task_table import TABLE, trained_run

from dawnjax.__main__ import main
from dawnjax.checkpoints.store import Checkpoints

numpy_files = pytest.importorskip(
    "safetensors.numpy", reason="the extra `weights` is not installed"
)


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tolist(), array.dtype.name


@pytest.mark.compiles
@pytest.mark.parametrize("name", rows(TABLE, ["classification", "llama"]))
def test_the_file_holds_what_the_run_evaluated(name, tmp_path, tmp_path_factory, compile_cache):
    run, out = trained_run(tmp_path_factory, name, compile_cache), tmp_path / "out"
    assert main(["export", "--format=safetensors", str(run), f"--out={out}"]) == 0
    read = Checkpoints(str(run / "checkpoints"), keep=1, warn=print)
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    description = json.loads((out / "model.json").read_text())
    prefix = {"ema": "ema_params/", "raw": "params/"}[description["weights"]]
    saved = read.read_newest(lambda n: place if n.startswith((prefix, "batch_stats/")) else None)
    read.close()
    assert saved is not None and saved.step == TABLE[name].steps == description["step"]
    written = numpy_files.load_file(out / "model.safetensors")
    assert len(written) == len(saved.state)
    for path, array in written.items():
        wanted = saved.state[path.replace("params/", prefix, 1)]
        assert bits(array) == bits(np.asarray(wanted)), path


@pytest.mark.compiles
def test_a_description_says_nothing_of_the_machine(tmp_path, tmp_path_factory, compile_cache):
    run, out = trained_run(tmp_path_factory, "classification", compile_cache), tmp_path / "out"
    assert main(["export", "--format=safetensors", str(run), f"--out={out}"]) == 0
    text = (out / "model.json").read_text()
    assert str(tmp_path) not in text and "/" not in json.loads(text)["experiment"]["data"].values()
