"""What every dataset gives: a specification before the clock starts, verified arrays after it.

A dataset is a frozen config with two methods. `spec()` reads metadata only and never an example,
so a run may call it before its clock starts. `load(split)` gives all examples of a split, verified,
and belongs on the clock:

    {"image": uint8 [num_examples, height, width, channels], "label": int32 [num_examples]}
"""

import dataclasses
from typing import Literal

Split = Literal["train", "eval"]


class DataError(Exception):
    """Data that is missing, damaged or not what it should be; the message is one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The counts and shapes of an image dataset, known without reading an example.

    Attributes:
      num_train_examples: Examples in the train split; an epoch is this many.
      num_eval_examples: Examples in the eval split.
      image_shape: (height, width, channels) in pixels; pixels are uint8.
      num_classes: Labels are 0 to num_classes - 1.
      mean: Per channel, of pixel / 255.
      std: Per channel, of pixel / 255. A normalized pixel is (pixel / 255 - mean) / std.
      fingerprint: Tells two contents of the same shape apart: equal for equal examples in equal
        order, so that a run is not resumed on other data. 16 hex digits.
    """

    num_train_examples: int
    num_eval_examples: int
    image_shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str
