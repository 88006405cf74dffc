"""Shards: examples with whole image files, 1,024 a file, as TensorFlow Datasets keeps them.

    NAME-train.array_record-00000, ...    ArrayRecord files of `tf.train.Example`
    dataset_info.json, features.json, ...

`tfds.builder_from_directory` and Grain open them. Columns lie beside for what a run needs at its
start, such as labels.
"""

import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from dawnjax.input_pipeline.reading import overlap, tfds_directory
from dawnjax.input_pipeline.reading.columns import Columns
from dawnjax.input_pipeline.reading.dataset import DataError, Overlap, Split
from dawnjax.input_pipeline.reading.image_files import image_size

EXAMPLES = 1024
"""Examples of a shard: 110 MB of ImageNet, written again after an interruption."""

BYTES_AT_ONCE = 2**26
"""Bytes of image files and pixels that are checked together; a single image may have more."""

SPLITS: dict[Split, str] = {"train": "train", "eval": "validation"}
"""Their names in TensorFlow Datasets."""

Example = dict[str, Any]
Key = TypeVar("Key")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleShards:
    """Examples to be written as shards.

    Attributes:
      name: The files' names begin with it.
      description: Of the examples: shards that a stopped call left with another one are dropped.
      features: Makes TFDS's features of an example, by name, of its module.
      counts: Examples of each split.
      examples: Yields a split's examples from a position on, in an order that never changes.
    """

    name: str
    description: str
    features: Callable[[Any], dict[str, Any]]
    counts: dict[Split, int]
    examples: Callable[[Split, int], Iterator[Example]]

    def write(self, folder: pathlib.Path, progress: Callable[[int], None]) -> None:
        """Write the shards; DataError for a file that is no whole image."""
        writer, done = self._writer(folder)
        for split, count in self.counts.items():
            start = done.get(SPLITS[split], 0)
            examples = self.examples(split, start)
            for first in range(start, count, EXAMPLES):
                writer.add_examples({SPLITS[split]: itertools.islice(examples, EXAMPLES)})
                progress(min(EXAMPLES, count - first))
        writer.close_all()
        # An empty file that TFDS leaves where it went on: the same examples have the same files.
        (folder / "metadata.json").unlink(missing_ok=True)

    def _writer(self, folder: pathlib.Path) -> tuple[Any, dict[str, int]]:
        """TFDS's writer of a folder, and the examples of each split in whole shards there."""
        tfds = tfds_directory.import_tfds(folder)
        done: dict[str, int] = {}
        if (folder / tfds_directory.INFO_FILE).exists():  # of a stopped call
            info = tfds_directory.read_info(folder)
            if info.get("description") == self.description:
                done = tfds_directory.num_examples(info)
        if not done:
            for path in folder.iterdir():
                path.unlink()
        info = tfds.core.DatasetInfo(
            builder=tfds.core.dataset_info.DatasetIdentity(
                name=self.name,
                version=tfds.core.Version("1.0.0"),
                data_dir=str(folder),
                module_name="",
            ),
            description=self.description,
            features=tfds.features.FeaturesDict(self.features(tfds)),
        )
        writer = tfds.core.SequentialWriter(
            info, EXAMPLES, overwrite=not done, file_format=tfds_directory.FORMAT
        )
        writer.initialize_splits(list(SPLITS.values()), fail_if_exists=False)
        return writer, done


def images_of(directory: pathlib.Path, split: Split) -> Callable[[int], bytes]:
    """Reader of the image file of the example at a position of a split."""
    builder = tfds_directory.open_version(directory)
    _, read = tfds_directory.open_split(directory, builder, SPLITS[split], ["image"])
    return lambda position: bytes(read(position)["image"])


def overlap_of(written: Columns[None], unit: str) -> Overlap:
    """Image files to evaluate that are to be trained on too."""
    info = tfds_directory.num_examples(tfds_directory.read_info(written.directory))
    train, evaluated = (
        map(images_of(written.directory, split), range(info[name]))
        for split, name in SPLITS.items()
    )
    return overlap.shared(train, evaluated, unit)


def checked(
    contents: Iterable[tuple[Key, bytes]], check: Callable[[Key, bytes], object]
) -> Iterator[tuple[Key, bytes]]:
    """Yield image files as they come, after threads have checked them; few are held together."""
    files = iter(contents)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        while together := list(_together(files)):
            for _ in threads.map(lambda pair: check(*pair), together):
                pass
            yield from together


def _together(files: Iterator[tuple[Key, bytes]]) -> Iterator[tuple[Key, bytes]]:
    num_bytes = 0
    while num_bytes < BYTES_AT_ONCE and (pair := next(files, None)):
        num_bytes += len(pair[1])
        try:
            height, width = image_size(pair[1])
            num_bytes += 3 * height * width
        except DataError:  # which the check names
            pass
        yield pair
