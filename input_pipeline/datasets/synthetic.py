"""Images made from a seed, for every input shape: nothing is read, and a model can learn them.

An image is its class's pattern of 4x4 cells plus noise of the same strength in each pixel. The
noise averages out over a cell, while a single pixel says little.
"""

import dataclasses
import hashlib
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.reading.dataset import DatasetSpec, Declaration, Split

CELLS = 4
"""A pattern has this many cells along each side of the image."""

# Pattern and noise are independent and each uniform on 0 to 127, so a pixel has mean 127 and
# variance 2 * (128**2 - 1) / 12 (the variance of a discrete uniform variable, twice).
MEAN = 127 / 255
STD = (2 * (128**2 - 1) / 12) ** 0.5 / 255

# Second word of the Philox key. The first is the seed; the orders of examples use the epochs,
# counted from 0, as their second word, and these lie beyond any epoch.
_PATTERN_STREAM = 2**63
_NOISE_STREAMS: dict[Split, int] = {"train": 2**63 + 1, "eval": 2**63 + 2}

_MOST_CHANNELS = 2**16
"""Each has a mean and a deviation in the specification, which an `experiment.json` asks for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Images of any shape whose class is a coarse pattern under noise.

    Attributes:
      num_train_examples: Examples in the train split.
      num_eval_examples: Examples in the eval split; other noise, the same patterns.
      image_height: In pixels.
      image_width: In pixels.
      image_channels: Channels, each with its own pattern.
      num_classes: Classes, in equal numbers (to within one example).
      seed: Seed of patterns and noise, apart from a trial's seed.
    """

    TAG: ClassVar[str] = "synthetic"
    num_train_examples: int = 1024
    num_eval_examples: int = 256
    image_height: int = 8
    image_width: int = 8
    image_channels: int = 1
    num_classes: int = 10
    seed: int = 0

    def spec(self) -> DatasetSpec:
        for field in dataclasses.fields(self):
            least = {"seed": 0, "num_classes": 2}.get(field.name, 1)
            if getattr(self, field.name) < least:
                value = getattr(self, field.name)
                raise ValueError(f"data.{field.name}={value} must be {least} or more")
        if self.image_channels > _MOST_CHANNELS:
            raise ValueError(
                f"data.image_channels={self.image_channels} is above {_MOST_CHANNELS:,}"
            )
        return DatasetSpec(
            num_train_examples=self.num_train_examples,
            num_eval_examples=self.num_eval_examples,
            image_shape=(self.image_height, self.image_width, self.image_channels),
            num_classes=self.num_classes,
            mean=(MEAN,) * self.image_channels,
            std=(STD,) * self.image_channels,
            fingerprint=hashlib.sha256(repr(self).encode()).hexdigest()[:16],
            declaration=Declaration(name="images made from a seed"),
        )

    def load(self, split: Split) -> dict[str, np.ndarray]:
        spec = self.spec()
        height, width, channels = spec.image_shape
        patterns = _random_bytes(
            self.seed, _PATTERN_STREAM, (spec.num_classes, CELLS, CELLS, channels)
        )
        rows = np.arange(height) * CELLS // height
        columns = np.arange(width) * CELLS // width
        patterns = patterns[:, rows][:, :, columns] >> 1
        count = spec.num_train_examples if split == "train" else spec.num_eval_examples
        labels = np.arange(count, dtype=np.int32) % spec.num_classes
        images = _random_bytes(self.seed, _NOISE_STREAMS[split], (count, *spec.image_shape))
        images >>= 1
        # Both summands are 127 at most, so the sum stays within uint8.
        for label in range(spec.num_classes):
            images[label :: spec.num_classes] += patterns[label]
        return {"image": images, "label": labels}

    def classes(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.num_classes))


def _random_bytes(seed: int, stream: int, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform uint8 of `shape`: the raw output of Philox, the same under any NumPy."""
    size = int(np.prod(shape))
    words = np.random.Philox(key=np.array([seed, stream], np.uint64)).random_raw(-(-size // 8))
    return words.astype("<u8", copy=False).view(np.uint8)[:size].reshape(shape)
