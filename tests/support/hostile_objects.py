"""Images with objects in COCO's form, made to exhaust time or memory; rows as in `hostile_data`."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coco_sources
import cv2
import numpy as np
from hostile_makers import Maker

OBJECTS = (
    "prepare --dataset=coco --name=mine --from={path} --train_annotations=train.json "
    "--eval_annotations=eval.json --out={out}"
)
SIDE = 8192
WIDE = [[0.0, 0.0, SIDE, 8000.0, SIDE, SIDE]]
"""An outline as long as an image of 67 million pixels is wide."""

PLACES = np.random.default_rng(0).uniform(0, 8000, (40_000, 1, 2)).round(1)
SPREAD = np.concatenate([PLACES, PLACES + [2, 0], PLACES + [2, 2]], axis=1).reshape(-1, 6).tolist()


def source(change: Callable[[dict[str, Any]], object]) -> Maker:
    def make(folder: Path) -> Path:
        train = coco_sources.body()
        change(train)
        return coco_sources.write_source(folder / "source", train)

    return make


def one_image(segmentation: object, objects: int = 1, side: int = SIDE) -> Maker:
    """Objects of 20 images, or one; the files have other sizes, which is said at the end."""

    def change(train: dict[str, Any]) -> None:
        images = min(objects, 20)
        train["images"] = [
            {"id": n, "file_name": f"{n:03}.png", "height": side, "width": side}
            for n in range(1, images + 1)
        ]
        rest = {"category_id": 7, "bbox": [0, 0, 9, 9], "segmentation": segmentation}
        train["annotations"] = [
            {"id": n, "image_id": n % images + 1, **rest} for n in range(objects)
        ]

    return source(change)


def large_images(folder: Path) -> Path:
    """Images of 400 MB together, each within what its pixels may take; the last is none."""
    train = coco_sources.body(images=41)
    for image in train["images"]:
        image |= {"file_name": f"{image['id']:03}.jpg", "height": 1000, "width": 1000}
    train["annotations"] = []
    made = coco_sources.write_source(folder / "source", train)
    content = cv2.imencode(".jpg", np.zeros((1000, 1000, 3), np.uint8))[1].tobytes()
    for n in range(1, 41):
        (made / "images" / f"{n:03}.jpg").write_bytes(content + bytes(10**7))
    (made / "images" / "041.jpg").write_bytes(b"no image")
    return made


def one_string(megabytes: int) -> Maker:
    """A text of so many MiB in a zip of a thousandth."""

    def make(folder: Path) -> Path:
        made = coco_sources.write_source(folder / "source")
        (made / "train.json").unlink()
        with (
            zipfile.ZipFile(made / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("train.json", "w") as file,
        ):
            file.write(json.dumps(coco_sources.body()).encode()[:-1] + b', "more": "')
            for _ in range(megabytes):
                file.write(b"a" * 2**20)
            file.write(b'"}')
        return made

    return make


def one_text(folder: Path) -> Path:
    made = coco_sources.write_source(folder / "source")
    (made / "train.json").write_bytes(b'{"images": [{"id": 1, "file_name": "' + b"a" * 2**26)
    return made


CASES: dict[str, tuple[str, Maker, str]] = {
    "image files of 400 MB together": (OBJECTS, large_images, "041.jpg is neither JPEG nor PNG"),
    "annotations of one text": (OBJECTS, one_text, "train.json: Input data was truncated"),
    "annotations in a zip of a thousandth": (
        OBJECTS,
        one_string(300),
        "more than 100 times as many",
    ),
    "annotations of 1 GB in a zip of 1 MB": (
        OBJECTS,
        one_string(1024),
        "more than the limit of a data set",
    ),
    "an object of 20,000 polygons of 8,192 pixels": (
        OBJECTS,
        one_image(WIDE * 20_000),
        "needs more",
    ),
    "20,000 objects of 8,192 pixels": (OBJECTS, one_image(WIDE, 20_000), "source"),
    "a mask of 40,000 polygons": (OBJECTS, one_image(SPREAD), "source"),
    "a mask of 1,000,000 runs": (
        OBJECTS,
        one_image({"size": [1000, 1000], "counts": [1] * 10**6}, side=1000),
        "but should be 1000x1000",
    ),
}
"""Hostile images with objects by name."""

AS_LONG = ("20,000 objects of 8,192 pixels", "a mask of 40,000 polygons")
"""Those that are ended by the bound on time too, as the object of 20,000 polygons is."""
