"""Meaning of the tokens of a shard: their number, the separator, and the bytes of each.

A directory of shards may hold `vocabulary.json`, such as `{"separator": 1, "bytes_of_token": [0, 0,
1, ...]}`; bytes are those of UTF-8 text, 0 for markers such as the separator.
"""

import dataclasses
import json
import pathlib

from dawnjax.input_pipeline.reading import text_files
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

FILE = "vocabulary.json"

MOST_TOKENS = 2**16
"""Of a file's vocabulary."""

MOST_BYTES = 4 * 2**20
"""Of the file, with 64 bytes for each token."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Words:
    """A vocabulary of tokens 0 to size - 1; `bytes_of_token` is empty where it is not known."""

    name: str
    size: int
    separator: int
    bytes_of_token: tuple[int, ...] = ()


BYTES = Words(name="bytes", size=257, separator=256, bytes_of_token=(1,) * 256 + (0,))
GPT2 = Words(name="gpt2", size=50_257, separator=50_256)
LLAMA2 = Words(name="llama2", size=32_000, separator=1)
LLAMA3 = Words(name="llama3", size=128_256, separator=128_000)
KNOWN_WORDS = {words.name: words for words in (BYTES, GPT2, LLAMA2, LLAMA3)}


def read_words(directory: pathlib.Path) -> Words:
    path = directory / FILE
    try:
        fields = text_files.read_json(path, MOST_BYTES)
    except MissingDataError:
        raise MissingDataError(
            f"{path}: data.vocabulary=file needs this file; `dawnjax prepare "
            "--dataset=token_shards --vocabulary_size=N` makes it"
        ) from None
    counts = fields.get("bytes_of_token") if isinstance(fields, dict) else None
    if not isinstance(counts, list) or not all(type(n) is int and n >= 0 for n in counts):
        raise DataError(f"{path}: bytes_of_token must be a list of whole numbers from 0")
    if not 2 <= len(counts) <= MOST_TOKENS:
        raise DataError(f"{path}: bytes_of_token has {len(counts)} tokens; wanted 2 to 65536")
    separator = fields.get("separator")
    if type(separator) is not int or not 0 <= separator < len(counts):
        raise DataError(f"{path}: separator must be a token from 0 to {len(counts) - 1}")
    return Words(name="file", size=len(counts), separator=separator, bytes_of_token=tuple(counts))


def words_file(separator: int, bytes_of_token: list[int]) -> bytes:
    return json.dumps({"separator": separator, "bytes_of_token": bytes_of_token}).encode()
