"""Tall images on their side: in batches of their own, and learnt from as they stand."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import PLAIN
from task_table import TABLE

from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.run_options import MeshShape
from dawnjax.evaluation import EvaluationFeed
from dawnjax.input_pipeline.datasets.synthetic import SyntheticObjects
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.machine.mesh import batch_sharding, make_mesh, place
from dawnjax.tasks.task import Moment, Setting, make_model

SMALL = parse_request("train", list(TABLE["instance_segmentation"].flags))[0].experiment


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
