"""The data of tests that load none: the real sets' facts, and a set of small grey images."""

import dataclasses

from dawnjax.input_pipeline.reading.dataset import DatasetSpec

IMAGENET = DatasetSpec(
    num_train_examples=1_281_167,
    num_eval_examples=50_000,
    image_shape=(256, 256, 3),
    num_classes=1000,
    mean=(0.5,) * 3,
    std=(0.25,) * 3,
    fingerprint="0" * 16,
)
CIFAR10 = dataclasses.replace(
    IMAGENET,
    num_train_examples=50_000,
    num_eval_examples=10_000,
    image_shape=(32, 32, 3),
    num_classes=10,
)
SMALL_IMAGES = DatasetSpec(
    num_train_examples=100,
    num_eval_examples=20,
    image_shape=(8, 8, 1),
    num_classes=10,
    mean=(0.5,),
    std=(0.25,),
    fingerprint="0" * 16,
)
