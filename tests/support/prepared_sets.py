"""The data sets that `dawnjax prepare` makes, each from a small source, for what holds for all."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coco_sources
import cv2
import numpy as np
import small_questions
import small_text

from dawnjax.input_pipeline.datasets.cifar10 import Cifar10
from dawnjax.input_pipeline.datasets.coco import Coco
from dawnjax.input_pipeline.datasets.imagenet import ImageNet
from dawnjax.input_pipeline.datasets.images import Images
from dawnjax.input_pipeline.datasets.movielens import MovieLens
from dawnjax.input_pipeline.datasets.parallel_text import ParallelText
from dawnjax.input_pipeline.datasets.squad import Squad
from dawnjax.input_pipeline.datasets.token_shards import TokenShards


@dataclasses.dataclass(frozen=True)
class PreparedSet:
    """A set of the command.

    Attributes:
      dataset: Its name.
      write: Writes a source into a folder, or another one; returns the flags that prepare it.
      data: The data set that reads what was prepared.
      examples: Training examples of the source.
      needs: Packages that it is prepared with.
    """

    dataset: str
    write: Callable[[Path, bool], list[str]]
    data: Callable[[Path], Any]
    examples: int
    needs: tuple[str, ...] = ()


def cifar10(folder: Path, other: bool) -> list[str]:
    images = np.random.default_rng(other).integers(0, 256, (20, 32, 32, 3), np.uint8)
    labels = np.arange(20) % 10
    path = folder / "cifar10.npz"
    np.savez(path, train_x=images, train_y=labels, test_x=255 - images[:10], test_y=labels[:10])
    return [f"--from={path}"]


def photographs(folder: Path, other: bool) -> list[str]:
    for number in range(8):
        place = folder / "source" / ("train" if number < 6 else "val") / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        random, shape = np.random.default_rng(number), (40 + other, 50, 3)
        image = random.integers(0, 256, shape, np.uint8)
        (place / f"{number}.png").write_bytes(cv2.imencode(".png", image)[1].tobytes())
    return [f"--from={folder / 'source'}", "--image_side=32"]


def whole_photographs(folder: Path, other: bool) -> list[str]:
    return [*photographs(folder, other)[:1], "--form=photographs"]


def text(folder: Path, other: bool) -> list[str]:
    (folder / "text.txt").write_text("\n\n".join(f"document {n}" for n in range(40 + other)))
    return [f"--from={folder / 'text.txt'}", "--documents=blank_lines", "--eval_fraction=0.3"]


def named_photographs(folder: Path, other: bool) -> list[str]:
    return [*photographs(folder, other), "--name=pets"]


def ratings(folder: Path, other: bool) -> list[str]:
    lines = [f"{user}\t{item + user}\t3\t{item}" for user in range(5) for item in range(4 + other)]
    (folder / "u.data").write_text("\n".join(lines) + "\n")
    return [f"--from={folder / 'u.data'}"]


def sentences(folder: Path, other: bool) -> list[str]:
    flags = ["--vocabulary_size=330", "--row_length=24"]
    small_text.write(folder, seed=3 + other)
    for split in ("train", "eval"):
        flags += [f"--{split}_source={folder / split}.a", f"--{split}_target={folder / split}.b"]
    return flags


def questions(folder: Path, other: bool) -> list[str]:
    train = small_questions.TRAIN
    if other:
        train = small_questions.changed(train, "data", 0, title="Another")
        train["data"][0]["paragraphs"][0]["qas"][0]["question"] = "What fell?"
    files = small_questions.write(folder, train)
    return [f"--from={files[0]}", f"--eval_from={files[1]}"]


def objects(folder: Path, other: bool) -> list[str]:
    body = coco_sources.body()
    if other:
        body["annotations"][0]["bbox"] = [10, 2, 9, 4]
    source = coco_sources.write_source(folder / "source", json.loads(json.dumps(body)))
    flags = [f"--from={source}", "--name=cells", "--train_annotations=train.json"]
    return [*flags, "--eval_annotations=eval.json"]


SETS: dict[str, PreparedSet] = {
    "cifar10": PreparedSet("cifar10", cifar10, lambda out: Cifar10(data_dir=str(out)), 20),
    "imagenet": PreparedSet(
        "imagenet", photographs, lambda out: ImageNet(data_dir=str(out), image_side=32), 6
    ),
    "photographs": PreparedSet(
        "imagenet",
        whole_photographs,
        lambda out: ImageNet(data_dir=str(out), image_side=32),
        6,
        needs=("array_record", "tensorflow_datasets"),
    ),
    "images": PreparedSet(
        "images", named_photographs, lambda out: Images(name="pets", data_dir=str(out)), 6
    ),
    "movielens": PreparedSet(
        "movielens",
        ratings,
        lambda out: MovieLens(corpus="few", num_eval_negatives=2, data_dir=str(out)),
        15,
    ),
    "parallel_text": PreparedSet(
        "parallel_text",
        sentences,
        lambda out: ParallelText(
            corpus="few", vocabulary_size=330, row_length=24, data_dir=str(out)
        ),
        0,
        needs=("sentencepiece",),
    ),
    "squad": PreparedSet("squad", questions, lambda out: Squad(data_dir=str(out)), 3),
    "token_shards": PreparedSet(
        "token_shards",
        text,
        lambda out: TokenShards(sequence_length=16, data_dir=str(out)),
        0,
    ),
    "coco": PreparedSet(
        "coco",
        objects,
        lambda out: Coco(corpus="cells", height=20, width=30, data_dir=str(out)),
        3,
        needs=("hotcoco", "array_record", "tensorflow_datasets"),
    ),
}
