"""Labels, samples and mask targets of a two-stage detector: by hand, and by loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.tasks.region_targets import (
    Labels,
    Regions,
    anchor_labels,
    mask_targets,
    proposal_labels,
    sampled,
)

CONFIG = Regions()


def test_anchors_by_hand():
    corners = jnp.array([[10.0, 10, 20, 20], [40, 40, 44, 44], [0, 0, 0, 0]])
    classes = jnp.array([3, 1, 0])
    anchors = np.array(
        [
            [10, 10, 20, 18],  # overlaps the first object by 0.8
            [10, 10, 20, 15],  # by 0.5: left out
            [30, 10, 38, 20],  # overlaps nothing
            [36, 40, 48, 48],  # overlaps the second by 1/6, as the next one: its best
            [40, 36, 48, 48],
            [-2, 10, 20, 20],  # across the border
            [50, 50, 70, 62],  # beyond the image's width of 64
            [50, 54, 60, 64],  # beyond its height of 56
            [12, 10, 20, 15],  # by 0.4: left out
            [14, 10, 20, 14],  # by 0.24
        ],
        np.float32,
    )
    labels = anchor_labels(anchors, corners, classes, jnp.array([56.0, 64.0]), CONFIG)
    assert labels.is_positive.tolist() == [True, *[False] * 2, True, True, *[False] * 5]
    assert labels.is_negative.tolist() == [*[False] * 2, True, *[False] * 6, True]
    assert labels.objects[jnp.array([0, 3, 4])].tolist() == [0, 1, 1]
    none = anchor_labels(anchors, corners, classes * 0, jnp.array([56.0, 64.0]), CONFIG)
    assert not none.is_positive.any() and int(none.is_negative.sum()) == 7


def test_proposals_by_hand():
    corners = jnp.array([[0.0, 0, 10, 10], [0, 0, 0, 0]])
    proposals = jnp.array([[0.0, 0, 10, 5], [0, 0, 10, 4.9], [0, 0, 10, 10], [0, 0, 10, 10]])
    is_real = jnp.array([True, True, True, False])
    labels = proposal_labels(proposals, is_real, corners, jnp.array([2, 0]), 0.5)
    assert labels.is_positive.tolist() == [True, False, True, False]
    assert labels.is_negative.tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("positives", "negatives"), [(40, 200), (3, 200), (0, 200), (40, 5), (0, 0)]
)
def test_a_sample_has_its_counts_and_those_with_an_object_first(positives, negatives):
    random = np.random.default_rng(positives)
    order = random.permutation(300)
    is_positive, is_negative = np.zeros(300, bool), np.zeros(300, bool)
    is_positive[order[:positives]] = True
    is_negative[order[positives : positives + negatives]] = True
    labels = Labels(jnp.asarray(is_positive), jnp.asarray(is_negative), jnp.zeros(300, int))
    draws = random.uniform(size=300).astype(np.float32)
    sample = jax.jit(lambda draws: sampled(draws, labels, 64, 16))(draws)
    chosen = min(positives, 16)
    real = min(64, chosen + negatives)
    assert sample.is_positive.tolist() == [True] * chosen + [False] * (64 - chosen)
    assert sample.is_real.tolist() == [True] * real + [False] * (64 - real)
    places = np.asarray(sample.places)
    assert is_positive[places[:chosen]].all() and is_negative[places[chosen:real]].all()
    assert len(set(places[:real])) == real
    # The greatest draws are chosen, whatever the order of the candidates.
    wanted = set(np.flatnonzero(is_positive)[np.argsort(-draws[is_positive])[:16]])
    assert set(places[:chosen]) == wanted


def mask_by_loops(region, box, mask, side):
    """The pixel of the mask in which each point lies, without interpolation."""
    cells, result = len(mask), np.zeros((side, side))
    for row, column in np.ndindex(side, side):
        x = region[0] + (region[2] - region[0]) * (column + 0.5) / side
        y = region[1] + (region[3] - region[1]) * (row + 0.5) / side
        u, v = (x - box[0]) / (box[2] - box[0]) * cells, (y - box[1]) / (box[3] - box[1]) * cells
        if 0 <= u < cells and 0 <= v < cells:
            result[row, column] = mask[int(v), int(u)] >= 0.5
    return result


def test_mask_targets_are_the_mask_seen_through_a_region():
    box = np.array([10.0, 20, 50, 60])
    y, x = np.mgrid[:56, :56] + 0.5
    disc = ((x - 20) ** 2 + (y - 30) ** 2 < 15**2).astype(np.float64)
    regions = np.array([[10.0, 20, 50, 60], [0, 10, 60, 70], [20, 30, 40, 44], [70, 70, 90, 90]])
    targets = mask_targets(
        jnp.asarray(regions),
        jnp.asarray(np.tile(box, (4, 1))),
        jnp.asarray(np.tile(255 * disc, (4, 1, 1)), jnp.uint8),
        28,
    )
    assert set(np.unique(targets)) <= {0.0, 1.0}
    for region, target in zip(regions, np.asarray(targets), strict=True):
        wanted = mask_by_loops(region, box, disc, 28)
        # Interpolated, the rim may lie on the other side of a point.
        assert np.abs(target - wanted).mean() < 0.02
    assert targets[2].mean() > 0.5 and not targets[3].any()
    region, box = jnp.array([[0.0, 0, 30, 30]]), jnp.array([[10.0, 10, 20, 20]])
    full = mask_targets(region, box, jnp.full((1, 8, 8), 255, jnp.uint8), 30)
    # A mask that fills its box reaches to its sides.
    wanted = np.zeros((30, 30))
    wanted[10:20, 10:20] = 1
    np.testing.assert_array_equal(full[0], wanted)
