"""Matching and loss of a single-shot detector: by hand, and against loops over boxes in NumPy."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from by_hand import overlap_of

from dawnjax.models import boxes as box_geometry
from dawnjax.tasks import multibox


def matched_by_loops(defaults, objects, classes):
    """For each default box the number of its object, or -1."""
    chosen = []
    for default in defaults:
        overlaps = [overlap_of(box, default) for box in objects]
        best = int(np.argmax(overlaps))
        chosen.append(best if overlaps[best] > 0.5 else -1)
    for number, box in enumerate(objects):
        if classes[number]:
            chosen[int(np.argmax([overlap_of(box, default) for default in defaults]))] = number
    return chosen


def loss_by_loops(codes, logits, corners, classes, defaults, negatives):
    """Loss of one image divided by its positives, in the order of the reference's description."""
    real = classes > 0
    chosen = matched_by_loops(defaults, corners[real], classes[real])
    of_codes, entropies, total = 0.0, [], 0.0
    for place, number in enumerate(chosen):
        label = classes[real][number] if number >= 0 else 0
        row = logits[place]
        entropy = math.log(sum(math.exp(v - max(row)) for v in row)) + max(row) - row[label]
        if number < 0:
            entropies.append(entropy)
            continue
        total += entropy
        left, top, right, bottom = corners[real][number]
        dl, dt, dr, db = defaults[place]
        target = (
            ((left + right) / 2 - (dl + dr) / 2) / (dr - dl) / 0.1,
            ((top + bottom) / 2 - (dt + db) / 2) / (db - dt) / 0.1,
            math.log((right - left) / (dr - dl)) / 0.2,
            math.log((bottom - top) / (db - dt)) / 0.2,
        )
        for value, wanted in zip(codes[place], target, strict=True):
            error = abs(value - wanted)
            of_codes += 0.5 * error**2 if error < 1 else error - 0.5
    positives = len(chosen) - len(entropies)
    total += sum(sorted(entropies, reverse=True)[: negatives * positives])
    return (total + of_codes) / positives if positives else 0.0


def made_images(seed, images=3, boxes=40, objects=4, classes=5):
    random = np.random.default_rng(seed)

    def corners(count):
        sides = random.uniform(0.1, 0.5, (count, 2))
        places = random.uniform(0, 1, (count, 2)) * (1 - sides)
        return np.concatenate([places, places + sides], axis=1)

    defaults = corners(boxes)
    truth = np.stack([corners(objects) for _ in range(images)])
    labels = random.integers(1, classes + 1, (images, objects))
    labels[0, 2:] = 0  # padding
    truth[0, 2:] = 0
    codes = random.normal(size=(images, boxes, 4)) * 2
    logits = random.normal(size=(images, boxes, classes + 1)) * 3
    return defaults, truth, labels, codes, logits


@functools.partial(jax.jit, static_argnames="negatives")
def losses_of(defaults, truth, labels, codes, logits, negatives=3):
    matched = jax.vmap(lambda t, c: multibox.match(jnp.asarray(defaults), t, c, 0.5))(
        jnp.asarray(truth, jnp.float32), jnp.asarray(labels)
    )
    centred = box_geometry.to_centred(jnp.asarray(defaults, jnp.float32))
    targets = box_geometry.encode(matched.corners, centred, multibox.CODE_WEIGHTS)
    return multibox.image_losses(
        jnp.asarray(codes, jnp.float32),
        jnp.asarray(logits, jnp.float32),
        targets,
        matched.classes,
        negatives,
    )


def test_losses_are_those_of_loops_over_boxes():
    defaults, truth, labels, codes, logits = made_images(0)
    sums, positives = losses_of(defaults, truth, labels, codes, logits)
    wanted = [
        loss_by_loops(codes[i], logits[i], truth[i], labels[i], defaults, 3) for i in range(3)
    ]
    np.testing.assert_allclose(sums / positives, wanted, rtol=2e-5)


def test_of_two_objects_that_claim_one_box_the_later_has_it():
    defaults = jnp.array([[0.0, 0, 1, 1], [0.9, 0.9, 1, 1]])
    objects = jnp.array([[0.0, 0, 0.5, 0.5], [0.1, 0.1, 0.5, 0.5]])
    matched = multibox.match(defaults, objects, jnp.array([1, 2]), 0.5)
    assert matched.classes.tolist() == [2, 0]
    np.testing.assert_allclose(matched.corners[0], objects[1])


def test_a_box_is_matched_by_more_than_the_least_overlap():
    # The object covers the first box whole, and shares a half with the second.
    defaults, objects = jnp.array([[0.0, 0, 1, 1], [0, 0, 1, 0.5]]), jnp.array([[0.0, 0, 1, 1]])
    for least, classes in ((0.5, [3, 0]), (0.49, [3, 3])):
        assert multibox.match(defaults, objects, jnp.array([3]), least).classes.tolist() == classes


def test_an_image_without_objects_has_no_loss_and_no_gradient():
    defaults, truth, labels, codes, logits = made_images(3)
    labels[1], truth[1] = 0, 0

    def total(codes, logits):
        sums, positives = losses_of(defaults, truth, labels, codes, logits)
        return (sums / jnp.maximum(positives, 1)).sum()

    assert losses_of(defaults, truth, labels, codes, logits)[1][1] == 0
    gradients = jax.grad(total, (0, 1))(jnp.asarray(codes), jnp.asarray(logits))
    for gradient in gradients:
        assert np.isfinite(gradient).all()
        assert not gradient[1].any() and gradient[0].any()


def test_background_boxes_of_equal_loss_are_counted_exactly():
    # Two positives, one negative each: of ten equal boxes two enter, and not all of them.
    codes, logits = jnp.zeros((1, 12, 4)), jnp.zeros((1, 12, 3))
    classes = jnp.array([[1, 2] + [0] * 10])
    sums, positives = multibox.image_losses(codes, logits, codes, classes, 1)
    assert positives.tolist() == [2]
    np.testing.assert_allclose(sums, 4 * math.log(3), rtol=1e-6)
