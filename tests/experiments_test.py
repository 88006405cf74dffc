"""Every experiment's tiny variant runs; the full ones are valid and have the shapes they state."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import pytest
from dataset_specs import CIFAR10, IMAGENET

from dawnjax.__main__ import main
from dawnjax.config.config_json import from_json, to_json
from dawnjax.config.experiment import Experiment, Sgd
from dawnjax.config.experiment_flags import experiment_names, load_experiment
from dawnjax.config.run_options import MeshShape
from dawnjax.input_pipeline.parallel_text import ParallelText
from dawnjax.machine.mesh import make_mesh
from dawnjax.optim.optimizers import whitening_learns
from dawnjax.train_step import make_recipe

ON_IMAGES = [
    name
    for name in experiment_names()
    if not isinstance(load_experiment(name).data, ParallelText)  # those need a prepared corpus
]


@pytest.mark.parametrize("name", ON_IMAGES)
def test_the_tiny_variant_takes_two_steps_and_evaluates_on_four_devices(
    name, tmp_path, compile_cache, capsys
):
    run_dir = tmp_path / "run"
    status = main(
        [
            *("train", f"--experiment={name}", "--tiny", "--profile.after_run=false"),
            *(f"--run_dir={run_dir}", compile_cache),
        ]
    )
    assert status in (0, 3), capsys.readouterr().err
    result = json.loads((run_dir / "result.json").read_text())
    last = result["evaluations"][-1]
    tiny = load_experiment(name, is_tiny=True)
    assert last["step"] == tiny.num_steps(tiny.data.spec()) and math.isfinite(last["loss"])
    made = json.loads((run_dir / "experiment.json").read_text())["experiment"]
    assert made["compute_dtype"] == load_experiment(name).compute_dtype
    assert made["optimizer"]["tag"] == load_experiment(name).optimizer.TAG


@pytest.mark.parametrize(
    ("name", "spec", "num_params"),
    [
        ("imagenet_resnet50", IMAGENET, 25_557_032),
        ("imagenet_resnet50_mlperf", IMAGENET, 25_557_032),
        ("imagenet_amoebanet_d", IMAGENET, 46_758_756),
        ("cifar10_resnet18", CIFAR10, 11_173_962),
        ("cifar10_wide_resnet34", CIFAR10, 16_631_130),
        ("cifar10_resnet164", CIFAR10, 1_703_258),
        ("cifar10_record", CIFAR10, 1_971_640),
        ("cifar10_speedrun", CIFAR10, 1_971_640),
    ],
)
def test_the_full_size_is_valid_and_has_its_parameters(name, spec, num_params):
    experiment = load_experiment(name)
    experiment.validate(spec)
    assert from_json(Experiment, to_json(experiment)) == experiment
    recipe = make_recipe(experiment, spec, make_mesh(MeshShape(), jax.devices()[:4]))
    state = jax.eval_shape(recipe.initial_state, jax.random.key(0))
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state.params)) == num_params


def test_the_model_flops_of_resnet_50_are_the_published_ones():
    mesh = make_mesh(MeshShape(), jax.devices()[:1])
    recipe = make_recipe(load_experiment("imagenet_resnet50"), IMAGENET, mesh)
    assert recipe.train_flops_per_example() == pytest.approx(24.1e9, rel=0.03)


def test_a_whitenings_bias_learns_for_its_epochs_alone():
    record = load_experiment("cifar10_record")
    half = dataclasses.replace(record, compute_dtype="float16")

    def learns(experiment, step):
        return bool(whitening_learns(experiment, CIFAR10, jnp.int32(step)))

    # Three epochs of 25 steps.
    assert [learns(record, step) for step in (0, 74, 75, 199)] == [True, True, False, False]
    # A step that overflows is not counted by the optimizer; another optimizer has no such rate.
    assert learns(half, 199)
    assert learns(dataclasses.replace(record, optimizer=Sgd(base_learning_rate=0.1)), 199)
