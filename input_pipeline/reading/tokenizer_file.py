"""Hugging Face's `tokenizer.json`: from documents to tokens, and back, through its own library.

The library runs in a process of bounded memory and time (`tokenizer_process`).

Source: huggingface/tokenizers, `bindings/python/py_src/tokenizers/tokenizers.pyi`.
"""

import contextlib
import hashlib
import importlib.util
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from dawnjax.errors import install
from dawnjax.input_pipeline.reading import tokenizer_process
from dawnjax.input_pipeline.reading.dataset import DataError

MOST_BYTES = 2**25
"""Of the file: Llama 3's has 9 MB, and the largest published ones 33 MB."""

MOST_DOCUMENT_BYTES, BATCH_BYTES = 2**22, 2**20
"""Of a document, which is encoded whole: what stands around a cut would change its tokens. Of
smaller ones that are encoded together."""

ANSWER_SECONDS, BYTES_A_SECOND = 10.0, 2**18
"""An answer takes at most so long, and a second more for so many bytes of the question; an idle
core encodes some MB a second."""

MOST_ANSWER_BYTES = 2**28
"""No batch of texts has more tokens than this many bytes hold."""


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
        per_byte = tokenizer_process.MEMORY_A_BYTE
        self._memory_bytes = tokenizer_process.MEMORY_BYTES + per_byte * len(content)
        self._process = subprocess.Popen(
            [sys.executable, "-P", tokenizer_process.__file__, str(self._memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Each thread's arena would take 64 MiB of the addresses.
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        )
        weakref.finalize(self, _end, self._process)
        self._send(content)
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
                f"{self._where}: begins a text with {len(first)} tokens; give the token that "
                "begins a document as --separator=TOKEN"
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
                yield from self._encoded(batch)
                batch, num_bytes = [], 0
            batch.append(text)
            num_bytes += length
        yield from self._encoded(batch)

    def _encoded(self, batch: list[str]) -> list[tuple[np.ndarray, bool]]:
        rows = self._ask("encoded", batch)
        return [(np.frombuffer(tokens, np.uint32), is_exact) for tokens, is_exact in rows]

    def encode(self, text: str) -> list[int]:
        [(tokens, _)] = self._encoded([text])
        return tokens.tolist()

    def decode(self, tokens: Sequence[int]) -> str:
        return self._ask("decode", [int(token) for token in tokens])

    def bytes_of_token(self) -> list[int]:
        """Bytes of text of each token, 0 for markers; empty where its letters are no bytes."""
        return self._ask("bytes_of_token", self.size)

    def _ask(self, method: str, argument: Any = None) -> Any:
        return self._send((method, argument))

    def _send(self, message: Any) -> Any:
        content = msgspec.msgpack.encode(message)
        length = tokenizer_process.LENGTH
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        ends = time.monotonic() + ANSWER_SECONDS + len(content) / BYTES_A_SECOND
        answer = None
        # A process that has died reads and answers nothing.
        with contextlib.suppress(BrokenPipeError, EOFError):
            stdin.write(length.pack(len(content)) + content)
            stdin.flush()
            [size] = length.unpack(self._read(length.size, ends))
            if size > MOST_ANSWER_BYTES:
                raise EOFError
            answer = msgspec.msgpack.decode(self._read(size, ends))
            if not isinstance(answer, dict):
                return answer
        if answer is not None:
            raise DataError(
                f"{self._where}: is no tokenizer.json, or a damaged one: {answer['error']}"
            )
        took_long = self._process.poll() is None and time.monotonic() >= ends
        _end(self._process)
        limit = f"{self._memory_bytes / 2**20:.0f} MiB of memory"
        if took_long:
            limit = f"{ANSWER_SECONDS + len(content) / BYTES_A_SECOND:.0f} s"
        raise DataError(f"{self._where}: its tokenizer needs more than {limit}")

    def _read(self, size: int, ends: float) -> bytes:
        """Read so many bytes of the process's answer; EOFError where it ends or takes too long."""
        stdout, parts = self._process.stdout, []
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while size:
                if not selector.select(max(0.0, ends - time.monotonic())):
                    raise EOFError
                part = os.read(stdout.fileno(), min(size, 2**20))
                if not part:
                    raise EOFError
                parts.append(part)
                size -= len(part)
        return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    process.wait()
