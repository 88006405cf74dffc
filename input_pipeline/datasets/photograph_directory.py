"""A directory of photographs as a dataset: prepared, in class folders, or as TFDS left it."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from dawnjax.input_pipeline.datasets.published import PublishedImages, declare_images
from dawnjax.input_pipeline.reading import image_set, manifest, overlap, tfds_directory
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    DatasetSpec,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
)
from dawnjax.input_pipeline.reading.image_files import decode_square
from dawnjax.input_pipeline.reading.image_set import ImageFacts, ImageManifest, class_counts
from dawnjax.input_pipeline.reading.photographs import SIDE, Photographs, Source, open_source
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

_counted: dict[pathlib.Path, dict[Split, str]] = {}
"""The listing of each split that `spec` has counted. `load` lists again, since the time to read the
data belongs on a run's clock, and refuses another listing."""


def _facts(source: Source) -> ImageFacts:
    counted: dict[Split, tuple[int, ...]] = {
        split: class_counts(part.labels, len(source.classes))
        for split, part in source.splits.items()
        if isinstance(part.labels, np.ndarray)
    }
    return ImageFacts(
        num_examples={split: len(part.labels) for split, part in source.splits.items()},
        classes=source.classes,
        class_counts=counted,
        overlap=_overlap(source.splits["train"], source.splits["eval"]),
    )


def _overlap(train: Photographs, evaluated: Photographs) -> Overlap | None:
    if train.sizes is None or evaluated.sizes is None:
        return None

    def reader(photographs: Photographs) -> Callable[[int], bytes]:
        return lambda index: photographs.read(index)[0]

    sizes, readers = (train.sizes, evaluated.sizes), (reader(train), reader(evaluated))
    return overlap.shared_files(sizes, readers, "images")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhotographDirectory:
    """A directory of photographs that is a dataset: prepared, or in a form of `open_source`.

    Attributes:
      dataset: Name that it must have been prepared under.
      title: Name of the data in messages.
      command: Flags of `dawnjax prepare` that make it.
      side: Height and width of the images in pixels; None takes those of the prepared ones.
      published: The published set that they may be; None where they claim to be none.
    """

    path: pathlib.Path
    dataset: str
    title: str
    command: str
    tfds_name: str
    side: int | None
    sides: range
    published: PublishedImages | None

    def spec(
        self, mean: tuple[float, ...] | None = None, std: tuple[float, ...] | None = None
    ) -> DatasetSpec:
        """Count and shapes, from metadata, or names and sizes of image folders.

        Without mean and deviation it takes those measured at preparation, or else 0.5 and 0.25.
        """
        if self.side is not None and self.side not in self.sides:
            low, high = self.sides[0], self.sides[-1]
            raise ValueError(f"data.image_side={self.side} must lie in [{low}, {high}]")
        if self._is_prepared():
            there = self._manifest()
            facts, fingerprint = there.facts, image_set.fingerprint(there)
            shape = image_set.image_shape(there)
            measured_mean, measured_std = facts.statistics["train"]
            mean, std = mean or measured_mean, std or measured_std
        else:
            shape = self._square()
            source = self._open_source(("train", "eval"))
            _counted[self.path] = {split: part.listing for split, part in source.splits.items()}
            facts, fingerprint = _facts(source), source.listing
        declaration = Declaration(name=f"images of {self.title}", overlap=facts.overlap)
        if self.published is not None:
            declaration = declare_images(self.published, facts)
        return DatasetSpec(
            num_train_examples=facts.num_examples["train"],
            num_eval_examples=facts.num_examples["eval"],
            image_shape=shape,
            num_classes=len(facts.classes),
            mean=mean or (0.5,) * 3,
            std=std or (0.25,) * 3,
            fingerprint=fingerprint,
            declaration=declaration,
        )

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        """Images uint8 [N, height, width, channels] and labels int32 [N] of one split.

        Labels are verified, and so are prepared images of up to 2 GiB. Photographs that are not
        prepared are decoded when a batch asks for them; a damaged one ends the run then.
        """
        if self._is_prepared():
            # To read the whole of ImageNet takes minutes of the clock; `dawnjax prepare`, done
            # again, compares all of it.
            most = image_set.LARGEST_VERIFIED_BYTES
            return {**image_set.read_split(self.path, self._manifest(), split, most_bytes=most)}
        photographs = self._open_source((split,)).splits[split]
        # Files may change between the count and the run: its fingerprint would be of other data.
        counted = _counted.get(self.path, {}).get(split, photographs.listing)
        if photographs.listing != counted:
            raise DataError(f"{self.path}: the {split} images were changed since they were counted")
        shape = self._square()
        images = photographs.rows(shape, lambda content: decode_square(content, shape[0]))
        return {"image": images, "label": photographs.labels}

    def classes(self) -> tuple[str, ...]:
        if self._is_prepared():
            return self._manifest().facts.classes
        return self._open_source(()).classes

    def _square(self) -> tuple[int, int, int]:
        if self.side is None:
            raise ValueError(
                f"data.image_side is missing: the photographs in {self.path} may have any size; "
                f"give --data.image_side={SIDE}, or prepare them"
            )
        return self.side, self.side, 3

    def _open_source(self, splits: Sequence[Split]) -> Source:
        return open_source(self.path, self.title, self.tfds_name, splits)

    def _is_prepared(self) -> bool:
        if image_set.KIND.is_begun(self.path):
            return True
        if (self.path / "train").is_dir():
            return False
        if tfds_directory.find_version(self.path, self.tfds_name) is not None:
            return False
        raise MissingDataError(
            f"{self.path}: no {self.title} there, neither prepared nor image folders nor TFDS; "
            f"`dawnjax prepare {self.command} --from=PATH --out={self.path}` prepares it "
            "(--data.data_dir names another place)"
        )

    def _manifest(self) -> ImageManifest:
        there = image_set.read(self.path)
        height, width, _ = shape = image_set.image_shape(there)
        if there.dataset != self.dataset:
            raise DataError(
                f"{self.path / manifest.FILE}: describes {there.dataset} with images {shape}, not "
                f"{self.title}"
            )
        if self.side is not None and (height, width) != (self.side, self.side):
            size = f"{height}" if height == width else f"{height}x{width}"
            raise ValueError(
                f"data.image_side={self.side}, but {self.path} was prepared with {size}; "
                f"give --data.image_side={height if height == width else 0}, or prepare another "
                f"with --image_side={self.side}"
            )
        return there
