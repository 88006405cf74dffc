"""Inputs of a person's own: bounds of texts, and images as an evaluation has them."""

import dataclasses

import numpy as np
import pytest
from coco_sources import cells, prepare, write_source
from networks import PLAIN

from dawnjax.input_pipeline.reading import own_inputs, run_lengths
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.tasks.instance_segmentation import InstanceSegmentation
from dawnjax.tasks.task import Setting


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
