"""Texts, pairs of prompts and completions, and rows of tokens, as tokens of documents."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import text_files, token_words, tokenizer_file
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.preparing import FlagError, is_evaluated

MOST_BYTES = 2**30
"""Limit of a text."""

IGNORED = -100
"""Label of a token that does not count, as PyTorch's cross entropy and Hugging Face have it."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A document whose evaluation counts the completion alone."""

    prompt: str
    completion: str


@dataclasses.dataclass(frozen=True)
class Row:
    """Tokens of a packed row, and the label of each: the token itself, or `IGNORED`."""

    input_ids: list[int]
    labels: list[int]


@dataclasses.dataclass
class Part:
    """Tokens of a split's documents, rows or blocks, and whether each counts in an evaluation."""

    tokens: list[np.ndarray]
    masks: list[np.ndarray] = dataclasses.field(default_factory=list)
    texts: list[str] = dataclasses.field(default_factory=list)

    def contents(self) -> Iterator[bytes]:
        """Yield the content of each document, or of each row of tokens."""
        for text in self.texts:
            yield text.encode()
        for tokens in () if self.texts else self.tokens:
            yield tokens.tobytes()


def documents_of(path: pathlib.Path, separation: str) -> list[str]:
    """Documents of a text: all of it, or the parts between `blank_lines`."""
    text = text_files.read(path, MOST_BYTES)
    if not text:
        raise DataError(f"{path}: is empty")
    if separation == "none":
        return [text]
    documents = text_files.paragraphs_of(text)
    if not documents:
        raise DataError(f"{path}: has only blank lines")
    return documents


def pairs_of(path: pathlib.Path) -> list[Pair]:
    """Pairs of a text with one JSON object of `prompt` and `completion` a line."""
    pairs = []
    for number, line in enumerate(text_files.lines_of(text_files.read(path, MOST_BYTES)), 1):
        if line.strip():
            pairs.append(_record(line, Pair, f"{path}:{number}"))
            if not pairs[-1].completion:
                raise DataError(f"{path}:{number}: completion is empty")
    if not pairs:
        raise DataError(f"{path}: holds no pair")
    return pairs


def packed_rows(path: pathlib.Path) -> Iterator[Row]:
    """Rows of a Parquet file, or of JSON lines, with the columns `input_ids` and `labels`."""
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    for number, line in enumerate(text_files.lines_of(text_files.read(path, MOST_BYTES)), 1):
        if line.strip():
            yield _record(line, Row, f"{path}:{number}")


def _parquet_rows(path: pathlib.Path) -> Iterator[Row]:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise DataError(f"{path}: reading Parquet needs pyarrow (pip install pyarrow)") from None
    names = [field.name for field in dataclasses.fields(Row)]
    try:
        with text_files.named_errors(path), records.open_plain(path) as file:
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(64, columns=names):
                for fields in batch.to_pylist():
                    yield records.convert(fields, Row)
    except (pyarrow.ArrowException, KeyError, ValueError) as error:
        words = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path}: is not a Parquet file of {' and '.join(names)}: {words}"
        ) from None


def _record(line: str, kind: type, where: str) -> Any:
    try:
        return records.decode(line, kind, others=True)
    except ValueError as error:
        names = ", ".join(f'"{field.name}": ...' for field in dataclasses.fields(kind))
        raise DataError(f"{where}: {error}; wanted a line such as {{{names}}}") from None


class ByteCoder:
    """Tokens that are the bytes of a text."""

    separator, vocabulary = token_words.BYTES.separator, token_words.BYTES.name

    def encoded(self, documents: list[str]) -> Iterator[np.ndarray]:
        for text in documents:
            yield np.frombuffer(text.encode(), np.uint8).astype(np.uint16)

    def files(self) -> dict[str, bytes]:
        return {}

    def note(self) -> str:
        return ""


class GivenCoder:
    """Tokens of a user's tokenizer."""

    vocabulary = ""

    def __init__(self, path: str, separator: str | None, size: int | None):
        content = text_files.read_content(records.path_of(path), tokenizer_file.MOST_BYTES)
        self._content, self._tokenizer = content, tokenizer_file.TokenizerFile(content, path)
        if size is not None and size < self._tokenizer.size:
            raise FlagError(
                f"--vocabulary_size={size}: {path} has {self._tokenizer.size} tokens; "
                "give that or more"
            )
        self._size = size or self._tokenizer.size
        if self._size > tokenizer_file.MOST_TOKENS:
            raise FlagError(
                f"{path} has {self._size} tokens; at most {tokenizer_file.MOST_TOKENS} are read"
            )
        self.separator = self._tokenizer.separator(separator or None)
        counts = self._tokenizer.bytes_of_token()
        if max(counts, default=0) > token_words.MOST_TOKEN_BYTES:
            counts = []
        self._bytes = counts + [0] * (self._size - len(counts)) if counts else []

    def note(self) -> str:
        known = "known" if self._bytes else "not known, so there is no bits_per_byte"
        return (
            f"\n{self._size:,} tokens, separator {self.separator}; bytes of a token are {known}; "
            f"tokenizer.json has the sha256 {self._tokenizer.sha256[:16]}"
        )

    def encoded(self, documents: list[str]) -> Iterator[np.ndarray]:
        for row, is_exact in self._tokenizer.encoded(documents):
            # The tokens of a text that was changed first, such as to small letters, stand for as
            # many bytes perhaps, but of another text.
            if not is_exact:
                self._bytes = []
            yield row

    def files(self) -> dict[str, bytes]:
        sha256 = self._tokenizer.sha256
        words = token_words.words_file(self.separator, self._bytes, self._size, sha256)
        return {token_words.FILE: words, token_words.TOKENIZER_FILE: self._content}


def coded(sources: list[str] | list[Pair], coder: ByteCoder | GivenCoder, separates: bool) -> Part:
    """Tokens of documents or pairs, each after a separator."""
    split, start = Part([]), np.array([coder.separator] if separates else [], np.uint32)
    pairs = [source for source in sources if isinstance(source, Pair)]
    texts = [text if isinstance(text, str) else text.prompt + text.completion for text in sources]
    prompts = iter(coder.encoded([pair.prompt for pair in pairs]))
    for text, row in zip(texts, coder.encoded(texts), strict=True):
        num_uncounted = len(start) + len(next(prompts)) if pairs else 0
        tokens = np.concatenate([start, row])
        split.tokens.append(tokens)
        split.texts.append(text)
        if pairs:
            split.masks.append(np.arange(len(tokens)) >= num_uncounted)
    return split


def labelled_rows(path: pathlib.Path, *, is_evaluated: bool) -> Part:
    """Tokens of packed rows, and which count; DataError where a row is not whole."""
    split = Part([])
    for number, row in enumerate(packed_rows(path), 1):
        tokens, labels = (np.array(column, np.int64) for column in (row.input_ids, row.labels))
        length = len(split.tokens[0]) if split.tokens else len(tokens)
        if not len(tokens) == len(labels) == length > 0:
            raise DataError(
                f"{path}: row {number} has {len(tokens)} input_ids and {len(labels)} labels; all "
                f"rows must have {length or 1}"
            )
        is_counted = labels != IGNORED
        if tokens.min() < 0 or tokens.max() >= 2**32 or (labels != tokens)[is_counted].any():
            raise DataError(
                f"{path}: row {number} has a label that is neither {IGNORED} nor the row's token"
            )
        if not is_evaluated and not is_counted.all():
            raise DataError(
                f"{path}: row {number} has labels of {IGNORED}; training counts every token, so "
                "give the tokens themselves as labels"
            )
        split.tokens.append(tokens)
        split.masks.append(is_counted)
    if not split.tokens:
        raise DataError(f"{path}: holds no row")
    return split


def split_documents(
    documents: list[Any], path: pathlib.Path, fraction: float
) -> dict[Split, list[Any]]:
    """Documents to train on and to evaluate, by a hash of each."""
    parts: dict[Split, list[Any]] = {"train": [], "eval": []}
    for document in documents:
        is_text = isinstance(document, str)
        content = document if is_text else f"{document.prompt}{document.completion}"
        parts["eval" if is_evaluated(content.encode(), fraction) else "train"].append(document)
    if not all(parts.values()):
        raise DataError(f"{path}: a split has no documents; choose another --eval_fraction")
    return parts
