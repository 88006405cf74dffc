"""A dataset from NumPy arrays in memory, in a few lines of a person's own file.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Diabetes(Arrays):
        TAG: ClassVar[str] = "diabetes"

        def arrays(self, split):
            features, targets = sklearn.datasets.load_diabetes(return_X_y=True)
            rows = slice(0, 342) if split == "train" else slice(342, None)
            return {"x": features[rows].astype("float32"), "y": targets[rows].astype("float32")}

Its fields become flags. Counts, shapes, dtypes and the fingerprint follow from the arrays, which
are read twice: by `spec()` before a run's clock starts, and again by `load`, so that the clock
holds what reading them takes.
"""

import dataclasses
import functools
import hashlib
import traceback
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.dataset import ArraysSpec, DataError, DatasetSpec, DataSpec, Split
from dawnjax.input_pipeline.prepared import channel_statistics, check_labels

Read = dict[str, np.ndarray]
"""The arrays of a split, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrays:
    """Arrays of any names: define `arrays` in a subclass, and a `TAG`."""

    TAG: ClassVar[str] = "arrays"

    def arrays(self, split: Split) -> Mapping[str, np.ndarray]:
        """All examples of a split: the same arrays whenever it is called.

        Returns:
          Arrays [num_examples, ...] by name, of booleans or of numbers of up to 32 bits.
        """
        raise NotImplementedError

    def spec(self) -> Any:
        """Counts and shapes: an `ArraysSpec`, or what a subclass makes of its arrays.

        Raises:
          DataError: `arrays` failed, or returned something else than equally long arrays.
        """
        return _described(self)[0]

    def load(self, split: Split) -> Read:
        """The arrays of a split.

        Raises:
          DataError: As `spec`, or `arrays` does not return the same again.
        """
        arrays = _read(self, split)
        if _digest(arrays) != _described(self)[1][split]:
            raise DataError(
                f"{type(self).__name__}.arrays({split!r}) returned other values than before; a "
                "run needs the same each time: give its random numbers a fixed seed"
            )
        return arrays

    def checked(self, split: Split, arrays: Read) -> Read:
        """What is loaded of the arrays of a split; a subclass may ask more of them.

        Raises:
          DataError: The arrays do not fit; the message begins with the name of one.
        """
        del split
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf" or array.dtype.itemsize > 4:
                raise DataError(
                    f"{name!r} is {array.dtype}, but devices compute with numbers of up to 32 "
                    "bits: add .astype('float32') or .astype('int32')"
                )
        return arrays

    def described(self, splits: dict[Split, Read], fingerprint: str) -> DataSpec:
        """The specification of all arrays, checked."""
        shapes = {
            split: {name: (array.shape[1:], array.dtype.name) for name, array in arrays.items()}
            for split, arrays in splits.items()
        }
        return ArraysSpec(
            num_train_examples=_length(splits["train"]),
            num_eval_examples=_length(splits["eval"]),
            train_shapes=shapes["train"],
            eval_shapes=shapes["eval"],
            fingerprint=fingerprint,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageArrays(Arrays):
    """Labelled images in memory, for classification.

    `arrays` returns `image`, uint8 [num_examples, height, width, channels], and `label`, integers
    [num_examples] from 0. They are normalized with the train split's mean and standard deviation.
    """

    TAG: ClassVar[str] = "image_arrays"

    def classes(self) -> tuple[str, ...]:
        """The name of each class, a label being a position in it; a subclass may have real ones."""
        return tuple(str(label) for label in range(self.spec().num_classes))

    def checked(self, split: Split, arrays: Read) -> Read:
        """The two arrays, labels as int32."""
        if set(arrays) != {"image", "label"}:
            raise DataError(f"{', '.join(map(repr, arrays))} given; wanted 'image' and 'label'")
        image, label = arrays["image"], arrays["label"]
        if image.dtype != np.uint8 or image.ndim != 4:
            raise DataError(
                f"'image' is {image.dtype} {image.shape}; wanted uint8 [n, height, width, channels]"
            )
        if label.dtype.kind not in "iu" or label.ndim != 1:
            raise DataError(f"'label' is {label.dtype} {label.shape}; wanted integers [n]")
        has_names = type(self).classes is not ImageArrays.classes
        check_labels("'label':", label, len(self.classes()) if has_names else 2**31)
        return {"image": image, "label": label.astype(np.int32)}

    def described(self, splits: dict[Split, Read], fingerprint: str) -> DatasetSpec:
        """The specification of the images of both splits."""
        train, evaluated = splits["train"], splits["eval"]
        shape, eval_shape = train["image"].shape[1:], evaluated["image"].shape[1:]
        if shape != eval_shape:
            raise DataError(
                f"{type(self).__name__}: images to train on are {shape}, to evaluate {eval_shape}"
            )
        mean, std = channel_statistics(train["image"])
        most = max(int(arrays["label"].max()) for arrays in splits.values())
        has_names = type(self).classes is not ImageArrays.classes
        return DatasetSpec(
            num_train_examples=len(train["label"]),
            num_eval_examples=len(evaluated["label"]),
            image_shape=shape,
            num_classes=len(self.classes()) if has_names else most + 1,
            mean=mean,
            std=std,
            fingerprint=fingerprint,
        )


@functools.lru_cache(maxsize=4)
def _described(data: Arrays) -> tuple[DataSpec, dict[Split, str]]:
    """The specification, and the hash of each split."""
    splits: dict[Split, Read] = {split: _read(data, split) for split in ("train", "eval")}
    digests = {split: _digest(arrays) for split, arrays in splits.items()}
    fingerprint = hashlib.sha256("".join(digests.values()).encode()).hexdigest()[:16]
    return data.described(splits, fingerprint), digests


def _read(data: Arrays, split: Split) -> Read:
    """Reads a split in the user's code, and checks what comes back."""
    where = f"{type(data).__name__}.arrays({split!r})"
    if type(data).arrays is Arrays.arrays:
        raise DataError(
            f"{type(data).__name__} has no method arrays(self, split) that returns its arrays; "
            "docs/data.md shows one"
        )
    try:
        returned = data.arrays(split)
    except DataError:
        raise
    except Exception as error:  # whatever the user's code does wrong, say where
        frame = traceback.extract_tb(error.__traceback__)[1:2]
        line = f" at {frame[0].filename}:{frame[0].lineno}" if frame else ""
        reason = " ".join(str(error).split())
        raise DataError(f"{where} failed{line}: {type(error).__name__}: {reason}") from error
    if not isinstance(returned, Mapping) or not returned:
        raise DataError(f"{where} returned {type(returned).__name__}; wanted arrays by name")
    arrays = {str(name): np.asarray(array) for name, array in returned.items()}
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or not _length(arrays):
        counts = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(f"{where}: examples: {counts}; wanted one number of 1 or more")
    try:
        return data.checked(split, arrays)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _length(arrays: Read) -> int:
    first = next(iter(arrays.values()))
    return first.shape[0] if first.ndim else 0


def _digest(arrays: Read) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
