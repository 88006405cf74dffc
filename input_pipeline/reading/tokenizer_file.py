"""Hugging Face's `tokenizer.json`: from documents to tokens, and back, through its own library.

Source: huggingface/tokenizers, `bindings/python/py_src/tokenizers/tokenizers.pyi`.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading.dataset import DataError

MOST_BYTES = 2**25
"""Of the file: Llama 3's has 9 MB, and the largest published ones 33 MB."""

MOST_DOCUMENT_BYTES = 2**22
"""Of a document, which is encoded whole: what stands around a cut would change its tokens."""


class TokenizerFile:
    """A tokenizer, from the content of its file.

    Attributes:
      sha256: Hash of the content.
      size: Tokens of its vocabulary: the largest number that it gives, and one.
    """

    def __init__(self, content: bytes, where: str):
        self._where = where
        self.sha256 = hashlib.sha256(content).hexdigest()
        try:
            import tokenizers  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise DataError(
                f"{where}: reading it needs tokenizers (pip install -e '.[tokenizers]')"
            ) from None
        with self._named_errors():
            self._tokenizer = tokenizers.Tokenizer.from_str(content.decode())
            # Text that looks like a marker is text: no document may forge a separator.
            self._tokenizer.encode_special_tokens = True
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            numbers = self._tokenizer.get_vocab(with_added_tokens=True).values()
        self.size = max(numbers, default=-1) + 1
        if self.size < 2:
            raise DataError(f"{where}: has {self.size} tokens; 2 are needed")
        self._is_byte_level = isinstance(self._tokenizer.decoder, tokenizers.decoders.ByteLevel)

    def separator(self, token: str | None) -> int:
        """Number of a token, or of the one that the tokenizer itself begins a text with."""
        if token is not None:
            number = self._tokenizer.token_to_id(token)
            if number is None:
                raise DataError(
                    f"{self._where}: has no token {token[:60]!r}; give another separator"
                )
            return number
        with self._named_errors():
            first = self._tokenizer.encode("", add_special_tokens=True).ids
        if len(first) != 1:
            raise DataError(
                f"{self._where}: begins a text with {len(first)} tokens; give the token that "
                "begins a document as --separator=TOKEN"
            )
        return first[0]

    def encoded(self, documents: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the tokens of each document, without markers: uint32 [tokens]."""
        batch: list[str] = []
        num_bytes = 0
        for number, text in enumerate(documents, 1):
            length = len(text.encode())
            if length > MOST_DOCUMENT_BYTES:
                raise DataError(
                    f"{self._where}: document {number} has {length:,} bytes, and a tokenizer takes "
                    f"{MOST_DOCUMENT_BYTES:,} at once; --documents=blank_lines makes smaller ones"
                )
            if batch and num_bytes + length > MOST_DOCUMENT_BYTES:
                yield from self._encoded(batch)
                batch, num_bytes = [], 0
            batch.append(text)
            num_bytes += length
        yield from self._encoded(batch)

    def _encoded(self, batch: list[str]) -> list[np.ndarray]:
        with self._named_errors():
            rows = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        return [np.array(row.ids, np.uint32) for row in rows]

    def encode(self, text: str) -> list[int]:
        with self._named_errors():
            return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        with self._named_errors():
            return self._tokenizer.decode([int(token) for token in tokens])

    def bytes_of_token(self) -> list[int]:
        """Bytes of text of each token, 0 for markers; empty where its letters are no bytes."""
        if not self._is_byte_level:
            return []
        counts = [0] * self.size
        for token, number in self._tokenizer.get_vocab(with_added_tokens=False).items():
            counts[number] = len(token)  # a letter stands for a byte
        for number, added in self._tokenizer.get_added_tokens_decoder().items():
            counts[number] = 0 if added.special else len(added.content.encode())
        return counts

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[Any]:
        try:
            yield
        except DataError:
            raise
        except BaseException as error:
            # A panic of the library's Rust is no Exception.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            words = " ".join(str(error).split())[:200] or type(error).__name__
            raise DataError(
                f"{self._where}: is no tokenizer.json, or a damaged one: {words}"
            ) from None
