"""Rows of one length of a stream of tokens, and what a task knows of them.

    train: {"tokens": uint16 [rows, length + 1]}
    eval:  {"tokens": uint16 [rows, length + 1], "num_targets": int32 [rows]}

Row i begins with token i * length, and its last token is the next row's first: each token but the
stream's first is predicted once. A training stream ends with its last whole row; the last row to
evaluate is filled with separators, and `num_targets` counts the tokens before them.

Rows that are `apart` have `length` tokens each, followed by a separator that is not a target, and
share no token. With a mask an evaluation also has `is_target`, bool [rows, length], and counts no
others.
"""

import dataclasses
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading.dataset import Declaration, Shapes, Spec, Split
from dawnjax.input_pipeline.reading.token_words import Words


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenSpec(Spec):
    """Counts and shapes of a stream of tokens.

    Attributes:
      num_train_examples: Rows to train on; an epoch is this many.
      sequence_length: Tokens that a row predicts.
      separator: The token that begins a document.
      bytes_of_token: Bytes of text that each token stands for; empty where that is not known.
      are_apart: Rows have no token in common, so a row's last token predicts none.
      has_mask: Whether an evaluation has `is_target`.
    """

    sequence_length: int
    vocabulary_size: int
    separator: int
    vocabulary: str
    bytes_of_token: tuple[int, ...] = dataclasses.field(default=(), compare=False, repr=False)
    are_apart: bool = False
    has_mask: bool = False

    @property
    def targets_a_row(self) -> int:
        return self.sequence_length - self.are_apart

    def example_shapes(self, split: Split) -> Shapes:
        shapes: Shapes = {"tokens": ((self.sequence_length + 1,), dtype_of(self.vocabulary_size))}
        if split == "train":
            return shapes
        mask: Shapes = {"is_target": ((self.sequence_length,), "bool")} if self.has_mask else {}
        return {**shapes, "num_targets": ((), "int32"), **mask}

    def batch_elements(self, batch_size: int) -> int:
        return batch_size * self.sequence_length * self.vocabulary_size


def dtype_of(vocabulary_size: int) -> str:
    return "uint16" if vocabulary_size <= 2**16 else "uint32"


def token_spec(
    num_train_tokens: int,
    num_eval_tokens: int,
    sequence_length: int,
    words: Words,
    fingerprint: str,
    declaration: Declaration,
    *,
    are_apart: bool = False,
) -> TokenSpec:
    return TokenSpec(
        num_train_examples=_num_rows(num_train_tokens, sequence_length, "train", are_apart),
        num_eval_examples=_num_rows(num_eval_tokens, sequence_length, "eval", are_apart),
        sequence_length=sequence_length,
        vocabulary_size=words.size,
        separator=words.separator,
        vocabulary=words.name,
        fingerprint=fingerprint,
        bytes_of_token=words.bytes_of_token,
        are_apart=are_apart,
        declaration=declaration,
    )


def _num_rows(num_tokens: int, length: int, split: Split, are_apart: bool) -> int:
    if are_apart:
        return num_tokens // length
    return (num_tokens - 1) // length if split == "train" else -(-(num_tokens - 1) // length)


def rows_of(
    stream: np.ndarray,
    num_tokens: int,
    length: int,
    separator: int,
    split: Split,
    dtype: str = "uint16",
    *,
    are_apart: bool = False,
) -> dict[str, Any]:
    """Arrays of a split; separators fill the last row to evaluate, and follow rows apart."""
    num_rows = _num_rows(num_tokens, length, split, are_apart)
    stream = np.asarray(stream[:num_tokens]).astype(dtype, copy=False)
    if are_apart:
        rows = stream[: num_rows * length].reshape(num_rows, length)
        tokens = np.pad(rows, ((0, 0), (0, 1)), constant_values=separator)
    else:
        missing = max(0, num_rows * length + 1 - num_tokens)
        padded = np.pad(stream, (0, missing), constant_values=separator) if missing else stream
        # A view: nothing of a mapped stream is read before its rows are asked for.
        tokens = np.lib.stride_tricks.sliding_window_view(padded, length + 1)[::length][:num_rows]
    if split == "train":
        return {"tokens": tokens}
    counts = np.minimum(length, num_tokens - 1 - length * np.arange(num_rows))
    counts = np.full(num_rows, length - 1) if are_apart else counts
    return {"tokens": tokens, "num_targets": counts.astype(np.int32)}
