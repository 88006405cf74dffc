"""Instance segmentation: the benchmark's size and schedule, its trunk, masks, and turned images."""

import dataclasses
import math
import types
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from by_hand import convolution, resnet_50_trunk
from networks import PLAIN, count, recipe_of
from task_table import TABLE

from dawnjax.checkpointed.initial_parameters import Source
from dawnjax.checkpoints.arrays import by_path, signature
from dawnjax.checkpoints.saved import VERSION, Content
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.config.run_options import MeshShape
from dawnjax.evaluation import EvaluationFeed
from dawnjax.input_pipeline.datasets.synthetic import Synthetic, SyntheticObjects
from dawnjax.input_pipeline.reading import run_lengths
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.machine.mesh import batch_sharding, make_mesh, place
from dawnjax.optim.optimizers import learning_rate
from dawnjax.tasks import mask_pasting, pictures
from dawnjax.tasks.task import Moment, Setting, make_model

BENCHMARK = "coco_mask_rcnn_resnet50"
SMALL = parse_request("train", list(TABLE["instance_segmentation"].flags))[0].experiment


def test_the_benchmark_has_the_references_size_and_schedule():
    experiment = load_experiment(BENCHMARK)
    spec = cast(Any, experiment.data.published_spec())
    experiment.validate(spec)
    assert (spec.num_train_examples, spec.num_eval_examples) == (117_266, 5_000)
    recipe = recipe_of(experiment, spec)
    state = recipe.abstract_state
    assert count(state.params) == 44_347_573
    trained, frozen = recipe.split_params(state.params)
    assert count(trained) == 44_125_173 and count(frozen) == 222_400
    # Only what is trained has a velocity.
    assert count(optax.tree_utils.tree_get(state.opt_state, "trace")) == 44_125_173
    rate = learning_rate(experiment, spec)
    for iteration, wanted in (
        (0, 0.02 / 3),
        (250, 0.02 * 2 / 3),
        (500, 0.02),
        (59_990, 0.02),
        (60_010, 0.002),
        (80_010, 2e-4),
    ):
        assert np.asarray(rate(iteration)) == pytest.approx(wanted, rel=1e-4)
    assert experiment.num_steps(spec) == 90_000
    assert [target.value for target in experiment.targets] == [0.377, 0.339]


def test_biases_learn_at_twice_the_rate_and_without_decay():
    experiment = load_experiment(BENCHMARK)
    recipe = recipe_of(experiment)
    params = {"layer": {"kernel": jnp.full((2, 2), 2.0), "bias": jnp.full(2, 2.0)}}
    gradients = jax.tree.map(jnp.ones_like, params)
    state = recipe.optimizer.init(params)
    updates, _ = recipe.optimizer.update(gradients, state, params)
    updates = cast(dict[str, Any], updates)
    rate = 0.02 / 3
    np.testing.assert_allclose(updates["layer"]["kernel"], -rate * (1 + 1e-4 * 2), rtol=1e-5)
    np.testing.assert_allclose(updates["layer"]["bias"], -2 * rate, rtol=1e-6)


def mask_rcnn_multiply_adds() -> tuple[int, int]:
    """Multiply-adds of one image of 832 x 1,344 pixels, and of the part that is not trained."""
    total, stages = resnet_50_trunk((832, 1344))
    for sides, width, _ in stages:
        total += convolution(sides, sides, 1, 1, (width, 256))
        total += convolution(sides, sides, 3, 1, (256, 256))
    for sides in ((208, 336), (104, 168), (52, 84), (26, 42), (13, 21)):
        total += convolution(sides, sides, 3, 1, (256, 256)) + math.prod(sides) * 256 * (3 + 12)
    total += 512 * (7 * 7 * 256 * 1024 + 1024 * 1024 + 1024 * 81 + 1024 * 4 * 81)
    of_mask = 4 * convolution((14, 14), (14, 14), 3, 1, (256, 256))
    of_mask += 14**2 * 256 * 4 * 256 + 28**2 * 256 * 81
    return total + 128 * of_mask, stages[0][2]


def test_the_model_flops_of_mask_rcnn_by_hand():
    recipe = recipe_of(load_experiment(BENCHMARK), platform="tpu")
    total, frozen = mask_rcnn_multiply_adds()
    assert recipe.train_flops_per_example() == 2 * (3 * total - 2 * frozen)


def test_a_trunk_and_its_constants_come_from_a_resnet():
    experiment = load_experiment(BENCHMARK, is_tiny=True)
    recipe = recipe_of(experiment, experiment.data.spec())
    data = Synthetic(image_channels=3)
    source = load_experiment("imagenet_resnet50", is_tiny=True)
    source = dataclasses.replace(source, model=experiment.model.backbone, data=data)
    state = recipe_of(source, data.spec()).abstract_state
    names = by_path({"params": state.params, "batch_stats": state.batch_stats})
    record = {"experiment": {"model": {"tag": "resnet"}, "data": {}}}
    arrays = {name: signature(leaf) for name, leaf in names.items()}
    content = Content(version=VERSION, step=0, calls=0, metadata={}, arrays=arrays)
    chosen = Source(Path("run"), record, content, {}).choose(recipe)
    assert chosen["params/blocks/stage_2_block_1/conv_1/kernel"].startswith("params/blocks")
    assert chosen["batch_stats/stem_norm/scale"] == "params/stem_norm/scale"
    assert chosen["batch_stats/stem_norm/mean"] == "batch_stats/stem_norm/mean"
    anew = {name.split("/")[1] for name, taken in chosen.items() if not taken}
    assert anew == {"pyramid", "regions", "box_head", "mask_head"}
    # All that the source has, but for its classifier, was taken.
    assert set(names) - set(chosen.values()) == {
        "params/classifier/kernel",
        "params/classifier/bias",
    }


def test_a_pasted_mask_by_hand():
    square = np.full((4, 4), 255, np.uint8)
    packed = mask_pasting.pasted(square, np.array([0.25, 0.5, 0.75, 0.75]), 8, 16)
    wanted = np.zeros((8, 16), bool)
    wanted[4:6, 4:12] = True
    np.testing.assert_array_equal(run_lengths.unpack(packed, 8, 16), wanted)
    # Half of a mask, and a box that reaches beyond the image.
    square[:, 2:] = 0
    packed = mask_pasting.pasted(square, np.array([0.5, 0.0, 1.5, 1.0]), 4, 4)
    wanted = np.zeros((4, 4), bool)
    wanted[:, 2:] = True
    np.testing.assert_array_equal(run_lengths.unpack(packed, 4, 4), wanted)
    for corners in ([0.5, 0.5, 0.5, 0.9], [2.0, 0, 3, 1], [0.0, 0, 1, 1]):
        packed = mask_pasting.pasted(square * 0, np.array(corners), 4, 4)
        assert not run_lengths.unpack(packed, 4, 4).any()


def test_masks_are_pasted_for_found_objects_alone():
    detections = np.array([[[0.0, 0, 0.5, 0.5, 0.9, 1], [0.0, 0, 1, 1, 0, 0]]])
    masks = np.full((1, 2, 4, 4), 255, np.uint8)
    (packed,) = mask_pasting.masks_of_images(detections, masks, np.array([[6, 8]]))
    assert run_lengths.unpack(packed[0], 6, 8).sum() == 12 and packed[1] == b""


def test_a_picture_shows_the_mask_of_what_was_found():
    image, mask = np.zeros((480, 480, 3), np.uint8), np.zeros((480, 480), bool)
    mask[200:300, 100:200] = True
    found = np.array([[0.2, 0.4, 0.6, 0.8, 0.9, 1]])
    masks = [run_lengths.pack(mask)]
    picture = pictures.drawn(image, found, np.zeros((0, 4)), ("a",), masks=masks)
    assert picture[250, 150].tolist() == [127, 80, 0] and not picture[350, 150].any()


def test_an_evaluation_has_batches_of_one_kind():
    kinds = np.array([0, 1, 0, 0, 1, 0, 1], bool)
    spec = types.SimpleNamespace(num_eval_examples=7)
    shapes: Any = types.SimpleNamespace(eval_batch_size=3, placed=lambda *_: {}, spec=spec)
    feed = EvaluationFeed(shapes, make_mesh(MeshShape(), jax.devices()[:1]), {APART: kinds})
    batches = [jax.device_get(batch) for batch in feed]
    assert [b["index"][b["mask"]].tolist() for b in batches] == [[0, 2, 3], [5], [1, 4, 6]]
    # Padding is of the same kind.
    assert [set(batch[APART].tolist()) for batch in batches] == [{False}, {False}, {True}]


@pytest.mark.compiles
def test_a_turned_image_has_the_loss_and_the_detections_of_the_upright_one():
    data = SyntheticObjects(num_train_examples=4, height=48, width=32, mask_side=8)
    batch = {name: np.asarray(array) for name, array in data.load("train").items()}
    batch["covered"][0] = 40 / 48, 24 / 32
    batch |= {"index": np.arange(4), APART: np.ones(4, bool)}
    upright = data.spec()
    turned = dataclasses.replace(upright, image_shape=(32, 48, 3), turns_tall=True)
    assert turned.upright.image_shape == upright.image_shape
    setting = Setting(model=SMALL.model, data=data, spec=upright, execution=PLAIN)
    model = make_model(SMALL.task, setting)
    params, stats = model.init(jax.random.key(0))
    moment = Moment(jax.random.key(2), jnp.int32(0), jnp.float32(0))

    def results(spec: Any, batch: dict[str, Any]) -> tuple[Any, ...]:
        mesh = make_mesh(MeshShape(), jax.devices()[:1])
        of_spec = dataclasses.replace(setting, spec=spec, mesh=mesh)
        rows = batch_sharding(mesh, 0)

        @jax.jit
        def run(params, batch):
            module = model.bind(params, stats, jax.random.key(1))
            losses, _ = SMALL.task.loss(module, batch, moment, of_spec)
            return losses, SMALL.task.answer(module, batch, of_spec)

        return run(params, {name: place(array, rows) for name, array in batch.items()})

    wanted, answer = results(upright, batch)
    side = {**batch, "image": batch["image"].swapaxes(1, 2)}
    losses, turned_answer = results(turned, side)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert np.ptp(wanted) > 0
    for name in answer:
        np.testing.assert_allclose(turned_answer[name], answer[name], atol=1e-4)
    truth = data.evaluated_objects().of_images(np.array([0]))
    first = {name: np.asarray(array[:1]) for name, array in answer.items()}
    pictures = [
        SMALL.task.shown(truth, first, {name: array[:1] for name, array in arrays.items()})
        for arrays in ({**batch, APART: np.zeros(4, bool)}, side)
    ]
    np.testing.assert_array_equal(pictures[0], pictures[1])
