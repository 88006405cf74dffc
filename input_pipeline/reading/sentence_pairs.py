"""Pairs of sentences from two files of text, and a test set of them, encoded.

Files are UTF-8, plain, .gz or .xz; line n of the target translates line n of the source.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence

import numpy as np

from dawnjax.input_pipeline.reading import text_files, vocabulary
from dawnjax.input_pipeline.reading.dataset import DataError

MOST_BYTES = 2**34
"""Limit of an unpacked file of sentences; WMT's have 1 GB."""

MOST_LINE_BYTES = 2**16
MOST_EVAL_LINE_BYTES = 4096
"""Of a sentence to translate: attention takes memory by the square of the longest one's tokens. No
sentence of WMT's test sets has 1,200 bytes."""

FEWEST_LINE_BYTES = 4
"""Mean of a file of more than a million lines; blank lines cost far more memory than they have
bytes."""


def read_pairs(
    source: pathlib.Path, target: pathlib.Path, most_line_bytes: int = MOST_LINE_BYTES
) -> tuple[list[str], list[str]]:
    """Lines of two files, equal in number."""
    sides = _read_lines(source, most_line_bytes), _read_lines(target, most_line_bytes)
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{source} has {len(sides[0]):,} lines and {target} {len(sides[1]):,}; line n of the "
            "target must be the translation of line n of the source"
        )
    return sides


def _read_lines(path: pathlib.Path, most_line_bytes: int) -> list[str]:
    text = text_files.read(path, MOST_BYTES)
    count = text.count("\n") or text.count("\r")
    if count > 10**6 and len(text) < FEWEST_LINE_BYTES * count:
        raise DataError(f"{path}: {count:,} lines of {len(text):,} characters are not sentences")
    lines = [line.strip() for line in text_files.lines_of(text)]
    if not lines[-1]:  # behind the end of the last line
        lines.pop()
    for number, line in enumerate(lines, 1):
        # A character has at most four bytes: most lines need not be encoded to be counted.
        if 4 * len(line) > most_line_bytes and (size := len(line.encode())) > most_line_bytes:
            raise DataError(
                f"{path}: line {number} has {size:,} bytes, and a sentence at most "
                f"{most_line_bytes:,}; split it"
            )
    return lines


@dataclasses.dataclass(frozen=True)
class EvaluatedText:
    """Sentences to translate and their references, encoded.

    Attributes:
      arrays: `source` and `target`, uint16 [pairs, longest], shortest source first.
      references: The target sentences as they were, in the same order.
    """

    arrays: dict[str, np.ndarray]
    references: tuple[str, ...]
    fingerprint: str


def read_test_set(
    source: pathlib.Path, target: pathlib.Path, words: vocabulary.Vocabulary
) -> EvaluatedText:
    """Read two files of text as a split to evaluate, in an existing vocabulary."""
    sources, targets = read_pairs(source, target, MOST_EVAL_LINE_BYTES)
    if not sources:
        raise DataError(f"{source}: no sentence pairs")
    digest = hashlib.sha256("\n".join([*sources, *targets]).encode())
    arrays, references = evaluated_arrays(sources, targets, words)
    return EvaluatedText(arrays, references, digest.hexdigest()[:16])


def evaluated_arrays(
    sources: list[str], targets: list[str], words: vocabulary.Vocabulary
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    source_tokens, target_tokens = words.encode(sources), words.encode(targets)
    # Sentences of like length are translated together, so that a batch ends soon.
    order = sorted(range(len(source_tokens)), key=lambda row: (len(source_tokens[row]), row))
    arrays = {}
    for side, tokens in (("source", source_tokens), ("target", target_tokens)):
        longest = max(len(sentence) for sentence in tokens)
        arrays[side], _ = filled([[tokens[row]] for row in order], longest)
    return arrays, tuple(targets[row] for row in order)


def filled(rows: Sequence[Sequence[np.ndarray]], room: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences side by side, uint16 [rows, room], and their places in a row, uint8, from 1."""
    filled = np.zeros((len(rows), room), np.uint16)
    segments = np.zeros((len(rows), room), np.uint8)
    for number, row in enumerate(rows):
        start = 0
        for segment, sentence in enumerate(row, start=1):
            end = start + len(sentence)
            filled[number, start:end], segments[number, start:end] = sentence, segment
            start = end
    return filled, segments
