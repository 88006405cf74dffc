"""Masks as run lengths: COCO's text, there and back, by hand and against its own code."""

import numpy as np
import pytest

from dawnjax.input_pipeline.reading import run_lengths


def test_a_mask_by_hand():
    # Columns first: 2 zeros, 3 ones, 1 zero.
    mask = np.array([[0, 1], [0, 1], [1, 0]], bool)
    packed = run_lengths.pack(mask)
    assert run_lengths.counts_of(packed).tolist() == [2, 3, 1]
    assert packed == b"231"
    np.testing.assert_array_equal(run_lengths.unpack(packed, 3, 2), mask)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_there_and_back_as_pycocotools(share):
    masks = pytest.importorskip("pycocotools.mask", reason="needs pycocotools")
    random = np.random.default_rng(3)
    for height, width in ((1, 1), (3, 7), (200, 310)):
        mask = random.uniform(size=(height, width)) < share
        packed = run_lengths.pack(mask)
        assert packed == masks.encode(np.asfortranarray(mask, np.uint8))["counts"]
        np.testing.assert_array_equal(run_lengths.unpack(packed, height, width), mask)


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (b"23", "sum to 5, and 2x3 pixels are 6"),
        (b"2", "sum to 2"),
        (b"Q", "cut short"),
        (b"2\x00", "byte 1 of the run lengths is none"),
        (b"oooooooooooooo", "byte 11 of the run lengths is none"),
        (b"1O", "a run length is negative"),
        (run_lengths.packed_counts(np.array([2**50])), "a run length is endless"),
    ],
)
def test_damage_is_named(packed, message):
    with pytest.raises(ValueError, match=message):
        run_lengths.unpack(packed, 3, 2)
