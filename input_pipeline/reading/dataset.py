"""The contract between a dataset and the code that trains on it.

A dataset is a frozen dataclass with a `TAG` and two methods (`Dataset`). `spec()` runs before the
run's clock starts; `load(split)` is on the clock, and reads anew what `spec` has read. Errors about
data are a `DataError` of one line that names the file.

An image dataset may also have `classes()`, the name of each label, and `RESIZES = True` where
photographs are cut and resized to squares, so that another set to evaluate on is treated alike.
"""

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

from dawnjax import records
from dawnjax.errors import OneLineError

Split = Literal["train", "eval"]

NO_FINGERPRINT = "0" * 16
"""Fingerprint of a published set without its content."""

Shapes = dict[str, tuple[tuple[int, ...], str]]
"""Shape and NumPy's dtype name of each array of one example, by the array's name."""


class DataError(OneLineError):
    """Data that is missing, damaged or not what it should be; the message is one line."""


class MissingDataError(DataError):
    """Data that are not where they were said to be."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap:
    """Examples to evaluate that the training split holds too: `shared` of `compared`.

    `unit` names them in words, such as `images`.
    """

    shared: int
    compared: int
    unit: str

    def __str__(self) -> str:
        counts = f"{self.shared:,} of {self.compared:,} {self.unit}"
        return f"{counts} of the evaluation split are also in the training split"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """A dataset's statement of its content, after it looked at itself.

    Attributes:
      name: Its name, in words.
      benchmark: The published set, such as `ImageNet`, if counts and fingerprint are that set's
        (`published.py`); empty for all other data.
      evidence: The parts that were compared, or why these are not the benchmark's data.
      overlap: Of the splits; None where they were not compared.
    """

    name: str
    benchmark: str = ""
    evidence: str = "it is not compared with any published set"
    overlap: Overlap | None = None


class DataSpec(Protocol):
    """Fields and methods of the specification of any dataset, which may also have a `declaration`.

    Attributes:
      num_train_examples: Examples in the train split; an epoch is this many.
      fingerprint: 16 hex digits, equal for equal examples in equal order alone, so that a run is
        not resumed on other data.
    """

    @property
    def num_train_examples(self) -> int: ...

    @property
    def num_eval_examples(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def example_shapes(self, split: Split) -> Shapes:
        """Shape and dtype of each array of one example."""
        ...

    def batch_elements(self, batch_size: int) -> int:
        """Elements of the largest array that any model needs for a batch."""
        ...


class Dataset(Protocol):
    """Fields and methods of any dataset; `TAG` is its name in flags (`--data=TAG`) and records."""

    TAG: ClassVar[str]

    def spec(self) -> DataSpec:
        """Count and shapes; ValueError where a field is out of range or does not fit the data."""
        ...

    def load(self, split: Split) -> Mapping[str, Any]:
        """Arrays [num_examples, ...] of a split, or `RowsOnDemand` in their place; or a DataError.

        Nothing that `spec` has read is used again, for this is on a run's clock.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """Fields of every specification here; without a declaration, the tag names the data."""

    num_train_examples: int
    num_eval_examples: int
    fingerprint: str
    declaration: Declaration | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSpec(Spec):
    """Counts and shapes of an image dataset.

    A split has `image`, uint8 [num_examples, height, width, channels], and `label`, int32.

    Attributes:
      image_shape: (height, width, channels) in pixels; pixels are uint8.
      num_classes: Labels are 0 to num_classes - 1.
      mean: Per channel, of pixel / 255.
      std: Per channel. A normalized pixel is (pixel / 255 - mean) / std.
      is_drawn: Whether training images are cut at random on the host, anew in each epoch.
    """

    image_shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    is_drawn: bool = False

    def example_shapes(self, split: Split) -> Shapes:
        del split  # both are alike
        return {"image": (self.image_shape, "uint8"), "label": ((), "int32")}

    def batch_elements(self, batch_size: int) -> int:
        return batch_size * math.prod(self.image_shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSpec(Spec):
    """Counts and shapes of prepared parallel text.

    A training example is a row that holds several sentence pairs, side by side; an example to
    evaluate is one pair. Tokens are uint16, 0 is padding, and each sentence ends with `end`.

        train: {"source", "source_segments": [num_train_examples, source_length],
                "target", "target_segments": [num_train_examples, target_length]}
        eval:  {"source": [num_eval_examples, eval_source_length],
                "target": [num_eval_examples, eval_target_length]}

    Attributes:
      num_train_examples: Packed rows; an epoch is this many.
      num_train_pairs: Sentence pairs in them.
      end: The token that ends a sentence.
      fingerprint: It covers vocabulary and references too.
    """

    num_train_pairs: int
    source_length: int
    target_length: int
    eval_source_length: int
    eval_target_length: int
    vocabulary_size: int
    end: int

    def example_shapes(self, split: Split) -> Shapes:
        if split == "eval":
            lengths = {"source": self.eval_source_length, "target": self.eval_target_length}
            return {name: ((length,), "uint16") for name, length in lengths.items()}
        source, target = (self.source_length,), (self.target_length,)
        return {
            "source": (source, "uint16"),
            "source_segments": (source, "uint8"),
            "target": (target, "uint16"),
            "target_segments": (target, "uint8"),
        }

    def batch_elements(self, batch_size: int) -> int:
        return batch_size * self.target_length * self.vocabulary_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArraysSpec(Spec):
    """Counts and shapes of arrays of any names, such as `arrays.Arrays` has them."""

    train_shapes: Shapes
    eval_shapes: Shapes

    def example_shapes(self, split: Split) -> Shapes:
        return self.train_shapes if split == "train" else self.eval_shapes

    def batch_elements(self, batch_size: int) -> int:
        shapes = [*self.train_shapes.values(), *self.eval_shapes.values()]
        return batch_size * max(math.prod(shape) for shape, _ in shapes)


AnySpec = DatasetSpec | TextSpec


def directory_of(dataset: str, data_dir: str = "") -> pathlib.Path:
    """Directory of a dataset: `data_dir`, or else `dataset` in $DAWNJAX_DATA or in `./data`."""
    if data_dir:
        return records.path_of(data_dir)
    return pathlib.Path(os.environ.get("DAWNJAX_DATA") or "data") / dataset


def declared(dataset: Any, spec: DataSpec) -> dict[str, Any]:
    """Statement of a run's data, as JSON values for its records."""
    said = getattr(spec, "declaration", None) or Declaration(name=dataset.TAG.replace("_", " "))
    # A class in a person's own file names no benchmark's data: its code decides what it returns.
    if said.benchmark and type(dataset).__module__.split(".")[:2] != __name__.split(".")[:2]:
        evidence = (
            "its dataset is a class in its own file, which is not compared with any published set"
        )
        said = dataclasses.replace(said, benchmark="", evidence=evidence)
    return {
        **dataclasses.asdict(said),
        "num_train_examples": spec.num_train_examples,
        "num_eval_examples": spec.num_eval_examples,
        "fingerprint": spec.fingerprint,
    }


def overlap_line(overlap: Overlap | None, start: str) -> str:
    """Line about examples in both splits, or an empty text; it begins with `start`."""
    return f"{start}{overlap}" if overlap is not None and overlap.shared else ""


def num_bytes(spec: DataSpec) -> int:
    """Bytes of both splits in memory."""
    import numpy as np  # imported here: every command imports this file, and few need NumPy

    counts: dict[Split, int] = {"train": spec.num_train_examples, "eval": spec.num_eval_examples}
    return sum(
        count * math.prod(shape) * np.dtype(dtype).itemsize
        for split, count in counts.items()
        for shape, dtype in spec.example_shapes(split).values()
    )


def class_names(dataset: Any, spec: DatasetSpec) -> tuple[str, ...]:
    """Names of an image dataset's labels: its `classes()`, or "0", "1", ... without it."""
    if hasattr(dataset, "classes"):
        return tuple(dataset.classes())
    return tuple(str(label) for label in range(spec.num_classes))
