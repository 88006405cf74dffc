"""Weights in one file of safetensors: written bit for bit, read back, and refused elsewhere."""

import dataclasses
import json
import shutil

import jax
import ml_dtypes
import numpy as np
import pytest
from task_table import TABLE, trained_run

from dawnjax.__main__ import main
from dawnjax.checkpointed.exported_weights import (
    DescribedExperiment,
    Description,
    exported,
    write_file,
)
from dawnjax.checkpointed.initial_parameters import resolved, take
from dawnjax.checkpointed.published_weights import PublishedWeights
from dawnjax.checkpoints.store import Checkpoints
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError
from dawnjax.machine.mesh import make_mesh
from dawnjax.train_step import make_recipe

numpy_files = pytest.importorskip(
    "safetensors.numpy", reason="the extra `weights` is not installed"
)

DESCRIPTION = Description(
    run_id="r",
    identity="i",
    seed=0,
    step=7,
    weights="raw",
    experiment=DescribedExperiment(
        name="x", task={}, model={}, data={}, evaluation={}, compute_dtype="float32"
    ),
    versions={},
)


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tolist(), array.dtype.name


def made():
    random = np.random.default_rng(0)
    values = random.normal(size=(3, 5)).astype(np.float32)
    values[0, 0], values[1, 1] = np.nan, -0.0
    return {
        "params/0/kernel": values,
        "params/0/half": values.astype(np.float16),
        "params/1/low": values.astype(ml_dtypes.bfloat16).T,
        "params/scale": np.float32(3.0) * np.ones((), np.float32),
        "params/none": np.zeros((0, 4), np.float32),
        "batch_stats/count": np.arange(3, dtype=np.int32),
        "batch_stats/flag": np.array([True, False]),
    }


def test_every_dtype_is_read_back_bit_for_bit_by_ours_and_by_the_library(tmp_path):
    arrays, file = made(), tmp_path / "model.safetensors"
    write_file(file, arrays, DESCRIPTION)
    ours = exported(PublishedWeights(tmp_path))
    assert ours is not None and ours.description == DESCRIPTION
    assert ours.state.startswith("exported weights, sha256 ")
    assert ours.signatures["params/1/low"] == "bfloat16[5,3]"
    theirs = numpy_files.load_file(file)
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert set(theirs) == set(arrays) == set(ours.signatures)
    for name, array in arrays.items():
        assert bits(np.asarray(ours.array(name, place))) == bits(array), name
        assert bits(theirs[name]) == bits(array), name


def test_files_of_other_programs_are_none_and_forged_ones_are_one_line(tmp_path):
    numpy_files.save_file({"a": np.zeros(1)}, tmp_path / "model.safetensors")
    assert exported(PublishedWeights(tmp_path)) is None
    told = dataclasses.asdict(DESCRIPTION)
    for text in (
        "no JSON",
        "[]",
        json.dumps({**told, "schema_version": 2}),
        json.dumps({**told, "experiment": {"model": 3}}),
    ):
        numpy_files.save_file(
            {"a": np.zeros(1)}, tmp_path / "model.safetensors", metadata={"dawnjax": text}
        )
        with pytest.raises(ConfigError, match="its metadata are none") as error:
            exported(PublishedWeights(tmp_path))
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.compiles
@pytest.mark.parametrize("name", TABLE)
def test_a_run_takes_back_what_was_exported_of_each_model(
    name, tmp_path, tmp_path_factory, compile_cache
):
    run, out = trained_run(tmp_path_factory, name, compile_cache), tmp_path / "out"
    assert main(["export", "--format=safetensors", str(run), f"--out={out}"]) == 0
    read = Checkpoints(str(run / "checkpoints"), keep=1, warn=print)
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    description = json.loads((out / "model.json").read_text())
    prefix = {"ema": "ema_params/", "raw": "params/"}[description["weights"]]
    saved = read.read_newest(lambda n: place if n.startswith((prefix, "batch_stats/")) else None)
    read.close()
    assert saved is not None and saved.step == TABLE[name].steps == description["step"]
    # Self-play that keeps its best parameters refuses others to begin with.
    flags = [flag for flag in TABLE[name].flags if not flag.startswith("--task.gating_")]
    request, _ = parse_request("train", [*flags, f"--initialize_from={out}"])
    request = resolved(request)
    mesh = make_mesh(request.options.mesh, jax.devices()[:1])
    recipe = make_recipe(request.experiment, request.experiment.data.spec(), mesh)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), recipe.abstract_state)
    state, taken = take(recipe, zeros, print)
    assert not taken.fresh and taken.weights == description["weights"]
    both = {"params": state.params, "batch_stats": state.batch_stats}
    leaves = jax.tree_util.tree_leaves_with_path(both)
    assert len(leaves) == len(saved.state)
    for path, leaf in leaves:
        at = jax.tree_util.keystr(path, simple=True, separator="/")
        assert bits(np.asarray(leaf)) == bits(
            np.asarray(saved.state[at.replace("params/", prefix, 1)])
        ), at


@pytest.mark.compiles
def test_other_models_and_other_use_are_one_line(tmp_path, tmp_path_factory, compile_cache, capsys):
    run = trained_run(tmp_path_factory, "classification", compile_cache)
    capsys.readouterr()
    out = tmp_path / "out"
    export = ["export", "--format=safetensors", f"--out={out}"]
    moved = shutil.copytree(run, tmp_path / "no_checkpoint")
    shutil.rmtree(moved / "checkpoints")
    for argv, words in (
        ([*export, str(moved)], "has no checkpoint in"),
        ([*export, str(tmp_path / "absent")], "is no run directory"),
        ([*export, str(run), str(run)], "one run directory is needed, 2 given"),
    ):
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1 and not out.exists()
    assert main([*export, str(run)]) == 0
    assert main([*export, str(run)]) == 2
    assert "is not empty" in capsys.readouterr().err
    text = (out / "model.json").read_text()
    assert str(tmp_path) not in text and "/" not in json.loads(text)["experiment"]["data"].values()
    other = tmp_path / "other"
    flags = [*TABLE["classification"].flags, "--model.stage_widths=24", f"--run_dir={other}"]
    assert main(["train", *flags, f"--initialize_from={out}"]) == 2
    error = capsys.readouterr().err
    assert "is of another model: " in error and error.count("\n") == 1
    assert not other.exists()
    flags = [*TABLE["llama"].flags, f"--run_dir={other}", f"--initialize_from={out}"]
    assert main(["train", *flags]) == 2
    error = capsys.readouterr().err
    assert "is of another model" in error and error.count("\n") == 1 and not other.exists()
