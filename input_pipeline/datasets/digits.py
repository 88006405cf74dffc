"""Handwritten digits: 1,797 real images of 8x8 pixels that come with DawnJAX.

They are the test part of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin and
Kaynak, 1998; CC BY 4.0), which scikit-learn's `load_digits` has too, split as its
`train_test_split` does.
"""

import dataclasses
import functools
import hashlib
import pathlib
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.reading import class_subset
from dawnjax.input_pipeline.reading.dataset import DatasetSpec, Declaration, Overlap, Split
from dawnjax.input_pipeline.reading.labelled_images import read_npz

FILE = pathlib.Path(__file__).parents[1] / "digits_data" / "digits.npz"

NUM_EXAMPLES = 1797
NUM_TRAIN_EXAMPLES = 900
NUM_CLASSES = 10
IMAGE_SHAPE = (8, 8, 1)
LARGEST_LEVEL = 16
"""A pixel counts the set bits of a 4x4 block: 0 to 16."""

TABLE_CRC32 = 0xE7D89AA3
"""CRC32 of the 1,797 x 65 table (64 levels, then the label) as uint8, row by row."""

# Of pixel / 255 over the 900 training images of split seed 0. Other splits use them too: the
# normalization is a constant of the recipe, and they differ in the third digit.
MEAN = (0.3039,)
STD = (0.3750,)


_OVERLAP = Overlap(shared=0, compared=NUM_EXAMPLES - NUM_TRAIN_EXAMPLES, unit="images")
"""No two of the images are equal, so no split shares one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """900 training and 897 test images of handwritten digits, stratified by class.

    On the split of seed 0 one nearest neighbour classifies 886 of the 897 test images.

    Attributes:
      split_seed: Seed of the split into training and test images. It is separate from a trial's
        seed, so all trials are measured on the same images.
      kept_classes: Digits to keep, which get labels from 0 on in this order; empty keeps all ten.
    """

    TAG: ClassVar[str] = "digits"
    split_seed: int = 0
    kept_classes: tuple[int, ...] = ()

    def spec(self) -> DatasetSpec:
        """Counts and shapes; constants, nothing is read where all classes are kept."""
        if not 0 <= self.split_seed < 2**32:
            raise ValueError(f"data.split_seed={self.split_seed} must lie in 0 to 2**32 - 1")
        _read.cache_clear()  # the next run of this process reads it on its own clock
        content = f"digits {TABLE_CRC32:08x} split {self.split_seed}"
        spec = DatasetSpec(
            num_train_examples=NUM_TRAIN_EXAMPLES,
            num_eval_examples=NUM_EXAMPLES - NUM_TRAIN_EXAMPLES,
            image_shape=IMAGE_SHAPE,
            num_classes=NUM_CLASSES,
            mean=MEAN,
            std=STD,
            fingerprint=hashlib.sha256(content.encode()).hexdigest()[:16],
            declaration=Declaration(name="scikit-learn's digits", overlap=_OVERLAP),
        )
        if not self.kept_classes:
            return spec
        counts: dict[Split, list[int]] = {
            split: np.bincount(self._load(split)["label"]).tolist() for split in ("train", "eval")
        }
        _read.cache_clear()
        return class_subset.subset_spec(spec, self.kept_classes, counts, "scikit-learn's digits")

    def load(self, split: Split) -> dict[str, np.ndarray]:
        """Images uint8 [N, 8, 8, 1] and labels int32 [N] of one split."""
        arrays = self._load(split)
        return class_subset.subset(arrays, self.kept_classes) if self.kept_classes else arrays

    def _load(self, split: Split) -> dict[str, np.ndarray]:
        levels, labels = _read()
        # Levels 0 to 16 become pixels 0 to 255, rounded half up; no two levels share a pixel.
        images = ((255 * levels.astype(np.int32) + 8) // LARGEST_LEVEL).astype(np.uint8)
        train, evaluation = stratified_split(labels, NUM_TRAIN_EXAMPLES, self.split_seed)
        rows = train if split == "train" else evaluation
        return {"image": images[rows].reshape(-1, *IMAGE_SHAPE), "label": labels[rows]}

    def classes(self) -> tuple[str, ...]:
        return tuple(str(digit) for digit in self.kept_classes or range(NUM_CLASSES))


@functools.cache
def _read() -> tuple[np.ndarray, np.ndarray]:
    """Levels uint8 [1797, 8, 8] from 0 to 16, and labels int32 [1797]."""
    arrays = read_npz(FILE, ("levels", "labels"))
    return arrays["levels"], arrays["labels"].astype(np.int32)


def stratified_split(
    labels: np.ndarray, num_first: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Shuffled rows of two parts, each class having its share of both.

    They are those of scikit-learn's `train_test_split(train_size=num_first, stratify=labels,
    random_state=seed)`. The streams of NumPy's `RandomState` are frozen for good (NEP 19), so the
    split is the same under every version of both.
    """
    random = np.random.RandomState(seed)
    class_sizes = np.bincount(labels)
    first_sizes = _proportional_counts(class_sizes, num_first, random)
    # The second part takes all that is left; nothing is drawn for it.
    first, second = [], []
    for label, (size, first_size) in enumerate(zip(class_sizes, first_sizes, strict=True)):
        members = np.flatnonzero(labels == label)[random.permutation(size)]
        first.append(members[:first_size])
        second.append(members[first_size:])
    return random.permutation(np.concatenate(first)), random.permutation(np.concatenate(second))


def _proportional_counts(
    class_sizes: np.ndarray, total: int, random: np.random.RandomState
) -> np.ndarray:
    """Share `total` among classes by size: largest remainders first, equal ones at random."""
    exact = class_sizes / class_sizes.sum() * total
    counts = np.floor(exact).astype(np.int64)
    remainders = exact - counts
    missing = total - int(counts.sum())
    for remainder in np.unique(remainders)[::-1]:
        if missing == 0:
            break
        (tied,) = np.nonzero(remainders == remainder)
        chosen = random.choice(tied, size=min(len(tied), missing), replace=False)
        counts[chosen] += 1
        missing -= len(chosen)
    return counts
