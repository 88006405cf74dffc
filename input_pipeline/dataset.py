"""What every dataset gives: a specification before the clock starts, verified arrays after it.

A dataset is a frozen config with two methods. `spec()` reads metadata only and never an example,
so a run may call it before its clock starts. `load(split)` gives all examples of a split, verified,
and belongs on the clock:

    {"image": uint8 [num_examples, height, width, channels], "label": int32 [num_examples]}

of an image dataset; `TextSpec` says what parallel text gives.
"""

import dataclasses
import math
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

    def example_shapes(self, split: Split) -> dict[str, tuple[tuple[int, ...], str]]:
        """Gives shape and dtype of each array of one example."""
        del split  # both are alike
        return {"image": (self.image_shape, "uint8"), "label": ((), "int32")}

    def batch_elements(self, batch_size: int) -> int:
        """Gives the elements of the largest array that any model needs for a batch: its images."""
        return batch_size * math.prod(self.image_shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSpec:
    """The counts and shapes of prepared parallel text.

    A training example is a row that holds several sentence pairs, side by side; an example to
    evaluate is one pair. Tokens are uint16, 0 is padding, and each sentence ends with `end`.

        train: {"source", "source_segments": [num_train_examples, source_length],
                "target", "target_segments": [num_train_examples, target_length]}
        eval:  {"source": [num_eval_examples, eval_source_length],
                "target": [num_eval_examples, eval_target_length]}

    Attributes:
      num_train_examples: Packed rows; an epoch is this many.
      num_train_pairs: Sentence pairs in them.
      num_eval_examples: Sentence pairs to evaluate.
      source_length: Source tokens that a row has room for.
      target_length: Target tokens that a row has room for.
      eval_source_length: The longest source sentence to evaluate, in tokens.
      eval_target_length: The longest target sentence to evaluate, in tokens.
      vocabulary_size: Tokens of the joint vocabulary.
      end: The token that ends a sentence.
      fingerprint: As that of `DatasetSpec`; it covers vocabulary and references too.
    """

    num_train_examples: int
    num_train_pairs: int
    num_eval_examples: int
    source_length: int
    target_length: int
    eval_source_length: int
    eval_target_length: int
    vocabulary_size: int
    end: int
    fingerprint: str

    def example_shapes(self, split: Split) -> dict[str, tuple[tuple[int, ...], str]]:
        """Gives shape and dtype of each array of one example."""
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
        """Gives the elements of the largest array that any model needs for a batch: its logits."""
        return batch_size * self.target_length * self.vocabulary_size


AnySpec = DatasetSpec | TextSpec


def num_bytes(spec: AnySpec) -> int:
    """Gives the size of both splits in memory."""
    counts: dict[Split, int] = {"train": spec.num_train_examples, "eval": spec.num_eval_examples}
    item_bytes = {"uint8": 1, "uint16": 2, "int32": 4}
    return sum(
        count * math.prod(shape) * item_bytes[dtype]
        for split, count in counts.items()
        for shape, dtype in spec.example_shapes(split).values()
    )
