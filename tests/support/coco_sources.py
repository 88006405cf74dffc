"""Small sets of images with objects in COCO's form, as files to prepare."""

import json

import cv2
import numpy as np
import pytest

from dawnjax.__main__ import main
from dawnjax.input_pipeline.datasets.coco import Coco
from dawnjax.input_pipeline.reading import run_lengths

MASK = np.zeros((20, 30), bool)
MASK[2:6, 10:20] = True


def body(first_image=1, images=3):
    """Annotations of images of 30 x 20 pixels; categories 3 and 7, as COCO leaves numbers out."""
    numbers = range(first_image, first_image + images)
    polygon = [[10.0, 2.0, 20.0, 2.0, 20.0, 6.0, 10.0, 6.0]]
    packed = {"size": [20, 30], "counts": run_lengths.pack(MASK).decode()}
    # Ten columns of 20 pixels, in each of which four after the second belong to the object.
    counts = [202, *[4, 16] * 9, 4, 14 + 200]
    listed = {"size": [20, 30], "counts": counts}
    annotations = []
    for number, image in enumerate(numbers, 1):
        segmentation = (polygon, packed, listed)[number % 3]
        annotation = {"id": number, "image_id": image, "category_id": 7, "iscrowd": 0}
        annotation |= {"bbox": [10, 2, 10, 4], "area": 40.0, "segmentation": segmentation}
        annotations.append(annotation)
    return {
        "info": {"year": 2017},
        "images": [
            {"id": n, "file_name": f"{n:03}.png", "height": 20, "width": 30, "license": 1}
            for n in numbers
        ],
        "categories": [{"id": 7, "name": "cell"}, {"id": 3, "name": "dish", "supercategory": "x"}],
        "annotations": annotations,
    }


def changed(path, value):
    """Annotations in which one field has another value."""
    content = body()
    *steps, last = path
    place = content
    for step in steps:
        place = place[step]
    place[last] = value
    return content


def write_source(folder, train=None, evaluated=None, damaged=()):
    folder.mkdir(parents=True, exist_ok=True)
    bodies = {"train.json": train or body(), "eval.json": evaluated or body(11)}
    for name, content in bodies.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text)
    (folder / "images").mkdir(exist_ok=True)
    for number in [*range(1, 9), *range(11, 14)]:
        image = np.full((20, 30, 3), 10 * number, np.uint8)
        (folder / "images" / f"{number:03}.png").write_bytes(cv2.imencode(".png", image)[1])
    for name, content in damaged:
        (folder / name).write_bytes(content)
    return folder


def prepare(source, out, *more):
    pytest.importorskip("hotcoco", reason="the extra `detection` is not installed")
    pytest.importorskip("array_record", reason="the extra `detection` is not installed")
    flags = ["--train_annotations=train.json", "--eval_annotations=eval.json", *more]
    return main(
        ["prepare", "--dataset=coco", "--name=cells", f"--from={source}", f"--out={out}", *flags]
    )


def cells(out, **fields):
    return Coco(corpus="cells", height=20, width=30, data_dir=str(out), **fields)
