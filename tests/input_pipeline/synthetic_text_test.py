"""Made-up parallel text has the shapes asked for, never changes, and each word has one partner."""

import zlib

import numpy as np
import pytest

from dawnjax.input_pipeline.datasets.synthetic import SyntheticText
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.limits import check_fields

SMALL = SyntheticText(
    num_train_examples=40, num_eval_examples=9, pairs_per_row=2, most_words=5, vocabulary_size=13
)


@pytest.mark.parametrize(("split", "count"), [("train", 40), ("eval", 9)])
def test_arrays_are_those_of_the_specification(split: Split, count):
    arrays = SMALL.load(split)
    shapes = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    assert shapes == {
        name: ((count, *shape), dtype)
        for name, (shape, dtype) in SMALL.spec().example_shapes(split).items()
    }
    assert all(array.max() < 13 for array in arrays.values())


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


def test_it_never_changes():
    """Recorded once: the raw output of Philox does not depend on NumPy's version."""
    assert zlib.crc32(SMALL.load("train")["source"].tobytes()) == 2455363044


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("vocabulary_size", 3, "lie in 4 to 65536"),
        ("pairs_per_row", 256, "lie in 1 to 255"),
        ("seed", -1, "be 0 or more"),
        ("most_words", 0, "be 1 or more"),
    ],
)
def test_wrong_values_are_one_line(field, value, limit):
    with pytest.raises(ValueError, match=f"data.{field}={value} must {limit}"):
        check_fields(SyntheticText(**{field: value}), "data.")
