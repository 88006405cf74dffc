"""Meaning of tokens: their number, the separator, and the bytes of each.

A directory of tokens may hold `vocabulary.json`, such as `{"separator": 1, "bytes_of_token": [0, 0,
1, ...]}`; bytes are those of UTF-8 text, 0 for markers such as the separator. Where they are not
known it has `"size": N` in their place. Of the tokens of a `tokenizer.json` it has the hash of the
file, which lies beside it.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Protocol

from dawnjax.input_pipeline.reading import text_files
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError
from dawnjax.input_pipeline.reading.tokenizer_file import MOST_BYTES as MOST_TOKENIZER_BYTES
from dawnjax.input_pipeline.reading.tokenizer_file import MOST_TOKENS, TokenizerFile

FILE, TOKENIZER_FILE = "vocabulary.json", "tokenizer.json"

MOST_TOKEN_BYTES = 2**11 - 1
"""Limit of a token: the longest row has 2**20 tokens, and an int32 counts their bytes."""

MOST_BYTES = 4 * 2**20
"""Limit of the file: 64 bytes for each token."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Words:
    """A vocabulary of tokens 0 to size - 1; `bytes_of_token` is empty where it is not known.

    `tokenizer` is the hash of the `tokenizer.json` whose tokens these are; empty for others.
    """

    name: str
    size: int
    separator: int
    bytes_of_token: tuple[int, ...] = ()
    tokenizer: str = dataclasses.field(default="", repr=False)  # the text of it is hashed


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
            "--dataset=token_shards --tokenizer=FILE` makes it"
        ) from None
    counts = fields.get("bytes_of_token") if isinstance(fields, dict) else None
    size = fields.get("size") if isinstance(fields, dict) else None
    if counts is None and type(size) is int:
        counts = []
    if not isinstance(counts, list) or not all(
        type(n) is int and 0 <= n <= MOST_TOKEN_BYTES for n in counts
    ):
        raise DataError(
            f"{path}: bytes_of_token must be a list of whole numbers from 0 to {MOST_TOKEN_BYTES}"
        )
    size = len(counts) or size
    if type(size) is not int or not 2 <= size <= MOST_TOKENS:
        raise DataError(f"{path}: bytes_of_token has {size} tokens; wanted 2 to {MOST_TOKENS}")
    separator = fields.get("separator")
    if type(separator) is not int or not 0 <= separator < size:
        raise DataError(f"{path}: separator must be a token from 0 to {size - 1}")
    tokenizer = fields.get("tokenizer_sha256", "")
    if not isinstance(tokenizer, str):
        raise DataError(f"{path}: tokenizer_sha256 must be a hash of {TOKENIZER_FILE}")
    return Words(
        name="file",
        size=size,
        separator=separator,
        bytes_of_token=tuple(counts),
        tokenizer=tokenizer,
    )


def words_file(
    separator: int, bytes_of_token: list[int], size: int = 0, tokenizer: str = ""
) -> bytes:
    """Content of `vocabulary.json`; `size` where the bytes of a token are not known."""
    fields = {"separator": separator, "tokenizer_sha256": tokenizer} if tokenizer else {}
    known = {"bytes_of_token": bytes_of_token} if bytes_of_token else {"size": size}
    return json.dumps({"separator": separator, **fields, **known}).encode()


class TokenText(Protocol):
    """From text to tokens without a separator, and back."""

    def encode(self, text: str) -> Sequence[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...


class ByteText:
    """Tokens that are the bytes of a text in UTF-8."""

    def encode(self, text: str) -> Sequence[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


def token_text(words: Words, directory: pathlib.Path | None = None) -> TokenText:
    """Text of a vocabulary, whose `tokenizer.json` lies beside its tokens; DataError without."""
    if words.name == BYTES.name:
        return ByteText()
    if words.tokenizer and directory is not None:
        file = directory / TOKENIZER_FILE
        tokenizer = TokenizerFile(text_files.read_content(file, MOST_TOKENIZER_BYTES), str(file))
        if tokenizer.sha256 != words.tokenizer:
            raise DataError(f"{file}: is not the tokenizer that {FILE} names")
        return tokenizer
    raise DataError(
        f"the text of data.vocabulary={words.name} is not known: `dawnjax prepare "
        "--dataset=token_shards --tokenizer=FILE` keeps it beside the tokens"
    )
