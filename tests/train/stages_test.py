"""Stages of a run: image sizes and batches that change, from the arithmetic to a resumed run."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dataset_specs import CIFAR10
from made_logs import Log
from networks import recipe_of
from shared_runs import copied_once
from told import told
from trained import SMALL, evaluations_of, final_state_of, result_of

from dawnjax.__main__ import main
from dawnjax.config.experiment import Stages
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.config.run_options import MeshShape, RunOptions
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.augmentation.image_augmentation import ImageAugmentation, center_crop
from dawnjax.input_pipeline.reading.batches import ExampleOrder
from dawnjax.machine.mesh import make_mesh
from dawnjax.models.configs.amoebanet import AmoebaNetD
from dawnjax.optim.optimizers import learning_rate
from dawnjax.programs import compile_stages
from dawnjax.runs.logged_run import LoggedRun
from dawnjax.runs.rows import stage_rows
from dawnjax.runs.stages import (
    Span,
    examples_before,
    make_spans,
    span_of_last,
    span_of_next,
    step_of_epoch,
)
from dawnjax.stops import Stops, Wish
from dawnjax.tasks.classification import Classification, ImageStages
from dawnjax.train_step import make_recipe

SPEC = dataclasses.replace(CIFAR10, num_train_examples=1000, num_eval_examples=50)
BASE = dataclasses.replace(
    load_experiment("synthetic_image"),
    num_epochs=4.0,
    global_batch_size=64,
    task=Classification(augmentation=ImageAugmentation(crop_pixels=16)),
)


def test_steps_examples_and_epochs_are_those_counted_by_hand():
    # 1,000 examples: 1.5 epochs in batches of 64 are 24 steps (1,536 examples, 36 too many);
    # 464 more to epoch 2 are 12 steps of 40 (2,016); 1,984 more to epoch 4 are 100 of 20 (4,016).
    spans = make_spans((1.5, 2.0), (64, 40, 20), 4.0, 1000)
    assert [(span.first_step, span.last_step, span.first_example) for span in spans] == [
        (0, 24, 0),
        (24, 36, 1536),
        (36, 136, 2016),
    ]
    assert [examples_before(spans, step) for step in (0, 1, 24, 25, 36, 37, 136)] == [
        *(0, 64, 1536, 1576, 2016, 2036, 4016)
    ]
    # An epoch that a stage ends with ends with the stage; 3 epochs are 50 steps of the last.
    assert [step_of_epoch(spans, epoch, 1000) for epoch in (0, 1, 1.5, 1.52, 2, 3, 4, 9)] == [
        *(0, 16, 24, 24, 36, 86, 136, 136)
    ]
    assert [span_of_last(spans, step).index for step in (0, 1, 24, 25, 136)] == [0, 0, 0, 1, 2]
    assert [span_of_next(spans, step).index for step in (0, 23, 24, 36, 136, 500)] == [
        *(0, 0, 1, 2, 2, 2)
    ]


def test_a_killed_attempt_s_steps_count_with_their_seconds():
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").add("stage", 8.0, index=0)
    log.train(10.0, 10, 10).add("stage", 10.0, index=1).train(12.0, 20, 10)
    log.add("host_sample", 13.0)  # and killed
    spans = (Span(0, 0, 10, 0, 5), Span(1, 10, 40, 50, 5))
    record = {"spans": [{**dataclasses.asdict(span), "values": {}} for span in spans]}
    rows = stage_rows(record, LoggedRun.from_events(log.events))
    assert [(row["steps_made"], row["train_seconds"]) for row in rows] == [(10, 2.0), (10, 3.0)]


def test_a_batch_that_changes_goes_on_in_the_same_stream_of_examples():
    spans = make_spans((1.5, 2.0), (64, 40, 20), 4.0, 1000)
    order = ExampleOrder(seed=3, num_train_examples=1000)
    batches = []
    for step in range(136):
        span = span_of_next(spans, step)
        size = span.global_batch_size
        batches.append(order.batches(span.examples_before(step), 1, size).index[0])
    stream = ExampleOrder(seed=3, num_train_examples=1000).steps(0, 1, 4016)
    np.testing.assert_array_equal(np.concatenate(batches), stream.index[0])


def test_the_rates_of_the_progressive_recipe_are_its_sources():
    experiment = load_experiment("imagenet_resnet50_progressive")
    spec = dataclasses.replace(SPEC, num_train_examples=1_281_167, image_shape=(256, 256, 3))
    experiment.validate(spec)
    spans = experiment.spans(spec)
    assert [span.global_batch_size for span in spans] == [4096, 1792, 1024]
    # The epochs, and the rates that `one_machine` gives there; 2.5 epochs are half the warm-up.
    for epoch, rate in (
        *((0, 1.0), (2.5, 1.5), (4.99, 2.0), (5.01, 1.0), (13.9, 1.0), (14.01, 224 / 512)),
        *((15.99, 224 / 512), (16.01, 22.4 / 512), (26.99, 22.4 / 512), (27.01, 2.24 / 512)),
        *((31.9, 2.24 / 512), (32.01, 1.28 / 512), (32.99, 1.28 / 512), (33.01, 0.128 / 512)),
        (34.99, 0.128 / 512),
    ):
        step = step_of_epoch(spans, epoch, spec.num_train_examples)
        span = span_of_next(spans, step)
        schedule = learning_rate(experiment.in_stage(span.index), spec, span.step_shift)
        np.testing.assert_allclose(schedule(step), rate, rtol=2e-3, err_msg=str(epoch))
    tasks: list[Any] = [experiment.in_stage(index).task for index in range(3)]
    sides = [task.augmentation for task in tasks]
    assert [(a.crop_pixels, a.crop_min_area) for a in sides] == [
        (128, 0.08),
        (224, 0.08),
        (288, 0.5),
    ]


@pytest.mark.compiles
def test_what_cannot_change_is_refused():
    spec = dataclasses.replace(SPEC, image_shape=(200, 200, 3))
    # Its auxiliary head has a kernel as large as what it sees.
    experiment = dataclasses.replace(
        BASE,
        model=AmoebaNetD(num_cells=3, num_filters=16, stem_width=4),
        task=Classification(
            augmentation=ImageAugmentation(crop_pixels=136),
            stages=ImageStages(crop_pixels=(200,)),
        ),
        stages=Stages(boundary_epochs=(1.0,)),
    )
    experiment.validate(spec)
    mesh = make_mesh(MeshShape(), jax.devices()[:1])
    recipes = tuple(make_recipe(experiment, spec, mesh, index) for index in range(2))
    with pytest.raises(ConfigError, match="amoebanet_d has other parameters with crop_pixels=200"):
        compile_stages(recipes, RunOptions(), lambda *_: None)


@pytest.mark.compiles
def test_an_evaluation_sees_the_middle_resized():
    images = jnp.arange(64, dtype=jnp.uint8).reshape(1, 8, 8, 1)
    plain = center_crop(ImageAugmentation(crop_pixels=4), images)
    same = center_crop(ImageAugmentation(crop_pixels=4, center_fraction=0.5), images)
    np.testing.assert_array_equal(plain, same)
    # The middle 4x4 halved: bilinear with a support of two pixels either side, so weights of
    # 3/7, 3/7, 1/7 at the border, of values that are linear in row and column.
    half = center_crop(ImageAugmentation(crop_pixels=2, center_fraction=0.5), images)
    places = np.array([(0 * 3 + 1 * 3 + 2 * 1) / 7, (3 * 3 + 2 * 3 + 1 * 1) / 7]) + 2
    np.testing.assert_allclose(half[0, ..., 0], 8 * places[:, None] + places, rtol=1e-5)
    # Enlarged to twice its size: between the centres of pixels; the border's pixel beyond them.
    twice = center_crop(ImageAugmentation(crop_pixels=8, center_fraction=0.5), images)
    places = np.array([0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]) + 2
    np.testing.assert_allclose(twice[0, ..., 0], 8 * places[:, None] + places, rtol=1e-5)


STAGED = [
    *SMALL,
    "--data.num_eval_examples=50",
    "--data.image_height=20",
    "--data.image_width=20",
    "--schedule.warmup_epochs=0.5",
    "--task.augmentation.crop_pixels=12",
    "--task.augmentation.center_fraction=0.8",
    "--stages.boundary_epochs=1.5",
    "--task.stages.crop_pixels=20",
    "--task.stages.crop_min_area=0.5",
    "--stages.global_batch_size=32",
    "--optimizer.reference_batch_size=16",
    "--targets.0.value=1.0",
    "--steps_per_call=1",
]
LAST_STEP = 14  # 9 steps of 16 to epoch 1.5, then 4.5 of 32: five


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, compile_cache: str) -> Path:
    flags = ["--profile.after_run=true", "--profile.measured_peaks=false", "--profile.seconds=0.05"]

    def make(folder: Path) -> None:
        run_dir = f"--run_dir={folder / 'run'}"
        assert main(["train", *STAGED, *flags, compile_cache, run_dir]) == 3

    return copied_once(tmp_path_factory, "staged", make) / "run"


@pytest.mark.compiles
def test_a_run_in_two_stages_gives_the_figures_of_each(uninterrupted):
    result = result_of(uninterrupted)
    assert result["steps"] == LAST_STEP
    assert result["epochs"] == round((9 * 16 + 5 * 32) / 96, 6)
    assert [row["step"] for row in result["evaluations"]] == [6, 11, 14]
    first, second = result["stages"]
    assert (first["first_step"], first["last_step"], first["crop_pixels"]) == (0, 9, 12)
    assert (second["first_step"], second["last_step"], second["crop_pixels"]) == (9, 14, 20)
    assert (first["crop_min_area"], second["crop_min_area"]) == (0.08, 0.5)
    assert (first["steps_made"], second["steps_made"]) == (9, 5)
    for row in (first, second):
        examples = row["steps_made"] * row["global_batch_size"]
        assert row["examples_per_second"] == pytest.approx(examples / row["train_seconds"], 1e-3)
    seconds = first["train_seconds"] + second["train_seconds"]
    assert seconds == pytest.approx(result["train_seconds"], rel=0.02)
    rate = (9 * 16 + 5 * 32) / result["train_seconds"]
    assert result["examples_per_second"] == pytest.approx(rate, rel=1e-4)
    assert result["global_batch_size"] is None
    assert "changes in the run" in result["reasons"]["global_batch_size"]
    assert {"train", "train_2", "evaluate", "evaluate_2"} <= set(result["compile_cache"])


@pytest.mark.compiles
def test_the_profile_is_that_of_the_stage_it_was_taken_in(uninterrupted):
    used = result_of(uninterrupted)["hosts"][0]["utilization"]
    assert used["stage"] == {
        "number": 2,
        "global_batch_size": 32,
        "crop_pixels": 20,
        "crop_min_area": 0.5,
    }
    made = json.loads((uninterrupted / "experiment.json").read_text())["experiment"]
    assert made["task"]["stages"]["crop_pixels"] == [20]
    spec = dataclasses.replace(SPEC, image_shape=(20, 20, 1), mean=(0.5,), std=(0.25,))
    model: Any = dataclasses.replace(BASE.model, stage_sizes=(1,), stage_widths=(8,))
    task = Classification(augmentation=ImageAugmentation(crop_pixels=20))
    second = dataclasses.replace(BASE, model=model, task=task)
    recipe = recipe_of(second, spec)
    # A quarter of the batch on each of four devices.
    assert used["model_flops_per_step"] == recipe.train_flops_per_example() * 32 / 4


@pytest.mark.compiles
def test_resumed_in_any_stage_it_ends_the_same(
    uninterrupted, tmp_path, compile_cache, monkeypatch, kept_programs
):
    """Bit for bit, after a stop in the first stage, at the boundary and in the second."""
    run_dir = tmp_path / "run"
    command = ["train", *STAGED, compile_cache, f"--run_dir={run_dir}"]
    begun = 0
    for stop in (4, 9, 12):
        with monkeypatch.context() as patched:
            calls = itertools.count(begun + 1)  # of one step each
            patched.setattr(
                Stops,
                "after_call",
                lambda *_, calls=calls, stop=stop: Wish.INTERRUPT * (next(calls) == stop),
            )
            assert main(command) == 5
        begun = stop
        assert result_of(run_dir)["steps"] == stop
    assert main(command) == 3
    assert evaluations_of(run_dir) == evaluations_of(uninterrupted)
    (step, state), (wanted_step, wanted) = final_state_of(run_dir), final_state_of(uninterrupted)
    assert step == wanted_step == LAST_STEP
    np.testing.assert_array_equal(state, wanted)
    # A checkpoint is evaluated at the size that the run had there.
    assert sum(row["steps_made"] for row in result_of(run_dir)["stages"]) == LAST_STEP


@pytest.mark.compiles
def test_a_checkpoint_of_a_staged_run_is_evaluated_as_in_the_run(uninterrupted, capsys):
    row = told(capsys, "evaluate", str(uninterrupted))
    last = result_of(uninterrupted)["evaluations"][-1]
    assert (row["step"], row["own"]["metrics"]["top_1_accuracy"]) == (
        last["step"],
        last["top_1_accuracy"],
    )
