"""Synthetic images and text have the shapes asked for, never change, and can be learned."""

import zlib

import numpy as np
import pytest

from dawnjax.input_pipeline.datasets.synthetic import Synthetic, SyntheticText


def test_never_changes() -> None:
    """Recorded once: the raw output of Philox does not depend on NumPy's version."""
    examples = Synthetic(num_train_examples=64).load("train")
    assert zlib.crc32(examples["image"].tobytes()) == 2906344913


@pytest.mark.compiles
def test_splits_and_seeds_differ() -> None:
    train, evaluation = Synthetic().load("train"), Synthetic().load("eval")
    reseeded = Synthetic(seed=1)
    assert (train["image"][:256] != evaluation["image"]).mean() > 0.9
    assert (train["image"] != reseeded.load("train")["image"]).mean() > 0.9
    assert Synthetic().spec().fingerprint != reseeded.spec().fingerprint


def test_normalized_pixels_are_standard() -> None:
    data = Synthetic(
        num_train_examples=2000, image_height=16, image_width=16, image_channels=3, num_classes=200
    )
    spec = data.spec()
    normalized = (data.load("train")["image"] / 255 - spec.mean) / spec.std
    # 200 classes x 48 cells are 9,600 independent pattern values: their mean is within 0.03 of 0.
    assert abs(normalized.mean()) < 0.03 and abs(normalized.std() - 1) < 0.03


SMALL = SyntheticText(
    num_train_examples=40, num_eval_examples=9, pairs_per_row=2, most_words=5, vocabulary_size=13
)


def test_rows_hold_whole_pairs_side_by_side():
    arrays = SMALL.load("train")
    for tokens, segments in zip(arrays["source"], arrays["source_segments"], strict=True):
        (used,) = np.nonzero(segments)
        assert used.tolist() == list(range(len(used)))  # padding comes last
        assert (np.diff(segments[used].astype(int)) >= 0).all()
        assert (tokens[used][np.append(np.diff(segments[used]) > 0, True)] == 1).all()
        assert (tokens == 1).sum() == 2 and (tokens != 0).sum() == len(used)
    sources, targets = SMALL.train_pair_lengths()
    assert len(sources) == 80 and (sources == targets).all()
    assert (sources.min(), sources.max()) == (2, 6)  # 1 to 5 words, and the end


def test_each_word_has_one_partner_in_the_same_place():
    arrays = SMALL.load("train")
    sides = (arrays[side].ravel().tolist() for side in ("source", "target"))
    pairs = set(zip(*sides, strict=True))
    assert len(pairs) == 12  # ten words, the end, and padding
    assert {pair for pair in pairs if pair[0] == pair[1]} == {(0, 0), (1, 1)}


def test_text_is_encoded_and_decoded():
    words, references = SMALL.vocabulary(), SMALL.references()
    arrays = SMALL.load("eval")["target"]
    for row, text in zip(arrays, references, strict=True):
        tokens = words.encode([text])[0]
        np.testing.assert_array_equal(tokens, row[: len(tokens)])
        assert not row[len(tokens) :].any()
    assert words.encode(["w4 stranger"])[0].tolist() == [4, 2, 1]
    assert words.decode(np.array([[4, 0, 2, 5, 1, 6]])) == ["w4 w5"]


def test_text_never_changes():
    """Recorded once: the raw output of Philox does not depend on NumPy's version."""
    assert zlib.crc32(SMALL.load("train")["source"].tobytes()) == 2455363044
