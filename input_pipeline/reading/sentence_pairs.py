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
"""Of a file of sentences, unpacked; those of WMT have 1 GB."""


def read_pairs(source: pathlib.Path, target: pathlib.Path) -> tuple[list[str], list[str]]:
    """Lines of two files, equal in number."""
    sides = _read_lines(source), _read_lines(target)
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{source} has {len(sides[0]):,} lines and {target} {len(sides[1]):,}; line n of the "
            "target must be the translation of line n of the source"
        )
    return sides


def _read_lines(path: pathlib.Path) -> list[str]:
    text = text_files.read(path, MOST_BYTES)
    return [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []


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
    sources, targets = read_pairs(source, target)
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
