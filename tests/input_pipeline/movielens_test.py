"""MovieLens: its three forms, the split by time, and what is refused, with file and line."""

import gzip

import numpy as np
import packed
import pytest

from dawnjax.__main__ import main
from dawnjax.input_pipeline.datasets.movielens import KIND, MovieLens, RatingFacts
from dawnjax.input_pipeline.reading import columns

# User, item, time. User 7's two last ratings have one time; the later line is the later rating.
RATINGS = [
    (7, 30, 100),
    (2, 10, 50),
    (7, 10, 90),
    (2, 20, 40),
    (7, 20, 100),
    (2, 40, 45),
    (9, 40, 1),
    (9, 10, 2),
]


def in_form(form: str) -> bytes:
    separator = {"u.data": "\t", "ratings.dat": "::", "ratings.csv": ","}[form]
    lines = [separator.join(map(str, (user, item, 3.5, time))) for user, item, time in RATINGS]
    header = ["userId,movieId,rating,timestamp"] if form == "ratings.csv" else []
    return ("\n".join(header + lines) + "\n").encode()


def prepare(source, out) -> RatingFacts:
    assert packed.prepare("movielens", source, out) == 0
    return columns.read(out, KIND, RatingFacts).facts


@pytest.mark.parametrize(
    ("form", "packed", "mark"),
    [("u.data", False, b""), ("ratings.dat", True, b""), ("ratings.csv", True, b"\xef\xbb\xbf")],
)
def test_every_form_gives_the_same_split(form, packed, mark, tmp_path):
    content = mark + in_form(form)
    source = tmp_path / (form + ".gz" * packed)
    source.write_bytes(gzip.compress(content) if packed else content)
    facts = prepare(source, tmp_path / "out")
    assert str(facts) == "8 ratings of 4 items by 3 users"
    data = MovieLens(corpus="few", num_eval_negatives=2, data_dir=str(tmp_path / "out"))
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (5, 3)
    train, held_out = data.load("train"), data.load("eval")
    # Users 2, 7, 9 are 0, 1, 2; items 10, 20, 30, 40 are 0, 1, 2, 3.
    pairs = list(zip(train["user"].tolist(), train["item"].tolist(), strict=True))
    assert pairs == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 3)]
    assert held_out["user"].tolist() == [0, 1, 2]
    assert held_out["items"][:, 0].tolist() == [0, 1, 0]
    # Bits of what was trained on, and of the 28 places after the last item.
    after = 2**32 - 2**4
    assert np.asarray(train["seen"])[:, 0].tolist() == [
        after + mask for mask in (0b1010, 0b1010, 0b0101, 0b0101, 0b1000)
    ]
    unrated = {0: {2}, 1: {3}, 2: {1, 2}}
    for user, row in enumerate(held_out["items"][:, 1:]):
        assert {item for item in row.tolist() if item >= 0} <= unrated[user]


def test_other_sets_are_refused_before_a_run(tmp_path, capsys):
    (tmp_path / "u.data").write_bytes(in_form("u.data"))
    prepare(tmp_path / "u.data", tmp_path / "out")
    train = ["train", "--experiment=movielens_ml100k_neumf", f"--data.data_dir={tmp_path / 'out'}"]
    assert main([*train, f"--run_dir={tmp_path / 'run'}"]) == 2
    assert "100,000 ratings of 1,682 items by 943 users" in capsys.readouterr().err
