"""Masks in a batch, cut and mirrored, padding beside them, and images of a person's own."""

import dataclasses

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coco_sources import body, cells, prepare, write_source
from networks import PLAIN

from dawnjax.input_pipeline.augmentation import mask_augmentation
from dawnjax.input_pipeline.datasets.synthetic import SyntheticObjects
from dawnjax.input_pipeline.reading import own_inputs, run_lengths
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.objects import crop
from dawnjax.limits import check_fields
from dawnjax.tasks.instance_segmentation import InstanceSegmentation
from dawnjax.tasks.task import Setting


def test_run_lengths_are_cocos():
    # Columns first: 2 zeros, 3 ones, 1 zero.
    mask = np.array([[0, 1], [0, 1], [1, 0]], bool)
    assert run_lengths.pack(mask) == b"231"
    np.testing.assert_array_equal(run_lengths.unpack(b"231", 3, 2), mask)
    with pytest.raises(ValueError, match="invalid RLE"):
        run_lengths.unpack(b"99", 3, 2)


def test_a_mask_is_cut_to_its_box_by_hand():
    mask = np.zeros((20, 40), bool)
    mask[5:10, 10:30] = True
    mask[10:15, 10:20] = True
    # Ten pixels a side become ten cells, of two pixels across and one down.
    square = crop(mask, np.array([0.25, 0.25, 0.75, 0.75]), 10)
    wanted = np.zeros((10, 10), np.uint8)
    wanted[:5], wanted[5:, :5] = 255, 255
    np.testing.assert_array_equal(square, wanted)
    whole = crop(np.ones((7, 9), bool), np.array([0.0, 0, 1, 1]), 28)
    assert (whole == 255).all()  # no soft edge at the image's border


def test_prepared_masks_are_read_in_their_boxes(tmp_path):
    prepare(write_source(tmp_path / "source"), tmp_path / "out")
    data = cells(tmp_path / "out", mask_side=8)
    spec, train, evaluated = data.spec(), data.load("train"), data.load("eval")
    shapes = spec.example_shapes("train")
    for name, (shape, dtype) in shapes.items():
        rows = train[name][np.arange(3)]
        assert (rows.shape, rows.dtype) == ((3, *shape), np.dtype(dtype)), name
    # Its cells are smaller than pixels: at its rim they are interpolated.
    assert (train["masks"][np.array([0])][0, 0] >= 128).all()
    assert not train["masks"][np.array([0])][0, 1:].any()
    assert (train["covered"] == 1).all() and (evaluated["covered"] == 1).all()


def test_images_keep_their_aspect_and_are_padded(tmp_path):
    prepare(write_source(tmp_path / "source"), tmp_path / "out")
    sizes = {"short_side": 32, "long_side": 40, "mask_side": 8}
    data = dataclasses.replace(cells(tmp_path / "out"), height=64, width=64, **sizes)
    train = data.load("train")
    # 30 x 20 pixels: 32 on the shorter side would be 48 on the longer.
    np.testing.assert_allclose(train["covered"], np.tile(np.array([26, 40]) / 64, (3, 1)))
    image = train["image"][np.array([0])][0]
    assert image.shape == (64, 64, 3)
    assert (image[:26, :40] == 10).all() and not image[26:].any() and not image[:, 40:].any()
    np.testing.assert_allclose(train["boxes"][0, 0], [1 / 3, 0.1, 2 / 3, 0.3], rtol=1e-6)


def test_tall_images_lie_on_their_side(tmp_path):
    content = body()
    content["images"][1] |= {"height": 30, "width": 20, "file_name": "tall.png"}
    pixels = np.zeros((30, 20, 3), np.uint8)
    pixels[:10] = 200
    content["annotations"][1] |= {
        "bbox": [2, 10, 4, 10],
        "segmentation": [[2, 10, 6, 10, 6, 20, 2, 20]],
    }
    picture = cv2.imencode(".png", pixels)[1].tobytes()
    source = write_source(tmp_path / "source", content, damaged=[("images/tall.png", picture)])
    assert prepare(source, tmp_path / "out") == 0
    fields = {"short_side": 20, "long_side": 40, "mask_side": 8, "turns_tall": True}
    data = dataclasses.replace(cells(tmp_path / "out"), height=32, width=48, **fields)
    check_fields(data, "data.")
    train, spec = data.load("train"), data.spec()
    assert train["is_turned"].tolist() == [False, True, False]
    assert set(train) == set(spec.example_shapes("train"))
    assert spec.upright.image_shape == (48, 32, 3)
    images = train["image"][np.arange(3)]
    assert images.shape == (3, 32, 48, 3)
    # 30 rows of 20 pixels became 20 rows of 30; the boxes stand.
    assert (images[1, :20, :10] == 200).all() and not images[1, :, 10:].any()
    wide, tall = (20 / 32, 30 / 48), (30 / 48, 20 / 32)
    np.testing.assert_allclose(train["covered"], [wide, tall, wide])
    np.testing.assert_allclose(train["boxes"][1, 0], [0.1, 1 / 3, 0.3, 2 / 3], rtol=1e-6)
    assert data.load("eval")["is_turned"].tolist() == [False] * 3


def test_a_set_without_masks_is_refused(tmp_path):
    prepare(write_source(tmp_path / "source"), tmp_path / "out", "--masks=false")
    with pytest.raises(DataError, match="has no masks, but data.mask_side=8 needs them"):
        cells(tmp_path / "out", mask_side=8).spec()


def test_made_up_rectangles_fill_their_boxes():
    data = SyntheticObjects(num_train_examples=4, mask_side=6)
    train = data.load("train")
    masks = train["masks"][np.arange(4)]
    is_object = train["classes"] > 0
    assert (masks[is_object] >= 128).all() and not masks[~is_object].any()


@pytest.mark.parametrize("flip", ["none", "horizontal", "both"])
def test_mirrored_images_keep_their_padding_and_their_objects(flip):
    count, size = 16, (8, 12)
    covered = np.tile(np.array([6 / 8, 9 / 12], np.float32), (count, 1))
    images = np.zeros((count, *size, 3), np.uint8)
    images[:, 1:3, 1:6] = 200  # an object, lighter at its left upper corner
    images[:, 1, 1] = 250
    boxes = np.tile(np.array([1 / 9, 1 / 6, 6 / 9, 3 / 6], np.float32), (count, 2, 1))
    boxes[:, 1] = 0
    masks = np.zeros((count, 2, 4, 4), np.uint8)
    masks[:, 0, 0, 0] = 255
    keys = jax.random.split(jax.random.key(0), count)
    arrays = [jnp.asarray(array) for array in (images, boxes, masks, covered)]
    mirrored = mask_augmentation.mirrored(flip, *arrays, keys=keys)
    turned, moved, squares = map(np.asarray, mirrored)
    kinds = set()
    for image, corners, square in zip(turned, moved, squares, strict=True):
        assert not image[6:].any() and not image[:, 9:].any() and not corners[1].any()
        left, top, right, bottom = np.round(corners[0] * [9, 6, 9, 6]).astype(int)
        assert (image[top:bottom, left:right] >= 200).all()
        assert (image >= 200).sum() == 3 * 10
        across, down = left != 1, top != 1
        kinds.add((bool(across), bool(down)))
        light = image[bottom - 1 if down else top, right - 1 if across else left]
        assert (light == 250).all()
        assert square[0, -1 if down else 0, -1 if across else 0] == 255
    assert len(kinds) == {"none": 1, "horizontal": 2, "both": 4}[flip]
    assert flip != "horizontal" or not any(down for _, down in kinds)


def test_padding_is_zero_in_normalized_images():
    images = jnp.full((1, 4, 4, 3), 100, jnp.uint8)
    covered = jnp.array([[0.5, 0.75]])
    pixels = np.asarray(mask_augmentation.normalized(images, covered, (0.5,) * 3, (0.25,) * 3))
    np.testing.assert_allclose(pixels[0, :2, :3], (100 / 255 - 0.5) / 0.25, rtol=1e-5)
    assert not pixels[0, 2:].any() and not pixels[0, :, 3:].any()


def test_texts_are_bounded_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr(own_inputs, "MOST_BYTES", 100)
    files = [tmp_path / name for name in ("a.txt", "b.txt")]
    for file in files:
        file.write_text("x" * 60)
    assert len(own_inputs.lines(files[:1], 60)) == 1
    with pytest.raises(DataError, match=r"b\.txt: more than 100 bytes in all"):
        own_inputs.lines(files, 60)


def test_images_to_segment_are_padded_as_in_the_evaluation(tmp_path):
    source = write_source(tmp_path / "source")
    prepare(source, tmp_path / "out")
    sizes = {"short_side": 32, "long_side": 40, "mask_side": 8}
    data = dataclasses.replace(cells(tmp_path / "out"), height=64, width=64, **sizes)
    setting = Setting(model=None, data=data, spec=data.spec(), execution=PLAIN)
    files = [source / "images" / f"{number:03}.png" for number in (11, 12, 13)]
    inputs = InstanceSegmentation().read_inputs(files, setting)
    wanted, rows = data.load("eval"), np.arange(3)
    assert inputs.examples.keys() == wanted.keys()
    for name in ("covered", "image"):  # the fraction first, before an image was decoded
        np.testing.assert_array_equal(inputs.examples[name][rows], wanted[name][rows])
    # One detection of class 2, in the left half; its mask fills the box.
    detections = np.zeros((1, 2, 6), np.float32)
    detections[0, 0] = 0, 0, 0.5, 1, 0.9, 2
    answer = {"detections": detections, "masks": np.full((1, 2, 8, 8), 255, np.uint8)}
    (stated,) = inputs.stated(answer, 0)
    assert (stated["class"], stated["bbox"]) == (data.classes()[1], [0, 0, 15, 20])
    assert stated["segmentation"]["size"] == [20, 30]
    mask = run_lengths.unpack(stated["segmentation"]["counts"].encode(), 20, 30)
    assert mask[:, :15].all() and not mask[:, 15:].any()
