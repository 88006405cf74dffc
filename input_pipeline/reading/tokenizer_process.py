"""A stranger's tokenizer, in a process of its own: run as a script by `tokenizer_file`.

Four normalizers in a file of 2 KB can ask for 20 GB, and a panic of the library prints hundreds of
lines. Here the kernel bounds the memory, the parent the time, and nothing is printed.

Each message is a length, 4 bytes, and so many bytes of msgpack. The first is the tokenizer's
content; the others are (method, argument). Each is answered by a value, or {"error": words}.
"""

import array
import resource
import struct
import sys
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")
MEMORY_BYTES, MEMORY_A_BYTE = 768 * 2**20, 32
"""Of addresses, with the interpreter and the library, and for each byte of the file beside."""


class Tokenizer:
    """Methods that a message may name."""

    def __init__(self, content: bytes):
        import tokenizers  # pyright: ignore[reportMissingImports]

        made = tokenizers.Tokenizer.from_str(content.decode())
        # Text that looks like a marker is text: no document may forge a separator.
        made.encode_special_tokens = True
        made.no_truncation()
        made.no_padding()
        self._tokenizer = made
        self._is_byte_level = isinstance(made.decoder, tokenizers.decoders.ByteLevel)

    def size(self, _: None) -> int:
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def number(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def first(self, _: None) -> list[int]:
        return self._tokenizer.encode("", add_special_tokens=True).ids

    def encoded(self, texts: list[str]) -> list[tuple[bytes, bool]]:
        """Tokens of each text, uint32, and whether they decode to the text itself."""
        rows = [
            row.ids for row in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]
        again = self._tokenizer.decode_batch(rows, skip_special_tokens=False)
        return [
            (array.array("I", ids).tobytes(), text == found)
            for ids, text, found in zip(rows, texts, again, strict=True)
        ]

    def decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens)

    def bytes_of_token(self, size: int) -> list[int]:
        """Bytes of text of each token, 0 for markers; empty where its letters are no bytes."""
        if not self._is_byte_level:
            return []
        counts = [0] * size
        for token, number in self._tokenizer.get_vocab(with_added_tokens=False).items():
            counts[number] = len(token)  # a letter stands for a byte
        for number, added in self._tokenizer.get_added_tokens_decoder().items():
            counts[number] = 0 if added.special else len(added.content.encode())
        return counts


def main() -> None:
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    tokenizer = None
    while header := sys.stdin.buffer.read(LENGTH.size):
        message: Any = msgspec.msgpack.decode(sys.stdin.buffer.read(*LENGTH.unpack(header)))
        try:
            if tokenizer is None:
                tokenizer = Tokenizer(message)
                answer: Any = None
            else:
                method, argument = message
                answer = getattr(tokenizer, method)(argument)
        except BaseException as error:  # a panic of the library's Rust is no Exception
            words = " ".join(str(error).split())[:200] or type(error).__name__
            answer = {"error": words}
        content = msgspec.msgpack.encode(answer)
        sys.stdout.buffer.write(LENGTH.pack(len(content)) + content)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
