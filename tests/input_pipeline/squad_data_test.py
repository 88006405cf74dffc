"""SQuAD's files: tokens, answers, what is kept, vectors, and what is refused, by article."""

import dataclasses
import gzip
import lzma

import numpy as np
import pytest
import small_questions
from small_questions import TRAIN

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.input_pipeline.datasets.squad import Squad, made, read_passages
from dawnjax.input_pipeline.reading.dataset import NO_FINGERPRINT, DataError, MissingDataError
from dawnjax.input_pipeline.reading.questions import PADDING, UNKNOWN, covering, spans_of
from dawnjax.input_pipeline.reading.word_vectors import read_vectors
from dawnjax.tasks.span_scores import scores


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("It cost $1,000.50, she said.", "It cost $ 1,000.50 , she said ."),
        ("Didn't Bob's dog -- they\u2019ll know", "Did n't Bob 's dog - - they \u2019ll know"),
        ("in 1970s (the U.S.)", "in 1970 s ( the U . S . )"),
        ("caf\u00e9 \u4e2d\u6587\u00a02.5%", "caf\u00e9 \u4e2d\u6587 2.5 %"),
        (" \n", ""),
    ],
)
def test_tokens(text, tokens):
    spans = spans_of(text)
    assert [text[a:b] for a, b in spans] == tokens.split()
    # Every character that is not white space is in one token.
    assert sum(b - a for a, b in spans) == len("".join(text.split()))
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False))


def test_an_answer_is_covered_by_whole_tokens():
    spans = spans_of("the 1970s are over")  # the 1970 s are over
    assert covering(spans, 4, 8) == (1, 1)
    assert covering(spans, 5, 9) == (1, 2)  # begins inside 1970
    assert covering(spans, 3, 9) == (1, 2)  # begins with a blank
    assert covering(spans, 9, 10) is None


def prepare(train, evaluated, out, **options) -> str:
    return made(read_passages(train), read_passages(evaluated), out).write(**options)[1]


@pytest.fixture
def prepared(tmp_path):
    """A prepared directory of the small questions; gives the dataset with other fields."""
    train, evaluated = small_questions.write(tmp_path)
    assert prepare(train, evaluated, tmp_path / "out") == "written"
    return lambda **fields: Squad(data_dir=str(tmp_path / "out"), **fields)


def test_what_is_prepared(prepared, tmp_path):
    data = prepared(context_length=20, question_length=8)
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (3, 2)
    assert spec.eval_context_length == 11
    train = {name: np.asarray(array) for name, array in data.load("train").items()}
    for name, (shape, dtype) in spec.example_shapes("train").items():
        assert (train[name].shape, train[name].dtype.name) == ((3, *shape), dtype)
    # Articles are sorted by title. In 1905 Ada did n't pay $ 1,000.50 for Bob 's house .
    assert train["start"].tolist() == [1, 7, 2] and train["end"].tolist() == [1, 7, 2]
    lengths = (train["context_characters"][..., 0] > 0).sum(1).tolist()
    assert lengths == [13, 13, 6]
    assert ((train["context"] > PADDING) == (train["context_characters"][..., 0] > 0)).all()
    # "house" is in both passages, by one number, and once in no question.
    assert train["context"][0, 11] == train["context"][2, 2] > UNKNOWN
    texts = data.evaluated_texts()
    assert texts.references == (("May 1932", "1932"), ("the king",))
    assert [texts.answer(0, 5, 6), texts.answer(1, 8, 9)] == ["May 1932", "the king"]
    assert texts.answer(0, -1, -1) is None
    evaluated = np.asarray(data.load("eval")["context"])
    # No training text has "bridge": it is the unknown word; "the" is none.
    assert evaluated[0, 1] == UNKNOWN and evaluated[0, 0] > UNKNOWN
    lengths = data.train_lengths()
    assert lengths.contexts.tolist() == [13, 13, 6]
    characters = train["context_characters"], train["question_characters"]
    counts = np.bincount(np.concatenate([(c > 0).sum(-1).reshape(-1) for c in characters]))
    assert (lengths.words[1 : len(counts)] == counts[1:]).all()
    assert lengths.words[0] == 0 and lengths.words.sum() == counts[1:].sum()


def test_what_is_left_out(prepared):
    data = prepared(context_length=10, question_length=3)
    assert data.spec().num_train_examples == 1  # both of article Ada are too long
    data = prepared(context_length=20, question_length=3, train_articles=1)
    assert data.spec().num_train_examples == 1  # one question is too long
    data = prepared(context_length=20, question_length=3, eval_context_length=6)
    spec, evaluated = data.spec(), data.load("eval")
    # To evaluate, all questions stay; passages and questions are cut.
    assert spec.num_eval_examples == 2 and evaluated["context"].shape == (2, 6)
    assert np.asarray(evaluated["question_characters"])[..., 0].all()
    with pytest.raises(ValueError, match="no question to train on is left"):
        prepared(context_length=2).spec()
    # The most frequent word alone has a row of its own.
    context = np.asarray(prepared(vocabulary_size=3).load("train")["context"])
    assert set(context.reshape(-1).tolist()) <= {0, 1, 2}
    fingerprints = {prepared().spec().fingerprint, prepared(eval_articles=1).spec().fingerprint}
    assert len(fingerprints) == 1  # the content is one; fields are part of the identity


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_packed_files_and_the_order_of_articles_give_the_same(pack, prepared, tmp_path):
    reversed_articles = {**TRAIN, "data": TRAIN["data"][::-1]}
    train, evaluated = small_questions.write(tmp_path, reversed_articles)
    train.write_bytes(pack(train.read_bytes()))
    assert prepare(train, evaluated, tmp_path / "out") == "unchanged"
    train.write_bytes(train.read_bytes()[:-9])
    with pytest.raises(DataError, match="damaged or incomplete"):
        read_passages(train)


def test_vectors(prepared, tmp_path, monkeypatch):
    file = tmp_path / "vectors.txt"
    # Some files begin with a byte-order mark, or end each line with a blank.
    file.write_text("\ufeffhouse 1 2 \nbob 0.5 -3\nBob 4 5\r\nunused x y\nada 0.25 1e-3 \n")
    vectors, known = read_vectors(file, ["house", "Bob", "Ada", "pay"])
    assert known == 3 and vectors.dtype == np.float16
    assert vectors.tolist() == [[1, 2], [4, 5], [0.25, float(np.float16(1e-3))], [0, 0]]
    data = prepared(word_vectors=str(file), context_length=20)
    spec = data.spec()
    assert (spec.vector_width, spec.vocabulary_size) == (2, 0)
    context = np.asarray(data.load("train")["context"])
    assert (context.shape, context.dtype.name) == ((3, 20, 2), "float16")
    assert context[2, 2].tolist() == [1, 2]  # The old house
    assert not context[2, 6:].any()
    before = spec.fingerprint
    file.write_text(file.read_text().replace("house 1 2", "house 1 3"))
    assert data.spec().fingerprint != before
    # A relative path is looked for where data sets are.
    monkeypatch.setenv("DAWNJAX_DATA", str(tmp_path))
    assert prepared(word_vectors="vectors.txt").spec().vector_width == 2


@pytest.mark.long
def test_the_whole_of_squad(test_data, tmp_path):
    files = [test_data / "squad" / f"{name}-v1.1.json.xz" for name in ("train", "dev")]
    if not files[0].exists():
        pytest.skip(f"{files[0]} is not here")
    prepare(files[0], files[1], tmp_path / "squad")
    data = Squad(data_dir=str(tmp_path / "squad"))
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (87_352, 10_570)
    assert spec.declaration is not None and spec.declaration.benchmark == "SQuAD"
    published = dataclasses.replace(Squad().published_spec(), fingerprint=spec.fingerprint)
    assert published == spec
    small = dataclasses.replace(load_experiment("squad_small").data, data_dir=data.data_dir)
    counted = small.spec()
    assert small.published_spec() == dataclasses.replace(counted, fingerprint=NO_FINGERPRINT)
    with pytest.raises(MissingDataError, match="known only from prepared data"):
        Squad(context_length=100).published_spec()
    part = Squad(data_dir=str(tmp_path / "squad"), eval_articles=8).spec()
    assert part.declaration is not None and not part.declaration.benchmark
    texts = data.evaluated_texts()
    # What spans of whole tokens can reach: an answer that is cut inside a token costs a little.
    spans = np.load(tmp_path / "squad" / "eval_spans.npy").tolist()
    covered = [texts.answer(row, start, end) for row, (start, end) in enumerate(spans)]
    matches, f1 = scores(covered, texts.references)
    assert 0.998 < matches < f1 < 1
