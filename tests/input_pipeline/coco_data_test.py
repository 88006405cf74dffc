"""Images with objects in COCO's form: prepared, read and refused."""

import copy
import dataclasses
import json
import os
import shutil
import struct
import types
import zipfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from coco_sources import MASK, body, cells, prepare, write_source

from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets import coco
from dawnjax.input_pipeline.datasets.coco import KIND, Coco, ObjectFacts
from dawnjax.input_pipeline.datasets.synthetic import SyntheticObjects
from dawnjax.input_pipeline.reading import coco_source, columns, run_lengths
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.tasks.object_detection import ObjectDetection
from dawnjax.tasks.task import Setting

REAL = Path(os.environ.get("DAWNJAX_TEST_DATA", "/nowhere"))


def as_it_is(source, folder):
    return source


def packed_as_zip(source, folder):
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for path in sorted(source.rglob("*.*")):
            archive.write(path, f"cells/{path.relative_to(source)}")
    return folder / "all.zip"


def images_in_a_zip(source, folder):
    with zipfile.ZipFile(source / "images.zip", "w") as archive:
        for path in sorted((source / "images").iterdir()):
            archive.write(path, f"images/{path.name}")
    shutil.rmtree(source / "images")
    return source


@pytest.mark.parametrize("form", [as_it_is, packed_as_zip, images_in_a_zip])
def test_prepared_and_read(form, tmp_path, capsys):
    source = form(write_source(tmp_path / "source"), tmp_path)
    assert prepare(source, tmp_path / "out") == 0
    assert "3 images with 3 objects to train on" in capsys.readouterr().out
    data = cells(tmp_path / "out")
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples, spec.num_classes) == (3, 3, 2)
    # The categories are numbered in the order of their ids.
    assert data.classes() == ("dish", "cell")
    train = data.load("train")
    np.testing.assert_array_equal(train["classes"][:, :2], [[2, 0]] * 3)
    np.testing.assert_allclose(train["boxes"][0, 0], [1 / 3, 0.1, 2 / 3, 0.3], rtol=1e-6)
    assert not train["boxes"][:, 1:].any() and not train["crowd"].any()
    assert train["image"][np.array([2, 0])][:, 0, 0, 0].tolist() == [30, 10]
    assert data.load("eval")["image"][:].shape == (3, 20, 30, 3)
    objects = data.evaluated_objects()
    masks = objects.masks
    assert masks is not None
    for mask in (masks[n] for n in range(3)):
        np.testing.assert_array_equal(run_lengths.unpack(mask, 20, 30), MASK)


def test_images_are_resized_and_their_boxes_are_not(tmp_path):
    prepare(write_source(tmp_path / "source"), tmp_path / "out")
    data = cells(tmp_path / "out", train_height=40, train_width=50)
    assert data.load("train")["image"][:].shape == (3, 40, 50, 3)
    assert data.load("eval")["image"][:].shape == (3, 20, 30, 3)
    np.testing.assert_allclose(data.load("train")["boxes"][0, 0], [1 / 3, 0.1, 2 / 3, 0.3])


def test_what_is_not_trained_on_is_counted(tmp_path, capsys):
    train = body(1, 6)
    for number, changes in enumerate(
        [{"iscrowd": 1}, {"bbox": [10, 2, 0, 4]}, {"bbox": [25, 2, 10, 4]}, None]
    ):
        if changes:
            train["annotations"][number] |= changes
        else:
            del train["annotations"][number]
    source = write_source(tmp_path / "source", train)
    assert prepare(source, tmp_path / "out") == 0
    said = capsys.readouterr().out
    for words in (
        "6 images with 5 objects to train on (1 images without objects, 1 crowd regions, 1 "
        "objects without area, not trained on, 1 boxes over the border, clipped for training)",
        "2 classes, with masks",
    ):
        assert words in said
    data = cells(tmp_path / "out")
    # The image with the object without area is left out too.
    assert data.spec().num_train_examples == 4
    load = data.load("train")
    assert load["crowd"][:, 0].tolist() == [True, False, False, False]
    np.testing.assert_allclose(load["boxes"][1, 0], [25 / 30, 0.1, 1, 0.3], rtol=1e-6)
    without = cells(tmp_path / "out", trains_crowd=False)
    assert without.spec().num_train_examples == 3


@pytest.mark.parametrize("box", [[30, 2, 4, 4], [-4, 2, 4, 4], [10, 20, 3, 1], [10, -1, 3, 1]])
def test_a_box_that_only_touches_the_border_is_not_trained_on(box, tmp_path, capsys):
    train = body()
    train["annotations"][0]["bbox"] = box
    assert prepare(write_source(tmp_path / "source", train), tmp_path / "out") == 0
    assert "1 objects without area, not trained on" in capsys.readouterr().out
    assert cells(tmp_path / "out").spec().num_train_examples == 2


def test_images_without_objects_are_evaluated_or_not(tmp_path):
    evaluated = body(11)
    del evaluated["annotations"][1]
    prepare(write_source(tmp_path / "source", None, evaluated), tmp_path / "out")
    assert cells(tmp_path / "out").spec().num_eval_examples == 3
    some = cells(tmp_path / "out", evaluates_empty=False)
    assert some.spec().num_eval_examples == 2
    assert some.load("eval")["image"][:][:, 0, 0, 0].tolist() == [110, 130]
    assert some.evaluated_objects().counts.tolist() == [1, 1]


def changed(path, value):
    """Annotations in which one field has another value."""
    content = copy.deepcopy(body())
    *steps, last = path
    place = content
    for step in steps:
        place = place[step]
    place[last] = value
    return content


OBJECT = ("annotations", 1)
ABOUT = "train.json: annotation 2 of image 2 (002.png)"


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("", "train.json: is empty"),
        ("{}", "train.json: Object missing required field images"),
        ('{"x": ' + "[" * 10**5, "train.json: maximum recursion depth exceeded"),
        (changed(("images",), []), "train.json: holds no images"),
        (changed(("categories",), []), "train.json: has 0 categories"),
        (
            changed(("categories",), [{"id": n, "name": str(n)} for n in range(50_000)]),
            "has 50,000 categories",
        ),
        (changed((*OBJECT, "image_id"), 99), "annotation 2 belongs to image 99, which is missing"),
        (
            changed((*OBJECT, "category_id"), 1),
            f"{ABOUT} belongs to category 1, which does not exist",
        ),
        (changed((*OBJECT, "id"), 1), "train.json: annotation 1 appears twice"),
        (changed(("images", 1, "file_name"), "001.png"), "image 2 (001.png) appears twice"),
        (changed(("categories", 1, "name"), "cell"), "the category with name 'cell' appears"),
        (changed((*OBJECT, "bbox"), ["a", 2, 3, 4]), "annotations[1].bbox[0]: Expected float"),
        (changed((*OBJECT, "bbox"), [1, 2, -3, 4]), f"{ABOUT}: bbox [1.0, 2.0, -3.0, 4.0]"),
        (changed((*OBJECT, "bbox"), [40, 2, 3, 4]), "lies outside the image of 30x20"),
        (changed((*OBJECT, "segmentation"), None), f"{ABOUT}: has no segmentation"),
        (changed((*OBJECT, "segmentation"), [[1, 2, 3, 4]]), "has 4 numbers; 3 points need 6"),
        (
            changed((*OBJECT, "segmentation"), {"size": [20, 30], "counts": [500, 500]}),
            f"{ABOUT}: invalid RLE: total counts 1000 exceed h*w=600",
        ),
        (
            changed((*OBJECT, "segmentation"), {"size": [30, 20], "counts": [600]}),
            "size [30, 20] is not [20, 30]",
        ),
        (changed(("images", 1, "height"), 0), "image 2 (002.png) has 30x0 pixels"),
        (changed(("images", 1, "file_name"), "no.png"), "image 2 (no.png): its file is missing"),
        (
            {**body(), "annotations": [{**body()["annotations"][0], "id": n} for n in range(1002)]},
            "annotation 1000 of image 1 (001.png): the image has more than 1,000 objects",
        ),
        (
            {**body(), "categories": body()["categories"][:1]},
            "training and evaluation categories differ",
        ),
    ],
)
def test_faulty_annotations_are_one_line(train, message, tmp_path, capsys):
    source = write_source(tmp_path / "source")
    (source / "train.json").write_text(train if isinstance(train, str) else json.dumps(train))
    assert prepare(source, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_mask_of_many_polygons_is_their_union(tmp_path):
    places = np.random.default_rng(0).integers(0, 15, (40, 1, 2))
    squares = places + np.array([[0, 0], [3, 0], [3, 3], [0, 3]])
    train = changed((*OBJECT, "segmentation"), squares.reshape(40, -1).tolist())
    source = write_source(tmp_path / "source", train)
    annotated: dict[Split, list[str]] = {"train": ["train.json"], "eval": ["eval.json"]}
    found = coco_source.open_source(source, annotated, with_masks=True).splits["train"]
    wanted = np.zeros((20, 30), bool)
    for left, top in places[:, 0]:
        wanted[top : top + 3, left : left + 3] = True
    assert found.objects.masks is not None
    np.testing.assert_array_equal(run_lengths.unpack(found.objects.masks[1], 20, 30), wanted)


def test_damaged_images_and_absent_files_are_one_line(tmp_path, capsys):
    source = write_source(tmp_path / "source")
    whole = (source / "images" / "002.png").read_bytes()
    (source / "images" / "002.png").write_bytes(whole[:-9])
    assert prepare(source, tmp_path / "out") == 1
    assert "train.json: image 2 (002.png))" in capsys.readouterr().err
    assert prepare(source, tmp_path / "out", "--train_annotations=other.json") == 1
    assert "no file other.json; there are eval.json, train.json" in capsys.readouterr().err
    (source / "images" / "002.png").write_bytes(whole)
    (source / "train.json").write_text(json.dumps(changed(("images", 2, "height"), 21)))
    assert prepare(source, tmp_path / "out") == 1
    assert "003.png is 30x20 pixels, but should be 30x21" in capsys.readouterr().err
    shutil.copytree(source / "images", source / "other")
    assert prepare(source, tmp_path / "out") == 1
    assert "may be images/001.png or other/001.png" in capsys.readouterr().err


def test_an_area_that_is_not_given_is_that_of_the_mask(tmp_path):
    evaluated = body(11)
    for annotation in evaluated["annotations"]:
        del annotation["area"]
        annotation["bbox"] = [10, 2, 15, 8]
    source = write_source(tmp_path / "source", None, evaluated)
    for flags, area in (((), 40.0), (("--masks=false",), 120.0)):
        out = tmp_path / str(area)
        assert prepare(source, out, *flags) == 0
        assert cells(out).evaluated_objects().areas.tolist() == [area] * 3


def test_coco_2017_has_its_counts(tmp_path):
    prepare(write_source(tmp_path / "source"), tmp_path / "out")
    data = Coco(corpus="coco2017", data_dir=str(tmp_path / "out"))
    with pytest.raises(ValueError, match=r"data.corpus=coco2017 has .*118287.* for train, but "):
        data.spec()
    spec = Coco(corpus="coco2017", evaluates_empty=False).published_spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (117_266, 4_952)


def test_coco_2017_is_declared_by_counts_and_categories(tmp_path, monkeypatch):
    prepare(write_source(tmp_path / "source"), tmp_path / "out")
    facts = columns.read(tmp_path / "out", KIND, ObjectFacts).facts
    assert len(coco.CATEGORIES_OF_COCO) == 80
    monkeypatch.setitem(coco.PUBLISHED, "cells", facts.counts)
    said = cells(tmp_path / "out").spec().declaration
    assert said is not None and said.benchmark == "" and said.name == "cells"
    assert "category numbers differ" in said.evidence
    monkeypatch.setattr(coco, "CATEGORIES_OF_COCO", facts.category_ids)
    said = cells(tmp_path / "out").spec().declaration
    assert said is not None and (said.name, said.benchmark) == ("COCO 2017", "COCO 2017")


def test_another_set_is_evaluated_with_the_runs_classes(tmp_path):
    prepare(write_source(tmp_path / "source"), tmp_path / "out")
    spec = dataclasses.replace(cells(tmp_path / "out").spec(), num_classes=3, num_eval_examples=7)
    task, paths = ObjectDetection(), {"data": str(tmp_path / "out")}

    def read(*names):
        data: Any = types.SimpleNamespace(classes=lambda: names)
        execution: Any = None
        return task.read_other_set(
            paths, Setting(model=None, data=data, spec=spec, execution=execution)
        )

    other = read("leaf", "dish", "cell")
    assert other.spec.num_eval_examples == 3 and other.examples["image"][:].shape[0] == 3
    objects = other.data.evaluated_objects()
    assert objects.classes.tolist() == [3, 3, 3] and objects.names == ("leaf", "dish", "cell")
    assert other.notes == ("2 of the run's 3 classes do not occur in the set",)
    with pytest.raises(ConfigError, match="out: class 'cell' is none of dish, leaf"):
        read("dish", "leaf")


def test_synthetic_objects_lie_where_their_boxes_say():
    data = SyntheticObjects(num_train_examples=20, objects_an_image=1)
    train, colours = data.load("train"), {1: 0, 2: 1, 3: 2}
    parts = [train[name] for name in ("image", "boxes", "classes")]
    for image, boxes, classes in zip(*parts, strict=True):
        left, top, right, bottom = np.round(boxes[0] * 64).astype(int)
        inside = image[top:bottom, left:right]
        assert (inside == inside[0, 0]).all()
        assert inside[0, 0].argmax() == colours[int(classes[0])]
    objects = data.evaluated_objects()
    masks = objects.masks
    assert masks is not None
    areas = [run_lengths.unpack(masks[n], 512, 512).sum() for n in range(5)]
    np.testing.assert_array_equal(areas, objects.areas[:5])


@pytest.mark.skipif(not REAL.exists(), reason="needs the real data (DAWNJAX_TEST_DATA)")
def test_the_real_nuclei_keep_their_masks(tmp_path, capsys):
    source = REAL / "nuclei" / "nuclei_334.tar"
    flags = ["--train_annotations=instances_train.json", "--eval_annotations=instances_val.json"]
    assert prepare(source, tmp_path / "out", *flags) == 0
    said = capsys.readouterr().out
    assert "250 images with 7,186 objects to train on; 84 images with 2,357 objects" in said
    objects = cells(tmp_path / "out").evaluated_objects()
    masks = objects.masks
    assert masks is not None
    for place in range(0, 2357, 97):
        mask = run_lengths.unpack(masks[place], 256, 256)
        assert mask.sum() == objects.areas[place]
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        box = [columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1]
        assert objects.boxes[place].tolist() == box


def changed_files(source, change):
    for file in (source / "train.json", source / "eval.json"):
        fields = json.loads(file.read_text())
        change(fields)
        file.write_text(json.dumps(fields))


@pytest.mark.parametrize("name", ["./images/{}", "images//{}", ".\\images\\{}"])
def test_names_as_other_systems_write_them_are_found(name, tmp_path):
    source = write_source(tmp_path / "source")

    def change(fields):
        for image in fields["images"]:
            image["file_name"] = name.format(image["file_name"])

    changed_files(source, change)
    assert prepare(source, tmp_path / "out") == 0
    assert cells(tmp_path / "out").spec().num_train_examples == 3


def test_boxes_as_fractions_are_noted(tmp_path, capsys):
    source = write_source(tmp_path / "source")

    def change(fields):
        for annotation in fields["annotations"]:
            annotation["bbox"] = [0.25, 0.5, 0.5, 0.25]

    changed_files(source, change)
    assert prepare(source, tmp_path / "out") == 0
    assert "the boxes for train look like fractions of the image" in capsys.readouterr().out


def test_an_orientation_mark_is_named(tmp_path, capsys):
    """Mark 3 turns an image by half a turn, and mark 6 exchanges its sides."""
    source = write_source(tmp_path / "source")
    for mark, status, line in (
        (3, 0, "an EXIF orientation turns 1 images, such as images/001.png; boxes and masks must"),
        (6, 1, "001.png is 20x30 pixels, turned upright by its EXIF orientation, but should be"),
    ):
        jpeg = cv2.imencode(".jpg", np.full((20, 30, 3), 90, np.uint8))[1].tobytes()
        tiff = b"II*\0" + struct.pack("<IHHHIIxxxx", 8, 1, 274, 3, 1, mark)
        part = b"Exif\0\0" + tiff
        marked = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(part)) + part + jpeg[2:]
        (source / "images" / "001.png").write_bytes(marked)
        assert prepare(source, tmp_path / f"out_{mark}") == status
        captured = capsys.readouterr()
        assert line in captured.out + captured.err
