"""A dataset from NumPy arrays in memory: a class of a few lines in a user's own file.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Diabetes(Arrays):
        TAG: ClassVar[str] = "diabetes"

        def arrays(self, split):
            features, targets = sklearn.datasets.load_diabetes(return_X_y=True)
            rows = slice(0, 342) if split == "train" else slice(342, None)
            return {"x": features[rows].astype("float32"), "y": targets[rows].astype("float32")}

Its fields become flags. Counts, shapes, dtypes and the fingerprint follow from the arrays.
"""

import dataclasses
import functools
import hashlib
import traceback
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.reading import overlap
from dawnjax.input_pipeline.reading.dataset import (
    ArraysSpec,
    DataError,
    DatasetSpec,
    DataSpec,
    Declaration,
    Split,
)
from dawnjax.input_pipeline.reading.image_set import channel_statistics, check_classes, check_images

MOST_COMPARED = 1_000_000
"""Most examples that are compared between the splits, which takes 1 s before each run."""

Examples = dict[str, np.ndarray]
"""The arrays of a split, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrays:
    """Arrays of any names: a subclass defines `arrays` and a `TAG`."""

    TAG: ClassVar[str] = "arrays"

    def arrays(self, split: Split) -> Mapping[str, np.ndarray]:
        """Arrays [num_examples, ...] of a split, of numbers of up to 32 bits, the same at each
        call.
        """
        raise DataError(
            f"{type(self).__name__} has no method arrays(self, split) that returns its arrays; "
            "docs/extending.md shows one"
        )

    def spec(self) -> Any:
        """Count and shapes: an `ArraysSpec`, or what a subclass's `describe` returns."""
        return _described(self)[0]

    def load(self, split: Split) -> Examples:
        """Arrays of a split, 64-bit integers as int32; DataError if they are others than before."""
        examples = _read(self, split)
        # `spec` read them before the clock; here they are read again, so that the clock holds it.
        if _digest(examples) != _described(self)[1][split]:
            raise DataError(
                f"{type(self).__name__}.arrays({split!r}) returned different values than before; "
                "a run needs the same values each time: fix the seed of its random numbers"
            )
        return examples

    def describe(self, splits: dict[Split, Examples], fingerprint: str) -> DataSpec:
        """Specification of both splits; DataError where a task could not use them."""
        shapes = {
            split: {name: (array.shape[1:], array.dtype.name) for name, array in examples.items()}
            for split, examples in splits.items()
        }
        counts = {split: len(next(iter(examples.values()))) for split, examples in splits.items()}
        return ArraysSpec(
            num_train_examples=counts["train"],
            num_eval_examples=counts["eval"],
            train_shapes=shapes["train"],
            eval_shapes=shapes["eval"],
            fingerprint=fingerprint,
            declaration=self._declaration(splits, list(splits["train"]), "examples"),
        )

    def _declaration(
        self, splits: dict[Split, Examples], names: list[str], unit: str
    ) -> Declaration:
        """Declaration of the splits, compared by the arrays of some names."""
        name, both = self.TAG.replace("_", " "), [splits["train"], splits["eval"]]
        forms = [
            [(key, it[key].dtype, it[key].shape[1:]) for key in names if key in it] for it in both
        ]
        few = sum(len(examples[names[0]]) for examples in both) <= MOST_COMPARED
        if forms[0] != forms[1] or not few:
            return Declaration(name=name)
        sides = [overlap.rows(*(examples[key] for key in names)) for examples in both]
        return Declaration(name=name, overlap=overlap.shared(sides[0], sides[1], unit))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageArrays(Arrays):
    """Labelled images in memory, for classification.

    `arrays` returns `image`, uint8 [num_examples, height, width, channels], and `label`, integers
    from 0. The train split's mean and standard deviation normalize both.
    """

    TAG: ClassVar[str] = "image_arrays"

    def classes(self) -> tuple[str, ...]:
        """Name of each class, indexed by label; a subclass may give real names."""
        return tuple(str(label) for label in range(self.spec().num_classes))

    def load(self, split: Split) -> Examples:
        examples = super().load(split)
        return {"image": examples["image"], "label": examples["label"].astype(np.int32)}

    def describe(self, splits: dict[Split, Examples], fingerprint: str) -> DatasetSpec:
        for split, examples in splits.items():
            where = f"{type(self).__name__}.arrays({split!r}):"
            if set(examples) != {"image", "label"}:
                names = ", ".join(map(repr, examples))
                raise DataError(f"{where} {names} given; wanted 'image' and 'label'")
            image, label = examples["image"], examples["label"]
            check_images(f"{where} 'image' is", image)
            shape = splits["train"]["image"].shape[1:]
            if image.shape[1:] != shape:
                raise DataError(
                    f"{where} 'image' is {image.shape[1:]}, but {shape} in the training split"
                )
            if label.dtype.kind not in "iu" or label.ndim != 1:
                raise DataError(f"{where} 'label' is {label.dtype} {label.shape}; wanted integers")
        labels: dict[Split, np.ndarray] = {s: splits[s]["label"] for s in ("train", "eval")}
        names = self.classes() if type(self).classes is not ImageArrays.classes else None
        num_classes = check_classes(f"{type(self).__name__}.arrays:", labels, names)
        mean, std = channel_statistics(splits["train"]["image"])
        height, width, channels = splits["train"]["image"].shape[1:]
        return DatasetSpec(
            num_train_examples=len(splits["train"]["label"]),
            num_eval_examples=len(splits["eval"]["label"]),
            image_shape=(height, width, channels),
            num_classes=num_classes,
            mean=mean,
            std=std,
            fingerprint=fingerprint,
            declaration=self._declaration(splits, ["image"], "images"),
        )


# Both `spec` and `load` ask for it, and the arrays may be slow to make.
@functools.lru_cache(maxsize=4)
def _described(data: Arrays) -> tuple[DataSpec, dict[Split, str]]:
    splits: dict[Split, Examples] = {split: _read(data, split) for split in ("train", "eval")}
    digests: dict[Split, str] = {split: _digest(examples) for split, examples in splits.items()}
    fingerprint = hashlib.sha256("".join(digests.values()).encode()).hexdigest()[:16]
    return data.describe(splits, fingerprint), digests


def _read(data: Arrays, split: Split) -> Examples:
    where = f"{type(data).__name__}.arrays({split!r})"
    try:
        returned = data.arrays(split)
    except (DataError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # whatever that code does wrong, sys.exit too: say where
        frame = traceback.extract_tb(error.__traceback__)[1:2]
        line = f" at {frame[0].filename}:{frame[0].lineno}" if frame else ""
        reason = " ".join(str(error).split())
        raise DataError(f"{where} failed{line}: {type(error).__name__}: {reason}") from error
    if not isinstance(returned, Mapping) or not returned:
        raise DataError(f"{where} returned {type(returned).__name__}; wanted arrays by name")
    examples = {str(name): np.atleast_1d(array) for name, array in returned.items()}
    lengths = {name: len(array) for name, array in examples.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        counts = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(f"{where}: examples: {counts}; wanted the same number, 1 or more")
    for name, array in examples.items():
        if array.dtype in (np.int64, np.uint64) and (array == array.astype(np.int32)).all():
            examples[name] = array.astype(np.int32)
        elif array.dtype.kind not in "biuf" or array.dtype.itemsize > 4:
            raise DataError(
                f"{where}: {name!r} is {array.dtype}, but devices compute with at most 32 bits: "
                "add .astype('float32') or .astype('int32')"
            )
    return examples


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(examples.items()):
        # Without form and name, other arrays of the same bytes would have the same hash.
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
