"""Images with objects in COCO's form: prepared, read and refused."""

import dataclasses
import shutil
import struct
import types
import zipfile
from typing import Any

import cv2
import numpy as np
import pytest
from coco_sources import MASK, body, cells, changed, prepare, write_source

from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets import coco
from dawnjax.input_pipeline.datasets.coco import KIND, Coco, ObjectFacts
from dawnjax.input_pipeline.datasets.synthetic import SyntheticObjects
from dawnjax.input_pipeline.reading import coco_source, columns, run_lengths
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.tasks.object_detection import ObjectDetection
from dawnjax.tasks.task import Setting


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


@pytest.mark.parametrize("form", [lambda source, _: source, packed_as_zip, images_in_a_zip])
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
    objects: Any = data.evaluated_objects()
    for mask in (objects.masks[n] for n in range(3)):
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


def test_a_mask_of_many_polygons_is_their_union(tmp_path):
    places = np.random.default_rng(0).integers(0, 15, (40, 1, 2))
    squares = places + np.array([[0, 0], [3, 0], [3, 3], [0, 3]])
    train = changed(("annotations", 1, "segmentation"), squares.reshape(40, -1).tolist())
    source = write_source(tmp_path / "source", train)
    annotated: dict[Split, list[str]] = {"train": ["train.json"], "eval": ["eval.json"]}
    found = coco_source.open_source(source, annotated, with_masks=True).splits["train"]
    wanted = np.zeros((20, 30), bool)
    for left, top in places[:, 0]:
        wanted[top : top + 3, left : left + 3] = True
    assert found.objects.masks is not None
    np.testing.assert_array_equal(run_lengths.unpack(found.objects.masks[1], 20, 30), wanted)


def test_a_damaged_image_is_one_line(tmp_path, capsys):
    source = write_source(tmp_path / "source")
    whole = (source / "images" / "002.png").read_bytes()
    (source / "images" / "002.png").write_bytes(whole[:-9])
    assert prepare(source, tmp_path / "out") == 1
    assert "train.json: image 2 (002.png))" in capsys.readouterr().err
    write_source(tmp_path / "source", changed(("images", 2, "height"), 21))
    assert prepare(source, tmp_path / "out") == 1
    assert "003.png is 30x20 pixels, but should be 30x21" in capsys.readouterr().err


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


def test_coco_2017_has_its_counts():
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
    objects: Any = data.evaluated_objects()
    areas = [run_lengths.unpack(objects.masks[n], 512, 512).sum() for n in range(5)]
    np.testing.assert_array_equal(areas, objects.areas[:5])


@pytest.mark.parametrize("name", ["./images/{}", "images//{}", ".\\images\\{}"])
def test_names_as_other_systems_write_them_are_found(name, tmp_path):
    bodies = body(), body(11)
    for image in [*bodies[0]["images"], *bodies[1]["images"]]:
        image["file_name"] = name.format(image["file_name"])
    assert prepare(write_source(tmp_path / "source", *bodies), tmp_path / "out") == 0
    assert cells(tmp_path / "out").spec().num_train_examples == 3


def test_boxes_as_fractions_are_noted(tmp_path, capsys):
    train = body()
    for annotation in train["annotations"]:
        annotation["bbox"] = [0.25, 0.5, 0.5, 0.25]
    assert prepare(write_source(tmp_path / "source", train), tmp_path / "out") == 0
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
