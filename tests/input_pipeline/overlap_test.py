"""Examples to evaluate that are in the training split too are counted, whatever the data are."""

import json
import shutil

import cv2
import numpy as np
import pytest
from small_questions import TRAIN

from dawnjax.__main__ import main
from dawnjax.input_pipeline.datasets.arrays import Arrays, ImageArrays
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.input_pipeline.datasets.images import Images
from dawnjax.input_pipeline.datasets.token_shards import TokenShards, shard_of
from dawnjax.input_pipeline.reading import overlap
from dawnjax.input_pipeline.reading.dataset import DataError, Overlap


@pytest.fixture
def random() -> np.random.Generator:
    """Numbers that are the same whichever tests ran before."""
    return np.random.default_rng(0)


def test_images_of_an_npz(random, tmp_path, capsys):
    images = random.integers(0, 256, (9, 6, 5, 3), np.uint8)
    evaluated = np.concatenate([images[:2], images[:1], 255 - images[:1]])
    parts = {"train_x": images, "train_y": np.arange(9) % 3}
    np.savez(tmp_path / "a.npz", **parts, test_x=evaluated, test_y=np.arange(4) % 3)
    out = tmp_path / "out"
    flags = ["prepare", "--dataset=images", "--name=mine", f"--from={tmp_path / 'a.npz'}"]
    assert main([*flags, f"--out={out}"]) == 0
    line = "note: 3 of 4 images to evaluate are in the training split too"
    assert capsys.readouterr().out.splitlines()[1] == line
    declaration = Images(name="mine", data_dir=str(out)).spec().declaration
    assert declaration is not None
    assert declaration.overlap == Overlap(shared=3, compared=4, unit="images")


def test_photographs_as_they_are(random, tmp_path, monkeypatch):
    for number, split in enumerate(("train", "train", "val")):
        folder = tmp_path / split / "cat"
        folder.mkdir(parents=True, exist_ok=True)
        image = random.integers(0, 256, (8, 8, 3), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), image)
    shutil.copy(tmp_path / "train" / "cat" / "0.png", tmp_path / "val" / "cat" / "again.jpg")
    data = Images(name="mine", data_dir=str(tmp_path), image_side=8)

    def counted() -> Overlap | None:
        declaration = data.spec().declaration
        return declaration and declaration.overlap

    assert counted() == Overlap(shared=1, compared=2, unit="images")
    few = {"most_bytes": 10}
    whole = overlap.shared_files
    monkeypatch.setattr(overlap, "shared_files", lambda *given: whole(*given, **few))
    assert counted() is None  # not compared, which is no 0


def test_sentence_pairs(tmp_path, capsys):
    pytest.importorskip("sentencepiece")
    words = [f"word{number} and {number * 7} others" for number in range(200)]
    for name, lines in (("train", words), ("eval", [*words[:3], "none of them"])):
        (tmp_path / f"{name}.a").write_text("\n".join(lines) + "\n")
        # A source sentence with another translation is no pair of both splits.
        (tmp_path / f"{name}.b").write_text("\n".join(lines).replace("word2 ", name) + "\n")
    flags = [
        f"--{split}_{side}={tmp_path / split}.{kind}"
        for split in ("train", "eval")
        for side, kind in (("source", "a"), ("target", "b"))
    ]
    sizes = ["--vocabulary_size=320", "--row_length=64", f"--out={tmp_path / 'out'}"]
    assert main(["prepare", "--dataset=parallel_text", *flags, *sizes]) == 0
    assert "note: 2 of 4 pairs to evaluate are in the training split" in capsys.readouterr().out


def test_questions(tmp_path, capsys):
    file = tmp_path / "train.json"
    file.write_text(json.dumps(TRAIN))
    flags = [f"--from={file}", f"--eval_from={file}", f"--out={tmp_path / 'out'}"]
    assert main(["prepare", "--dataset=squad", *flags]) == 0
    count = sum(len(p["qas"]) for article in TRAIN["data"] for p in article["paragraphs"])
    assert f"note: {count} of {count} questions to evaluate" in capsys.readouterr().out


def test_arrays_of_a_person():
    class Numbers(Arrays):
        def arrays(self, split):
            x = np.arange(4.0 if split == "train" else 2.0, dtype=np.float32)
            return {"x": x, "y": x * (1 if split == "train" else 2)}

    class Pictures(ImageArrays):
        def arrays(self, split):
            image = np.arange(4, dtype=np.uint8)[:, None, None, None].repeat(3, 3)
            return {"image": image, "label": np.arange(4) if split == "train" else np.zeros(4, int)}

    # An example is all of its arrays; a picture is the same whatever its label.
    for data, wanted in (
        (Numbers(), Overlap(shared=1, compared=2, unit="examples")),
        (Pictures(), Overlap(shared=4, compared=4, unit="images")),
    ):
        assert data.spec().declaration.overlap == wanted


def test_no_two_digits_are_equal():
    images = np.concatenate([Digits().load(split)["image"] for split in ("train", "eval")])
    assert len({image.tobytes() for image in images}) == 1797


def shards(directory, **streams) -> TokenShards:
    for name, tokens in streams.items():
        (directory / f"{name}.bin").write_bytes(shard_of(np.asarray(tokens)))
    return TokenShards(data_dir=str(directory), sequence_length=16)


def test_tokens_wherever_they_begin(random, tmp_path):
    train = random.integers(0, 256, 300_000)
    known = np.concatenate([random.integers(0, 256, 777), train[123_457:125_457]])
    declared = shards(tmp_path, a_train=train[:99], b_train=train[99:], val=known).spec()
    assert declared.declaration is not None and declared.declaration.overlap is not None
    found = declared.declaration.overlap
    # 2,000 tokens begin 1,873 passages of 128; one of 16 is compared.
    assert 80 < found.shared < 140 < found.compared < 190
    other = shards(tmp_path, val=random.integers(0, 256, 2777)).spec().declaration
    assert other is not None and other.overlap is not None and other.overlap.shared == 0


def test_large_shards_are_compared_whole(random, tmp_path, monkeypatch):
    monkeypatch.setattr("dawnjax.input_pipeline.datasets.token_shards.MOST_COMPARED_BYTES", 0)
    tokens = random.integers(0, 256, 500)
    declaration = shards(tmp_path, train=tokens, val=tokens).spec().declaration
    assert declaration is not None
    assert declaration.overlap == Overlap(shared=1, compared=1, unit="shards")
    # Of larger ones samples are compared, and that is said.
    monkeypatch.setattr("dawnjax.input_pipeline.datasets.token_shards.WHOLE_BYTES", 0)
    declaration = shards(tmp_path, train=tokens, val=tokens).spec().declaration
    assert declaration is not None
    assert declaration.overlap == Overlap(shared=1, compared=1, unit="shards (by samples)")


def test_a_shard_is_of_the_split_that_its_name_has_as_a_word(tmp_path):
    names = {"retrieval_train_1": 100, "Pretrain_Val_0": 20, "medieval-TRAINING-2": 60}
    spec = shards(tmp_path, **{name: np.arange(count) for name, count in names.items()}).spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (159 // 16, 2)
    with pytest.raises(DataError, match=r"train_val.bin: has both train and val in its name"):
        shards(tmp_path, train_val=np.arange(20)).spec()


def test_tokens_of_a_wide_vocabulary(random):
    train = random.integers(70_000, 128_256, 9_000, np.uint32)
    found = overlap.shared_passages([train], [np.concatenate([train[5_000:6_000], train[:64]])])
    assert found is not None and 0 < found.shared < found.compared
    # Tokens that are equal in their lower 16 bits are different ones.
    other = overlap.shared_passages([train % 2**16], [train])
    assert other is not None and other.shared == 0
