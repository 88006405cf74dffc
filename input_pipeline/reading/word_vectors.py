"""Published vectors of words, in the text form of GloVe: a line `word v1 ... vN` for each.

Source: Pennington et al. 2014, "GloVe: Global Vectors for Word Representation".
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from dawnjax.input_pipeline.reading import text_files
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

MOST_BYTES = 16 * 2**30
_MOST_LINE_BYTES = 2**16
MOST_VALUES = 4096
"""Limit of a word's vector; published vectors have 25 to 1,024 values."""

_FORM = "wanted `word v1 ... vN`, separated by single spaces"


def read_vectors(path: pathlib.Path, words: Sequence[str]) -> tuple[np.ndarray, int]:
    """Vectors of some words, float16 [words, N], and how many of the words have one.

    A word that the file lacks takes the vector of its lower case, or else zeros.
    """
    wanted = {word.encode() for word in words} | {word.lower().encode() for word in words}
    found: dict[bytes, np.ndarray] = {}
    width = 0
    try:
        for number, line in enumerate(text_files.lines(path, MOST_BYTES, _MOST_LINE_BYTES), 1):
            line = line.rstrip()  # some files end each line with a blank
            count = line.count(b" ")
            width = width or count
            if count != width or not count:
                raise DataError(
                    f"{path}:{number}: {count} values"
                    + (f" and {width} in line 1" if number > 1 else "")
                    + f"; {_FORM}"
                )
            if count > MOST_VALUES:
                raise DataError(f"{path}:{number}: {count} values; at most {MOST_VALUES} are read")
            word, _, values = line.partition(b" ")
            if word in wanted and word not in found:
                found[word] = _values(values, f"{path}:{number}")
    except MissingDataError:
        raise MissingDataError(
            f"data.word_vectors: {path}: no such file; name a file of vectors in GloVe's text "
            "format"
        ) from None
    if not found:
        raise DataError(f"{path}: has no vector for any of the {len(words):,} words; {_FORM}")
    vectors, known = np.zeros((len(words), width), np.float16), 0
    for row, word in enumerate(words):
        vector = found.get(word.encode(), found.get(word.lower().encode()))
        if vector is not None:
            vectors[row], known = vector, known + 1
    return vectors, known


def _values(text: bytes, where: str) -> np.ndarray:
    try:
        values = np.array(text.split(b" "), np.float32)
    except ValueError:
        values = np.array([np.nan])
    if not (np.abs(values) < np.finfo(np.float16).max).all():
        raise DataError(f"{where}: a value is not a float16 number; {_FORM}")
    return values.astype(np.float16)
