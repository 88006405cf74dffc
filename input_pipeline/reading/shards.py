"""Shards: whole photographs with their labels, 1,024 a file, as TensorFlow Datasets keeps them.

    photographs-train.array_record-00000, ...    ArrayRecord files of `tf.train.Example`
    dataset_info.json, features.json, label.labels.txt

`tfds.builder_from_directory` and Grain open them, and a run reads them by the code that reads any
data set of TensorFlow Datasets (`photographs.open_source`).
"""

import concurrent.futures
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading import columns, tfds_directory
from dawnjax.input_pipeline.reading.columns import Outcome
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.input_pipeline.reading.image_files import decode_upright
from dawnjax.input_pipeline.reading.photographs import Photographs, Source

EXAMPLES = 1024
"""Of a shard: 110 MB of ImageNet, which an interruption writes anew."""

_SPLITS: dict[Split, str] = {"train": "train", "eval": "validation"}


def write(
    directory: pathlib.Path,
    source: Source,
    progress: Callable[[int], None],
    *,
    overwrite: bool = False,
) -> Outcome:
    """Write photographs, or find them there; shards that a stopped call finished stay.

    DataError for a file that is no whole image, and for other content in the directory.
    """
    is_there = (directory / tfds_directory.INFO_FILE).exists()
    if is_there and tfds_directory.read_info(directory).get("description") == _description(source):
        return "unchanged"
    if not overwrite and directory.exists() and any(directory.iterdir()):
        raise columns.other_content(directory)
    with columns.replacing(directory) as folder:
        writer, done = _writer(folder, source)
        for split, photographs in source.splits.items():
            count = len(photographs.labels)
            for start in range(done.get(_SPLITS[split], 0), count, EXAMPLES):
                rows = range(start, min(start + EXAMPLES, count))
                writer.add_examples({_SPLITS[split]: _examples(photographs, rows)})
                progress(len(rows))
        writer.close_all()
        columns.take_place(folder, directory, tfds_directory.INFO_FILE)
    return "written"


def _writer(folder: pathlib.Path, source: Source) -> tuple[Any, dict[str, int]]:
    """TFDS's writer of a folder, and the examples of each split that whole shards there hold."""
    tfds = tfds_directory.import_tfds(folder)
    done: dict[str, int] = {}
    if (folder / tfds_directory.INFO_FILE).exists():  # of a stopped call
        info = tfds_directory.read_info(folder)
        if info.get("description") == _description(source):
            done = tfds_directory.num_examples(info)
    if not done:
        for path in folder.iterdir():
            path.unlink()
    label = tfds.features.ClassLabel(names=list(source.classes))
    info = tfds.core.DatasetInfo(
        builder=tfds.core.dataset_info.DatasetIdentity(
            name="photographs",
            version=tfds.core.Version("1.0.0"),
            data_dir=str(folder),
            module_name="",
        ),
        description=_description(source),
        features=tfds.features.FeaturesDict({"image": tfds.features.Image(), "label": label}),
    )
    writer = tfds.core.SequentialWriter(
        info, EXAMPLES, overwrite=not done, file_format=tfds_directory.FORMAT
    )
    writer.initialize_splits(list(_SPLITS.values()), fail_if_exists=False)
    return writer, done


def _description(source: Source) -> str:
    return f"Photographs of {source.kind}, listing {source.listing}"


def _examples(photographs: Photographs, rows: range) -> list[dict[str, Any]]:
    labels = np.asarray(photographs.labels)

    def example(row: int) -> dict[str, Any]:
        photographs.decoded(row, decode_upright)  # refuses what no run could decode
        content, _ = photographs.read(row)
        return {"image": content, "label": int(labels[row])}

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        return list(threads.map(example, rows))
