"""Object detection: the choice of detections, initialization, and what infer draws."""

import functools
import json
from typing import Any, cast

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import convolution, halved
from networks import count, recipe_of
from task_table import copied_run

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.input_pipeline.datasets.coco import Coco
from dawnjax.optim.optimizers import learning_rate
from dawnjax.runs import kept_pictures
from dawnjax.tasks import pictures
from dawnjax.tasks.detection import DetectionSearch, detections

COCO = Coco(corpus="coco2017", evaluates_empty=False, train_height=510, train_width=510)


@pytest.mark.compiles
def test_detections_by_hand():
    corners = jnp.array([[0.0, 0, 1, 1], [0, 0, 1, 0.5], [0, 0, 1, 0.49], [0.5, 0.5, 1, 1]])
    scores = jnp.array([[0.9, 0.1], [0.8, 0.04], [0.7, 0.5], [0.05, jnp.nan]])

    def detected(**limits):
        search = functools.partial(detections, DetectionSearch(**limits))
        return np.asarray(jax.jit(search)(corners, scores))

    found = detected(most=6, most_a_class=4)
    # Of the first class, box 1 overlaps box 0 by exactly a half and goes, box 2 by less; box 3 is
    # not above 0.05. Of the second, boxes 2 and 0 stay; no number is not a score.
    wanted = [(0, 0.9, 1), (2, 0.7, 1), (2, 0.5, 2), (0, 0.1, 2)]
    assert [(round(float(s), 4), int(c)) for s, c in found[:4, 4:]] == [w[1:] for w in wanted]
    np.testing.assert_array_equal(found[:4, :4], corners[jnp.array([w[0] for w in wanted])])
    assert not found[4:].any()
    np.testing.assert_allclose(detected(most=1, most_a_class=1), found[:1])


@pytest.mark.parametrize("name", ["coco_ssd_resnet34", "coco_ssd_resnet34_v05"])
def test_the_benchmark_has_the_references_size_and_schedule(name):
    experiment, spec = load_experiment(name), cast(Any, COCO.published_spec())
    experiment.validate(spec)
    assert count(recipe_of(experiment, spec).abstract_state.params) == 19_972_534
    batch = experiment.global_batch_size
    evaluations = [step * batch / 32 for step in experiment.evaluation_steps(spec)]
    wanted = [120_000, 140_000, 160_000, 180_000, 200_000, 220_000, 240_000]
    np.testing.assert_allclose(evaluations, wanted, atol=2 * batch / 32)
    rate = learning_rate(experiment, spec)
    peak = {960: 0.0875, 32: 1e-3}[batch]
    for iteration, factor in ((100_000, 1), (159_000, 1), (161_000, 0.1), (201_000, 0.01)):
        assert np.asarray(rate(iteration * 32 // batch)) == pytest.approx(peak * factor, rel=1e-5)


def ssd_multiply_adds() -> int:
    total = convolution((300, 300), (150, 150), 7, 2, (3, 64))
    sides, width = (75, 75), 64
    for blocks, out, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 1)):
        for block in range(blocks):
            moves = stride if block == 0 else 1
            after = halved(sides) if moves == 2 else sides
            total += convolution(sides, after, 3, moves, (width, out))
            total += convolution(after, after, 3, 1, (out, out))
            total += convolution(sides, after, 1, moves, (width, out)) if width != out else 0
            sides, width = after, out
    maps = [(sides, width)]
    for inner, out, stride in ((256, 512, 2), (256, 512, 2), (128, 256, 2), *[(128, 256, 1)] * 2):
        after = halved(sides) if stride == 2 else (sides[0] - 2, sides[1] - 2)
        total += convolution(sides, sides, 1, 1, (width, inner))
        total += convolution(sides, after, 3, stride, (inner, out), pad=stride - 1)
        sides, width = after, out
        maps.append((sides, width))
    for (sides, width), boxes in zip(maps, (4, 6, 6, 6, 4, 4), strict=True):
        total += convolution(sides, sides, 3, 1, (width, boxes * (4 + 81)))
    return total


def test_the_model_flops_of_ssd_by_hand():
    recipe = recipe_of(load_experiment("coco_ssd_resnet34"), COCO.published_spec(), platform="tpu")
    assert recipe.train_flops_per_example() == 3 * 2 * ssd_multiply_adds()


def test_a_picture_shows_true_and_found_boxes():
    image = np.zeros((240, 480, 3), np.uint8)
    found = np.array([[0.25, 0.25, 0.5, 0.75, 0.9, 2], [0.0, 0.0, 0.1, 0.1, 0.1, 1]])
    picture = pictures.drawn(image, found, np.array([[0.5, 0.5, 0.75, 1.0]]), ("a", "b"))
    assert picture.shape == (480, 960, 3)
    assert picture[300, 240].tolist() == [0, 190, 255]  # the left side of the found box
    assert picture[400, 480].tolist() == [255, 255, 255]
    assert not picture[:40, :40].any()  # its score is too low


@pytest.mark.compiles
def test_infer_draws_and_states_its_answers(tmp_path_factory, compile_cache, tmp_path, capsys):
    run = copied_run(tmp_path_factory, "object_detection", compile_cache, tmp_path / "run")
    folder = tmp_path / "pictures"
    assert main(["infer", str(run), "--examples=4", f"--draw={folder}"]) == 0
    assert f"drawn: 4 of 4 answers in {folder}" in capsys.readouterr().out
    stated = json.loads((folder / "answers.json").read_text())
    names = sorted(path.name for path in folder.glob("*.png"))
    assert names == sorted(f"{row['example']:06}.png" for row in stated) and len(names) == 4
    picture = cv2.imread(str(folder / names[0]))
    assert picture is not None and picture.shape == (480, 480, 3)
    kept, refused = kept_pictures.read(run)
    assert [f"{one.example:06}.png" for one in kept] == names and not refused
    found = [row for rows in stated for row in rows["answer"]]
    assert found and {row["class"] for row in found} <= {"red", "green", "blue"}
    scores = [row["score"] for row in stated[0]["answer"]]
    assert scores == sorted(scores, reverse=True)
