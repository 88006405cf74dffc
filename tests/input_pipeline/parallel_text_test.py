"""Parallel text: vocabulary, packing, the prepared form, and how each goes wrong."""

import functools
import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dawnjax.__main__ import main
from dawnjax.input_pipeline.datasets import parallel_text
from dawnjax.input_pipeline.datasets.parallel_text import ParallelText
from dawnjax.input_pipeline.reading import packing
from dawnjax.input_pipeline.reading.dataset import DataError, num_bytes

pytest.importorskip("sentencepiece", reason="needs SentencePiece (pip install -e '.[text]')")
from dawnjax.input_pipeline.reading.vocabulary import END, PAD, Vocabulary, train_vocabulary

WORDS = [
    *("the", "a", "man", "woman", "dog", "red", "blue", "runs"),
    *("sits", "sees", "big", "small", "house", "tree", "über", "Straße"),
]


def sentences(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, 12))) for _ in range(count)]


@functools.cache
def trained() -> bytes:
    return train_vocabulary(sentences(300, 0), 330)


@pytest.mark.compiles
@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_text_comes_back_as_it_was(text):
    words = Vocabulary(trained())
    (tokens,) = words.encode([text])
    assert tokens[-1] == END and tokens.dtype == np.uint16 and PAD not in tokens
    assert words.decode(np.pad(tokens, (0, 3))[None].astype(np.int32)) == [text.replace("▁", " ")]


def test_the_same_text_gives_the_same_vocabulary():
    assert trained() == train_vocabulary(sentences(300, 0), 330)
    assert Vocabulary(trained()).size == 330


def test_decoding_ends_at_the_end():
    words = Vocabulary(trained())
    (tokens,) = words.encode(["a man runs"])
    after = np.concatenate([tokens, words.encode(["dog"])[0]])[None]
    assert words.decode(after) == ["a man runs"]
    assert words.decode(np.zeros((1, 4), np.int32)) == [""]


def test_a_vocabulary_larger_than_its_text_is_refused():
    with pytest.raises(DataError, match="no vocabulary of 5000 tokens can be trained") as small:
        train_vocabulary(["a b c"], 5000)
    # With the size that fits, in the words of SentencePiece.
    assert re.search(r"set it to a value <= \d+\.$", str(small.value))
    assert "\n" not in str(small.value)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 10)), max_size=80))
@settings(max_examples=100, deadline=None)
def test_every_pair_is_in_one_row_and_rows_hold_no_more_than_their_room(pairs):
    source = np.array([pair[0] for pair in pairs], int)
    target = np.array([pair[1] for pair in pairs], int)
    rows = packing.pack(source, target, 12, 10)
    assert sorted(index for row in rows for index in row) == list(range(len(pairs)))
    for row in rows:
        assert row and source[row].sum() <= 12 and target[row].sum() <= 10


def test_a_pair_that_fits_no_row_is_refused():
    with pytest.raises(ValueError, match="do not fit 1 to 12"):
        packing.pack(np.array([13]), np.array([2]), 12, 10)


def test_rows_have_room_in_proportion():
    assert packing.row_lengths(np.array([9, 9]), np.array([10, 14]), 64) == (48, 64)
    assert packing.row_lengths(np.array([10, 14]), np.array([9, 9]), 64) == (64, 48)


@pytest.mark.compiles
def test_three_percent_of_padding_on_real_text(test_data, tmp_path):
    folder = test_data / "translation" / "multi30k"
    corpus = parallel_text.Corpus(
        train_sources=(folder / "train.en.gz",),
        train_targets=(folder / "train.de.gz",),
        eval_source=folder / "test_2016_flickr.en.gz",
        eval_target=folder / "test_2016_flickr.de.gz",
        vocabulary_size=8000,
        row_length=64,
    )
    out = tmp_path / "multi30k"
    prepared, outcome = parallel_text.made(corpus, out).write()
    facts = prepared.facts
    assert outcome == "written"
    data = ParallelText(corpus="multi30k", vocabulary_size=8000, row_length=64, data_dir=str(out))
    spec, train = data.spec(), data.load("train")
    assert (spec.num_train_pairs, spec.num_eval_examples) == (29_000, 1_000)
    assert facts.num_too_long_pairs == facts.num_empty_pairs == 0
    padding = {side: float((train[side] == PAD).mean()) for side in ("source", "target")}
    assert max(padding.values()) <= 0.03  # seen: 0.0097 and 0.0088
    assert f"padding {padding['source']:.2%} and {padding['target']:.2%}" in str(facts)
    # Every sentence ends once, so the ends count the pairs; segments are beside their tokens.
    assert (train["source"] == END).sum() == (train["target"] == END).sum() == 29_000
    np.testing.assert_array_equal(train["source_segments"] > 0, train["source"] != PAD)
    np.testing.assert_array_equal(
        train["source_segments"].max(axis=1), train["target_segments"].max(axis=1)
    )


@pytest.fixture
def files(tmp_path):
    """Small text files, and the command line that prepares them."""
    for name, count, seed in (("train", 200, 1), ("eval", 11, 2)):
        text = "\n".join(sentences(count, seed)) + "\n"
        (tmp_path / f"{name}.en").write_text(text, encoding="utf8")
        (tmp_path / f"{name}.de.gz").write_bytes(
            gzip.compress(("\n".join(sentences(count, seed + 9)) + "\n").encode())
        )
    return tmp_path, [
        "prepare",
        "--dataset=parallel_text",
        f"--train_source={tmp_path / 'train.en'}",
        f"--train_target={tmp_path / 'train.de.gz'}",
        f"--eval_source={tmp_path / 'eval.en'}",
        f"--eval_target={tmp_path / 'eval.de.gz'}",
        "--vocabulary_size=330",
        "--row_length=40",
        f"--out={tmp_path / 'out'}",
    ]


def data_of(folder, **fields) -> ParallelText:
    defaults = {"corpus": "x", "vocabulary_size": 330, "row_length": 40}
    return ParallelText(**{**defaults, **fields}, data_dir=str(folder / "out"))


def test_a_vocabulary_that_was_trained_before_gives_the_same(files, capsys):
    folder, command = files
    assert main(command) == 0
    spec = data_of(folder).spec()
    again = [*command, f"--vocabulary={folder / 'out' / 'vocabulary.model'}"]
    assert main(again) == 0 and "already holds this" in capsys.readouterr().out
    assert main([*command[:-2], "--row_length=30", command[-1], "--overwrite"]) == 0
    data = data_of(folder, row_length=30)
    assert data.spec().fingerprint != spec.fingerprint
    arrays = [array for split in ("train", "eval") for array in data.load(split).values()]
    assert num_bytes(data.spec()) == sum(array.nbytes for array in arrays)


def test_pairs_that_are_empty_or_too_long_are_counted(files):
    folder, command = files
    lines = (folder / "train.en").read_text(encoding="utf8").splitlines()
    lines[3], lines[5] = "  ", "tree " * 100
    (folder / "train.en").write_text("\n".join(lines) + "\n", encoding="utf8")
    assert main(command) == 0
    description = json.loads((folder / "out" / "dataset.json").read_text())["facts"]
    assert description["num_empty_pairs"] == 1 and description["num_too_long_pairs"] == 1
    assert description["num_train_pairs"] == 198


def test_other_settings_are_named(files):
    folder, command = files
    assert main(command) == 0
    with pytest.raises(ValueError, match="data.vocabulary_size=400, but .* prepared with 330"):
        data_of(folder, vocabulary_size=400).spec()
    with pytest.raises(ValueError, match="data.row_length=64, but .* prepared with 40"):
        data_of(folder, row_length=64).spec()


def test_pairs_of_both_splits_are_counted(tmp_path, capsys):
    words = [f"word{number} and {number * 7} others" for number in range(200)]
    for name, lines in (("train", words), ("eval", [*words[:3], "none of them"])):
        (tmp_path / f"{name}.a").write_text("\n".join(lines) + "\n")
        # A source sentence with another translation is not a pair of both splits.
        (tmp_path / f"{name}.b").write_text("\n".join(lines).replace("word2 ", name) + "\n")
    flags = [
        f"--{split}_{side}={tmp_path / split}.{kind}"
        for split in ("train", "eval")
        for side, kind in (("source", "a"), ("target", "b"))
    ]
    sizes = ["--vocabulary_size=320", "--row_length=64", f"--out={tmp_path / 'out'}"]
    assert main(["prepare", "--dataset=parallel_text", *flags, *sizes]) == 0
    assert (
        "note: 2 of 4 pairs of the evaluation split are also in the training split"
        in capsys.readouterr().out
    )
