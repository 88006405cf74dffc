"""Directories of labelled images that TensorFlow Datasets itself writes, in ArrayRecord form."""

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def build(
    directory: Path,
    name: str,
    classes: Sequence[str],
    splits: dict[str, list[tuple[bytes, int]]],
    *,
    version: str = "5.1.0",
    text: str = "file_name",
    **image: Any,
) -> Path:
    """Write a data set into a data directory, which is returned.

    Args:
      splits: Content and label of each example.
      text: Feature beside image and label, which no reader of ours asks for.
      **image: Arguments of the feature `Image`.
    """
    pytest.importorskip("array_record", reason="the extra `tfds` is not installed")
    tfds: Any = pytest.importorskip("tensorflow_datasets", reason="`tfds` is not installed")

    # Not registered: a process may build a set of the same name twice.
    registered = importlib.import_module("tensorflow_datasets.core.registered")
    with registered.skip_registration():

        class Labelled(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(version)

            def _info(self):
                label = tfds.features.ClassLabel(names=list(classes))
                features = {"image": tfds.features.Image(**image), "label": label}
                features[text] = tfds.features.Text()
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features)
                )

            def _split_generators(self, dl_manager):
                return {split: self._generate_examples(rows) for split, rows in splits.items()}

            def _generate_examples(self, rows):
                for number, (content, label) in enumerate(rows):
                    yield number, {"image": io.BytesIO(content), "label": label, text: f"{number}"}

        Labelled.name = name
    Labelled(data_dir=str(directory), file_format="array_record").download_and_prepare()
    return directory
