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
from dawnjax.input_pipeline.reading.dataset import Overlap


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
    line = "note: 3 of 4 images of the evaluation split are also in the training split"
    assert capsys.readouterr().out.splitlines()[1] == line
    declaration = Images(name="mine", data_dir=str(out)).spec().declaration
    assert declaration is not None
    assert declaration.overlap == Overlap(shared=3, compared=4, unit="images")


def test_whole_photographs(random, tmp_path, capsys):
    pytest.importorskip("tensorflow_datasets")
    source, out = tmp_path / "source", tmp_path / "out"
    for number, split in enumerate(("train", "train", "val")):
        folder = source / split / "cat"
        folder.mkdir(parents=True, exist_ok=True)
        image = random.integers(0, 256, (8, 8, 3), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), image)
    shutil.copy(source / "train" / "cat" / "0.png", source / "val" / "cat" / "again.jpg")
    flags = ["prepare", "--dataset=images", "--name=mine", f"--from={source}", f"--out={out}"]
    assert main([*flags, "--form=photographs"]) == 0
    assert (
        "note: 1 of 2 images of the evaluation split are also in the training"
        in capsys.readouterr().out
    )


def test_sentence_pairs(tmp_path, capsys):
    pytest.importorskip("sentencepiece")
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


def test_questions(tmp_path, capsys):
    file = tmp_path / "train.json"
    file.write_text(json.dumps(TRAIN))
    flags = [f"--from={file}", f"--eval_from={file}", f"--out={tmp_path / 'out'}"]
    assert main(["prepare", "--dataset=squad", *flags]) == 0
    count = sum(len(p["qas"]) for article in TRAIN["data"] for p in article["paragraphs"])
    assert f"note: {count} of {count} questions of the evaluation split" in capsys.readouterr().out


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
