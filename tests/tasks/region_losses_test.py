"""Five losses of Mask R-CNN: each against loops in NumPy, on cases made by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.tasks import region_losses


def binary(logit, target):
    probability = 1 / (1 + math.exp(-logit))
    return -math.log(probability if target else 1 - probability)


def smooth(error, beta):
    return 0.5 * error**2 / beta if abs(error) < beta else abs(error) - 0.5 * beta


def mean_of(part):
    """Mean over the batch, as `image_losses` makes it."""
    return float(region_losses.image_losses([part]).mean())


def made(seed=0, images=3, anchors=10, regions=8, classes=4, side=5):
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.normal(size=shape).astype(np.float32) * 2  # noqa: E731
    is_real = random.uniform(size=(images, anchors)) < 0.8
    is_positive = is_real & (random.uniform(size=(images, anchors)) < 0.4)
    of_regions = random.uniform(size=(images, regions)) < 0.8
    labels = random.integers(0, classes + 1, (images, regions)) * of_regions
    labels[0] = 0  # an image without regions with an object
    return {
        "scores": normal(images, anchors),
        "codes": normal(images, anchors, 4),
        "targets": normal(images, anchors, 4) / 4,
        "is_positive": is_positive,
        "is_real": is_real,
        "logits": normal(images, regions, classes + 1),
        "class_codes": normal(images, regions, classes + 1, 4),
        "labels": labels,
        "region_targets": normal(images, regions, 4),
        "regions_are_real": of_regions,
        "masks": normal(images, regions, side, side),
        "mask_targets": (random.uniform(size=(images, regions, side, side)) < 0.5) * 1.0,
    }


def test_losses_of_anchors_are_those_of_loops():
    case = made()
    parts = region_losses.anchor_losses(
        *(case[name] for name in ("scores", "codes", "targets", "is_positive", "is_real"))
    )
    objectness = boxes = count = 0.0
    for place in np.argwhere(case["is_real"]):
        image, anchor = place
        count += 1
        objectness += binary(case["scores"][image, anchor], case["is_positive"][image, anchor])
        if case["is_positive"][image, anchor]:
            errors = case["codes"][image, anchor] - case["targets"][image, anchor]
            boxes += sum(smooth(float(error), 1 / 9) for error in errors)
    assert mean_of(parts[0]) == pytest.approx(objectness / count, rel=1e-5)
    assert mean_of(parts[1]) == pytest.approx(boxes / count, rel=1e-5)


def test_losses_of_boxes_are_those_of_loops():
    case = made(1)
    names = ("logits", "class_codes", "labels", "region_targets", "regions_are_real")
    parts = region_losses.box_losses(*(jnp.asarray(case[name]) for name in names))
    classes = boxes = count = 0.0
    for image, region in np.argwhere(case["regions_are_real"]):
        count += 1
        row, label = case["logits"][image, region].astype(float), case["labels"][image, region]
        classes += math.log(sum(math.exp(value) for value in row)) - row[label]
        if label:
            errors = (
                case["class_codes"][image, region, label] - case["region_targets"][image, region]
            )
            boxes += sum(smooth(float(error), 1.0) for error in errors)
    assert mean_of(parts[0]) == pytest.approx(classes / count, rel=1e-5)
    # Divided by all regions, not by those with an object.
    assert mean_of(parts[1]) == pytest.approx(boxes / count, rel=1e-5)


def test_the_loss_of_masks_is_that_of_loops():
    case = made(2)
    is_positive = case["labels"] > 0
    part = region_losses.mask_loss(case["masks"], case["mask_targets"], jnp.asarray(is_positive))
    values = [
        binary(logit, target)
        for image, region in np.argwhere(is_positive)
        for logit, target in zip(
            case["masks"][image, region].reshape(-1),
            case["mask_targets"][image, region].reshape(-1),
            strict=True,
        )
    ]
    assert mean_of(part) == pytest.approx(np.mean(values), rel=1e-5)


def test_a_batch_without_objects_has_no_loss_of_boxes_and_masks_and_no_gradient():
    case = made(3)
    none = jnp.zeros_like(jnp.asarray(case["labels"]))

    def total(codes, masks):
        parts = [
            region_losses.box_losses(
                jnp.asarray(case["logits"]), codes, none, case["region_targets"], none > 0
            )[1],
            region_losses.mask_loss(masks, case["mask_targets"], none > 0),
        ]
        return region_losses.image_losses(parts).mean()

    arrays = jnp.asarray(case["class_codes"]), jnp.asarray(case["masks"])
    value, gradients = jax.value_and_grad(total, (0, 1))(*arrays)
    assert value == 0
    assert all(np.isfinite(g).all() and not np.any(g) for g in gradients)


def test_losses_of_images_have_the_sum_of_the_means_as_their_mean():
    parts = [
        region_losses.Part(jnp.array([1.0, 2, 3, 0]), jnp.array([1.0, 1, 2, 0])),
        region_losses.Part(jnp.array([5.0, 0, 0, 1]), jnp.array([2.0, 2, 0, 0])),
    ]
    losses = region_losses.image_losses(parts)
    assert float(losses.mean()) == pytest.approx(6 / 4 + 6 / 4)
    np.testing.assert_allclose(losses, [4 / 4 + 20 / 4, 8 / 4, 12 / 4, 4 / 4])
