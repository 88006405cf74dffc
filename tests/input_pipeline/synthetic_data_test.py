"""Synthetic images have the shapes asked for, never change, and can be learned."""

import zlib

import numpy as np
import pytest

from dawnjax.input_pipeline.datasets.synthetic import Synthetic


@pytest.mark.parametrize(
    ("height", "width", "channels", "num_classes"),
    [(8, 8, 1, 10), (32, 32, 3, 10), (3, 5, 2, 7), (1, 1, 1, 2), (64, 48, 3, 100)],
)
def test_every_shape(height: int, width: int, channels: int, num_classes: int) -> None:
    data = Synthetic(
        num_train_examples=53,
        num_eval_examples=31,
        image_height=height,
        image_width=width,
        image_channels=channels,
        num_classes=num_classes,
    )
    spec = data.spec()
    for examples, count in ((data.load("train"), 53), (data.load("eval"), 31)):
        assert examples["image"].shape == (count, height, width, channels)
        assert examples["image"].dtype == np.uint8 and examples["label"].dtype == np.int32
        assert examples["label"].shape == (count,)
        assert examples["label"].min() == 0 and examples["label"].max() < num_classes
    assert spec.image_shape == (height, width, channels)
    assert len(spec.mean) == len(spec.std) == channels


def test_never_changes() -> None:
    """Recorded once: the raw output of Philox does not depend on NumPy's version."""
    examples = Synthetic(num_train_examples=64).load("train")
    assert zlib.crc32(examples["image"].tobytes()) == 2906344913


@pytest.mark.compiles
def test_splits_and_seeds_differ() -> None:
    train, evaluation = Synthetic().load("train"), Synthetic().load("eval")
    reseeded = Synthetic(seed=1)
    assert (train["image"][:256] != evaluation["image"]).mean() > 0.9
    assert (train["image"] != reseeded.load("train")["image"]).mean() > 0.9
    assert Synthetic().spec().fingerprint != reseeded.spec().fingerprint


def test_normalized_pixels_are_standard() -> None:
    data = Synthetic(
        num_train_examples=2000, image_height=16, image_width=16, image_channels=3, num_classes=200
    )
    spec = data.spec()
    normalized = (data.load("train")["image"] / 255 - spec.mean) / spec.std
    # 200 classes x 48 cells are 9,600 independent pattern values: their mean is within 0.03 of 0.
    assert abs(normalized.mean()) < 0.03 and abs(normalized.std() - 1) < 0.03


@pytest.mark.compiles
def test_classes_can_be_learned_but_not_from_one_pixel() -> None:
    data = Synthetic()
    train, evaluation = data.load("train"), data.load("eval")
    means = np.stack(
        [train["image"][train["label"] == label].mean(axis=0) for label in range(10)]
    ).reshape(10, -1)
    flat = evaluation["image"].reshape(256, -1).astype(np.float64)

    def accuracy(pixels: slice) -> float:
        distances = ((flat[:, None, pixels] - means[None, :, pixels]) ** 2).sum(-1)
        return float((distances.argmin(1) == evaluation["label"]).mean())

    assert accuracy(slice(None)) > 0.95
    assert accuracy(slice(0, 1)) < 0.5


@pytest.mark.parametrize(
    ("field", "value", "least"),
    [("num_classes", 1, 2), ("image_height", 0, 1), ("num_eval_examples", -3, 1), ("seed", -1, 0)],
)
def test_impossible_values_are_refused(field: str, value: int, least: int) -> None:
    with pytest.raises(ValueError, match=f"data.{field}={value} must be {least} or more"):
        Synthetic(**{field: value}).spec()
