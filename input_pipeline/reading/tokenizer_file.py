"""Hugging Face's `tokenizer.json`: from documents to tokens, and back, through its own library.

Source: huggingface/tokenizers, `bindings/python/py_src/tokenizers/tokenizers.pyi`.
"""

import contextlib
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from dawnjax.errors import install
from dawnjax.input_pipeline.reading.bounded import Bounded, BoundedError
from dawnjax.input_pipeline.reading.dataset import DataError

MOST_BYTES = 2**25
"""Limit of the file: Llama 3's has 9 MB, the largest published files 33 MB."""

MOST_TOKENS = 2**18

_MEMORY_BYTES, _BYTES_A_SECOND = 352 * 2**20, 2**22
"""The library and its interpreter have 115 MiB of addresses, and it loads 10 MB in a second."""

MOST_DOCUMENT_BYTES, BATCH_BYTES = 2**22, 2**20
"""Of a document, which is encoded whole: what stands around a cut would change its tokens. Of
smaller ones that are encoded together."""


class TokenizerFile:
    """A tokenizer, from the content of its file.

    Attributes:
      sha256: Hash of the content.
      size: Tokens of its vocabulary: the largest number that it gives, and one.
    """

    def __init__(self, content: bytes, where: str):
        self._where = where
        self.sha256 = hashlib.sha256(content).hexdigest()
        if importlib.util.find_spec("tokenizers") is None:
            raise DataError(f"{where}: reading it needs tokenizers ({install('tokenizers')})")
        with self._named():
            self._tokenizer = Bounded(
                Tokenizer,
                content,
                num_bytes=len(content),
                memory=_MEMORY_BYTES,
                bytes_a_second=_BYTES_A_SECOND,
            )
        self.size = self._ask("size")
        if self.size < 2:
            raise DataError(f"{where}: has {self.size} tokens; 2 are needed")

    def separator(self, token: str | None) -> int:
        """Number of a token, or of the one that the tokenizer itself begins a text with."""
        if token is not None:
            number = self._ask("number", token)
            if number is None:
                raise DataError(
                    f"{self._where}: has no token {token[:60]!r}; give another separator"
                )
            return number
        first = self._ask("first")
        if len(first) != 1:
            raise DataError(
                f"{self._where}: begins a text with {len(first)} tokens; choose the token that "
                "begins a document with --separator=TOKEN"
            )
        return first[0]

    def encoded(self, documents: Sequence[str]) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield each document's tokens, uint32 [tokens], and whether they decode to it.

        Markers that stand in a document are text.
        """
        batch: list[str] = []
        num_bytes = 0
        for number, text in enumerate(documents, 1):
            length = len(text.encode())
            if length > MOST_DOCUMENT_BYTES:
                raise DataError(
                    f"{self._where}: document {number} has {length:,} bytes, and a tokenizer takes "
                    f"{MOST_DOCUMENT_BYTES:,} at once; --documents=blank_lines makes smaller ones"
                )
            if batch and num_bytes + length > BATCH_BYTES:
                yield from self._ask("encoded", batch)
                batch, num_bytes = [], 0
            batch.append(text)
            num_bytes += length
        yield from self._ask("encoded", batch)

    def encode(self, text: str) -> list[int]:
        [(tokens, _)] = self._ask("encoded", [text])
        return tokens.tolist()

    def decode(self, tokens: Sequence[int]) -> str:
        return self._ask("decode", [int(token) for token in tokens])

    def bytes_of_token(self) -> list[int]:
        """Bytes of text of each token, 0 for markers; empty where its letters are not bytes."""
        return self._ask("bytes_of_token", self.size)

    def _ask(self, method: str, *arguments: Any) -> Any:
        with self._named():
            return self._tokenizer.ask(method, *arguments)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BoundedError as error:
            where = self._where
            raise DataError(
                f"{where}: is not a tokenizer.json, or a damaged one: {error}"
            ) from None


class _Model(msgspec.Struct):
    vocab: dict[str, Any] | list[Any] = []


class _File(msgspec.Struct):
    """What is counted of a file before the library makes much more of it."""

    model: _Model = msgspec.field(default_factory=_Model)
    added_tokens: list[Any] = []

    @classmethod
    def check(cls, content: bytes) -> None:
        made = msgspec.json.decode(content, type=cls)
        size = max(len(made.model.vocab), len(made.added_tokens))
        if size > MOST_TOKENS:
            raise ValueError(f"it has {size:,} tokens; at most {MOST_TOKENS:,} are read")


class Tokenizer:
    """What the library does, in a process of its own."""

    def __init__(self, content: bytes):
        import tokenizers  # pyright: ignore[reportMissingImports]

        with contextlib.suppress(msgspec.DecodeError):  # of which the library says more
            _File.check(content)
        made = tokenizers.Tokenizer.from_str(content.decode())
        # Text that looks like a marker is text: no document may forge a separator.
        made.encode_special_tokens = True
        made.no_truncation()
        made.no_padding()
        self._tokenizer = made
        self._is_byte_level = isinstance(made.decoder, tokenizers.decoders.ByteLevel)

    def size(self) -> int:
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def number(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def first(self) -> list[int]:
        return self._tokenizer.encode("", add_special_tokens=True).ids

    def encoded(self, texts: list[str]) -> list[tuple[np.ndarray, bool]]:
        """Tokens of each text, uint32, and whether they decode to the text itself."""
        rows = [
            row.ids for row in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]
        again = self._tokenizer.decode_batch(rows, skip_special_tokens=False)
        return [
            (np.array(ids, np.uint32), text == found)
            for ids, text, found in zip(rows, texts, again, strict=True)
        ]

    def decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens)

    def bytes_of_token(self, size: int) -> list[int]:
        """Bytes of text of each token, 0 for markers; empty where its letters are not bytes."""
        if not self._is_byte_level:
            return []
        counts = [0] * size
        for token, number in self._tokenizer.get_vocab(with_added_tokens=False).items():
            counts[number] = len(token)  # a letter stands for a byte
        for number, added in self._tokenizer.get_added_tokens_decoder().items():
            counts[number] = 0 if added.special else len(added.content.encode())
        return counts
