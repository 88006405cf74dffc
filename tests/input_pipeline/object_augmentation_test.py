"""Crops, mirror images and colours of images with objects, by hand and against plain loops."""

import colorsys
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.input_pipeline.augmentation import object_augmentation
from dawnjax.input_pipeline.augmentation.image_augmentation import resized_rectangles
from dawnjax.input_pipeline.augmentation.object_augmentation import (
    ObjectAugmentation,
    augmented,
    crop_window,
    seen_through,
)

NO_CHANGE = ObjectAugmentation(
    crop="none", flip="none", brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0
)
PLAIN = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
BOXES = jnp.array([[0.1, 0.2, 0.5, 0.6], [0.6, 0.5, 0.9, 0.95], [0.0, 0.0, 0.0, 0.0]])
CLASSES = jnp.array([3, 1, 0])


@functools.cache
def windows(config, count=400):
    keys = jax.random.split(jax.random.key(5), count)
    cut = jax.jit(jax.vmap(lambda key: crop_window(config, key, BOXES, CLASSES)))
    return np.asarray(cut(keys))


def test_a_crop_has_a_size_a_shape_and_the_centre_of_an_object():
    found = windows(ObjectAugmentation())
    is_whole = (found == [0, 0, 1, 1]).all(axis=1)
    # One option of seven is no crop; it is drawn more often the more crops are rejected.
    assert 1 / 7 < is_whole.mean() < 0.9
    cropped = found[~is_whole]
    width, height = (cropped[:, 2:] - cropped[:, :2]).T
    assert width.min() >= 0.3 and height.min() >= 0.3 and cropped.min() >= 0 and cropped.max() <= 1
    assert (width / height).max() <= 2 and (width / height).min() >= 0.5
    centres = np.asarray(BOXES[:2, :2] + BOXES[:2, 2:]) / 2
    has = (centres > cropped[:, None, :2]) & (centres < cropped[:, None, 2:])
    assert np.any(np.all(has, axis=2), axis=1).all()


def test_the_condition_on_all_objects_is_the_stricter_one():
    strict, loose = (
        (windows(ObjectAugmentation(crop=crop)) != [0, 0, 1, 1]).any(axis=1).mean()
        for crop in ("all_objects", "any_object")
    )
    assert strict < loose


@pytest.mark.parametrize(
    ("condition", "least", "wanted"),
    [
        # The window has 0.49; the objects share 0.16 and 0.02 of it: 0.327 and 0.033.
        ("all_objects", 0.03, True),
        ("all_objects", 0.1, False),
        ("any_object", 0.3, True),
        ("any_object", 0.33, False),
        ("all_objects", -1.0, True),
    ],
)
def test_the_least_overlap_by_hand(condition, least, wanted):
    window = jnp.array([0.0, 0.0, 0.7, 0.7])
    is_good = object_augmentation.is_wanted(condition, BOXES, CLASSES, window, least)
    assert bool(is_good) == wanted


def test_objects_of_a_crop_by_hand():
    boxes, classes = seen_through(jnp.array([0.2, 0.3, 0.7, 0.8]), BOXES, CLASSES)
    # The first box's centre (0.3, 0.4) is inside, the second's (0.75, 0.725) is not.
    assert classes.tolist() == [3, 0, 0]
    np.testing.assert_allclose(boxes[0], [0, 0, 0.6, 0.6], atol=1e-6)
    assert not boxes[1:].any()


def test_rectangles_are_resized_as_by_opencv():
    import cv2

    random = np.random.default_rng(0)
    image = random.uniform(0, 255, (40, 60, 3)).astype(np.float32)
    whole = jnp.array([[0.0, 0.0, 1.0, 1.0], [0.25, 0.5, 0.75, 1.0]])
    larger = resized_rectangles(jnp.stack([image] * 2), whole, (80, 90))
    for rectangle, part in zip(larger, (image, image[20:, 15:45]), strict=True):
        wanted = cv2.resize(part, (90, 80), interpolation=cv2.INTER_LINEAR)
        # At the border of a part the image goes on; OpenCV repeats its last pixel.
        np.testing.assert_allclose(rectangle[4:-4, 4:-4], wanted[4:-4, 4:-4], atol=0.02)
    same = resized_rectangles(jnp.asarray(image[None]), whole[:1], (40, 60))
    np.testing.assert_allclose(same[0], image, atol=1e-3)


@functools.cache
def program(config, size):
    return jax.jit(functools.partial(augmented, config, size=size, **PLAIN))


def augment(config, keys, image=None):
    image = np.full((8, 10, 3), 100, np.uint8) if image is None else image
    count = len(keys)
    repeated = [jnp.stack([jnp.asarray(array)] * count) for array in (image, BOXES, CLASSES)]
    return program(config, image.shape[:2])(*repeated, keys=keys)


def test_a_mirror_image_mirrors_its_boxes_and_no_padding():
    image = np.zeros((8, 10, 3), np.uint8)
    image[1, 2] = 255
    keys = jax.random.split(jax.random.key(0), 32)
    config = dataclasses.replace(NO_CHANGE, flip="both")
    images, boxes, classes = (np.asarray(part) for part in augment(config, keys, image))
    kinds = set()
    for pixels, box, label in zip(images, boxes, classes, strict=True):
        row, column = np.argwhere(pixels[..., 0] == 1)[0]
        across, down = column == 7, row == 6
        assert (row, column) == (6 if down else 1, 7 if across else 2)
        wanted = np.asarray(BOXES[:2]).copy()
        if across:
            wanted[:, [0, 2]] = 1 - wanted[:, [2, 0]]
        if down:
            wanted[:, [1, 3]] = 1 - wanted[:, [3, 1]]
        np.testing.assert_allclose(box[:2], wanted, atol=1e-6)
        assert not box[2].any() and label.tolist() == [3, 1, 0]
        kinds.add((bool(across), bool(down)))
    assert len(kinds) == 4
    across_only = augment(dataclasses.replace(NO_CHANGE, flip="horizontal"), keys, image)[0]
    assert {int(np.argwhere(np.asarray(p)[..., 0] == 1)[0][0]) for p in across_only} == {1}


@pytest.mark.compiles
def test_an_image_depends_on_its_key_alone():
    keys = jax.random.split(jax.random.key(3), 4)
    image = np.random.default_rng(0).integers(0, 256, (8, 10, 3)).astype(np.uint8)
    together = augment(ObjectAugmentation(), keys, image)
    elsewhere = augment(ObjectAugmentation(), keys[jnp.array([2, 0, 0, 0])], image)
    for one, all_four in zip(elsewhere, together, strict=True):
        np.testing.assert_allclose(one[0], all_four[2], atol=1e-6)
    assert not np.array_equal(together[0][0], together[0][1])


def test_a_hue_turns_as_pythons_colorsys_has_it():
    pixels = np.random.default_rng(1).uniform(0, 1, (50, 3)).astype(np.float32)
    pixels[0], pixels[1] = (0.5, 0.5, 0.5), (1, 0, 0)
    for shift in (-0.2, 0.0, 0.03, 0.4):
        turned = object_augmentation.hue_turned(jnp.asarray(pixels), jnp.float32(shift))
        for before, after in zip(pixels, np.asarray(turned), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*before.tolist())
            wanted = colorsys.hsv_to_rgb((hue + shift) % 1, saturation, value)
            np.testing.assert_allclose(after, wanted, atol=2e-5)


@pytest.mark.parametrize("change", ["brightness", "contrast", "saturation"])
def test_a_change_of_colour_alone_by_hand(change):
    config = dataclasses.replace(NO_CHANGE, **{change: 0.5})
    image = np.random.default_rng(2).integers(60, 130, (6, 7, 3)).astype(np.uint8)
    keys = jax.random.split(jax.random.key(1), 6)
    images = np.asarray(augment(config, keys, image)[0])
    before = image / 255
    grey = before @ (0.299, 0.587, 0.114)
    middle = {
        "brightness": np.zeros_like(before),
        "contrast": np.full_like(before, grey.mean()),
        "saturation": np.broadcast_to(grey[..., None], before.shape),
    }[change]
    factors = set()
    for after in images:
        factor = ((after - middle) * (before - middle)).sum() / ((before - middle) ** 2).sum()
        np.testing.assert_allclose(after, middle + factor * (before - middle), atol=1e-4)
        assert 0.5 <= factor <= 1.5
        factors.add(round(float(factor), 4))
    assert len(factors) == 6
