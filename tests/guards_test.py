"""Promises that are expensive to break: imports, collectives, compilation, the device count."""

import ast
import functools
import math
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.run_options import MeshShape, RunOptions
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.machine.mesh import make_mesh, place, replicated
from dawnjax.programs import compile_training
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

TOP = Path(__file__).resolve().parent.parent

SMALL = [
    "--experiment=synthetic_image",
    "--data.num_train_examples=96",
    "--data.num_eval_examples=40",
    "--num_epochs=3",
    "--global_batch_size=16",
    "--batch_norm_group_size=4",
    "--model.stage_sizes=1",
    "--model.stage_widths=16",
]


def imports(path: Path) -> set[str]:
    """Gives the modules that a file imports, those inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def python_files(folder: str) -> list[Path]:
    return sorted((TOP / folder).glob("*.py"))


def test_imports_point_one_way():
    for path in python_files("models"):
        for name in imports(path):
            assert not name.startswith("dawnjax") or name.startswith("dawnjax.models"), (path, name)
    for path in python_files("input_pipeline"):
        for name in imports(path):
            allowed = name.startswith("dawnjax.input_pipeline")
            assert not name.startswith("dawnjax") or allowed, (path, name)
    # The run code finds experiments by name; only the module that does so knows the package.
    for path in python_files("dawnjax"):
        if path.name != "experiment_flags.py":
            assert not any("experiments" in name.split(".") for name in imports(path)), path


def test_profiles_are_read_without_the_run():
    allowed = ("dawnjax.profile.", "dawnjax.errors.", "dawnjax.machine.hardware.")
    for path in python_files("dawnjax/profile"):
        if path.name != "model_flops.py":
            ours = {name for name in imports(path) if name.startswith("dawnjax")}
            assert all(name.startswith(allowed) for name in ours), (path, ours)


def test_flax_stays_behind_one_door():
    for folder in (
        "dawnjax",
        "dawnjax/commands",
        "dawnjax/analysis",
        "dawnjax/official",
        "dawnjax/report",
        "dawnjax/profile",
        "input_pipeline",
    ):
        for path in python_files(folder):
            uses = any(name.split(".")[0] == "flax" for name in imports(path))
            assert not uses or path.name == "pure_model.py", path


def test_no_file_imports_the_folders_under_their_second_name():
    for path in TOP.glob("*/*.py"):
        for name in imports(path):
            assert name.split(".")[0] not in ("models", "input_pipeline", "experiments"), (
                path,
                name,
            )


WITHOUT_JAX = [
    "dawnjax",
    "dawnjax.runs.log",
    "dawnjax.runs.summary",
    "dawnjax.commands.check",
    "dawnjax.commands.import_results",
    "dawnjax.commands.export",
    "dawnjax.analysis",
    "dawnjax.analysis.paper",
    "dawnjax.commands.report",
    "dawnjax.report.page",
    "dawnjax.report.writing",
    "dawnjax.commands.profile",
    "dawnjax.machine.hardware",
    "dawnjax.profile.figures",
    "dawnjax.profile.host_profile",
]


def test_reading_results_needs_no_jax():
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    for heavy in ('jax', 'flax'):\n"
        "        assert heavy not in sys.modules, f'{name} imports {heavy}'\n"
    )
    # One process for all: what one module imports, a later one cannot take back.
    done = subprocess.run(
        [sys.executable, "-c", script, *WITHOUT_JAX], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def train_programs(num_devices: int, *argv: str):
    """Compiles the train programs of a small experiment for some of the simulated devices."""
    request, _ = parse_request("train", [*SMALL, *argv])
    experiment = request.experiment
    spec = experiment.data.spec()
    experiment.validate(spec)
    mesh = make_mesh(request.options.mesh, jax.devices()[:num_devices])
    recipe = make_recipe(experiment, spec, mesh, None, request.options.weight_update_sharding)
    shapes = input_shapes(experiment, spec, RunOptions(), mesh)
    programs = compile_training(recipe, shapes, 4, lambda *_: None)
    return recipe, shapes, programs


@functools.cache
def first_losses(num_devices: int, *argv: str) -> np.ndarray:
    """Gives the losses of the first eight steps, two calls of four."""
    recipe, shapes, programs = train_programs(num_devices, *argv)
    mesh = recipe.mesh
    make_key = jax.jit(
        lambda: jax.random.key(3, impl=PRNG_IMPLEMENTATION), out_shardings=replicated(mesh)
    )
    key = make_key()
    examples = recipe.experiment.data.load("train")
    feed = TrainFeed(shapes, mesh, examples, seed=3, steps_per_call=4)
    state = programs.initialize(key)
    four = place(np.array(4, np.int32), replicated(mesh))
    losses = []
    for first in (0, 4):
        state, metrics = programs.train(state, feed.resident, feed.inputs(first, 4), four, key)
        losses.append(np.asarray(metrics.losses))
    return np.concatenate(losses)


def test_the_number_of_devices_does_not_change_the_mathematics():
    one = first_losses(1)
    assert np.isfinite(one).all() and len(set(one.tolist())) == 8
    # Sums are split differently, so the last bits differ and grow step by step: 1e-5 over 8 steps.
    for num_devices in (2, 4):
        np.testing.assert_allclose(first_losses(num_devices), one, atol=1e-5)
    # Another group size is another mathematics.
    assert abs(first_losses(1, "--batch_norm_group_size=16") - one).max() > 1e-3


def test_sharded_parameters_give_the_same_losses():
    one = first_losses(1)
    np.testing.assert_allclose(first_losses(4, "--mesh.fsdp=4"), one, atol=1e-5)
    # Wide enough that kernels are split. Their gradients are summed in another order, and by
    # Winograd's algorithm, whose rounding is coarser: the first bits of difference stay below 1e-5
    # for four steps and are 5e-3 after eight.
    wide = ["--model.stage_widths=64"]
    sharded, whole = first_losses(4, "--mesh.fsdp=2", *wide), first_losses(1, *wide)
    np.testing.assert_allclose(sharded[:4], whole[:4], atol=1e-5)
    np.testing.assert_allclose(sharded, whole, atol=2e-2)


def test_data_parallel_reduces_gradients_and_one_vector_of_scalars():
    recipe, _, programs = train_programs(4)
    text = re.sub(r"/\*.*?\*/", "", programs.train.as_text())
    for other in ("all-gather", "all-to-all", "collective-permute", "reduce-scatter"):
        assert not re.search(rf"= \S+ {other}", text), other
    reduced = 0
    for shapes in re.findall(r"= (\(?[^=]*?) all-reduce(?:-start)?\(", text):
        for dims in re.findall(r"\w+\[([\d,]*)\]", shapes):
            reduced += math.prod(int(size) for size in dims.split(",") if size)
    state = jax.eval_shape(recipe.initial_state, jax.random.key(0))
    params = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    stats = sum(leaf.size for leaf in jax.tree.leaves(state.batch_stats))
    # Every parameter's gradient once, and one vector: the running statistics and the loss.
    assert reduced == params + stats + 1


def test_a_batch_that_the_devices_cannot_share_is_refused():
    from dawnjax.errors import ConfigError

    with pytest.raises(ConfigError, match="8, but there are 4 devices"):
        make_mesh(MeshShape(data=8), jax.devices()[:4])
