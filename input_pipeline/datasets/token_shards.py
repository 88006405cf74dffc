"""Tokens of a text: rows of a stream, as `dawnjax prepare --dataset=token_shards` wrote it.

    {train,eval}_tokens.npy    uint16 or uint32 [tokens]
    eval_mask.npy              bool [tokens], where an evaluation may count some of them alone
    vocabulary.json            what a token is, where no known vocabulary says it; perhaps with
                               the tokenizer.json that has its text

A run sees rows of it:

    train: {"tokens": uint16 [rows, length + 1]}
    eval:  {"tokens": uint16 [rows, length + 1], "num_targets": int32 [rows]}

Row i begins with token i * length, and its last token is the next row's first: each token but the
stream's first is predicted once. A training stream ends with its last whole row; the last row to
evaluate is filled with separators, and `num_targets` counts the tokens before them.

Rows that are `apart` have `length` tokens each, followed by a separator that is not a target, and
share no token. With a mask an evaluation also has `is_target`, bool [rows, length], and counts no
others.

Originals are texts, rows of tokens, or shards of tokens in the form of llm.c and modded-nanogpt:
256 little-endian int32 (20240520, version 1, the number of tokens, zeros), and the tokens as
uint16; a shard of a large vocabulary begins with 20240801 and version 7, and has uint32 tokens.

Source: karpathy/llm.c, `dev/data/data_common.py`, for the form of a shard.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import (
    columns,
    overlap,
    text_files,
    token_words,
    tokenizer_file,
)
from dawnjax.input_pipeline.reading.columns import Columns, Content, Made
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Shapes,
    Spec,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_set import LARGEST_VERIFIED_BYTES, SPLITS
from dawnjax.input_pipeline.reading.preparing import (
    Flag,
    FlagError,
    Preparation,
    Request,
    check_fraction,
    is_evaluated,
)
from dawnjax.input_pipeline.reading.token_words import KNOWN_WORDS, TokenText, Words, token_text
from dawnjax.limits import Limit, NonNegative

KIND = "tokens"
MASK_FILE = "eval_mask.npy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenSpec(Spec):
    """Counts and shapes of a stream of tokens.

    Attributes:
      num_train_examples: Rows to train on; an epoch is this many.
      sequence_length: Tokens that a row predicts.
      separator: The token that begins a document.
      bytes_of_token: Bytes of text that each token stands for; empty where that is not known.
      are_apart: Rows have no token in common, so a row's last token predicts none.
      has_mask: Whether an evaluation has `is_target`.
    """

    sequence_length: int
    vocabulary_size: int
    separator: int
    vocabulary: str
    bytes_of_token: tuple[int, ...] = dataclasses.field(default=(), compare=False, repr=False)
    are_apart: bool = False
    has_mask: bool = False

    @property
    def targets_a_row(self) -> int:
        return self.sequence_length - self.are_apart

    def example_shapes(self, split: Split) -> Shapes:
        shapes: Shapes = {"tokens": ((self.sequence_length + 1,), dtype_of(self.vocabulary_size))}
        if split == "train":
            return shapes
        mask: Shapes = {"is_target": ((self.sequence_length,), "bool")} if self.has_mask else {}
        return {**shapes, "num_targets": ((), "int32"), **mask}

    def batch_elements(self, batch_size: int) -> int:
        return batch_size * self.sequence_length * self.vocabulary_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenFacts:
    """Facts of prepared tokens.

    Attributes:
      vocabulary: `bytes` if tokens are bytes; empty of others, which several names may fit.
      largest: The largest token of each split.
      overlap: Documents, or rows of tokens, in both splits; None where they were not compared.
    """

    vocabulary: str
    largest: dict[Split, int]
    overlap: Overlap | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenShards:
    """Tokens, in rows of one length.

    Attributes:
      corpus: Name of the set; the directory that is looked for.
      vocabulary: What a token is: a `bytes` token is a byte of text, and 256 separates documents;
        a `gpt2` token is one of GPT-2's 50,257, and 50256 separates documents; a `llama3` token
        is one of 128,256, and 128000 separates documents; a `llama2` token is one of 32,000, and
        1 separates documents; `file` has the directory's `vocabulary.json` say it.
      sequence_length: Tokens of a row that the model reads.
      rows: `overlapping` rows have their last token as the next row's first, so that a row predicts
        as many tokens as it reads; rows that lie `apart` have none in common and predict one
        fewer, as rows of a packed fine-tuning set do.
      masks_prompts: An evaluation counts the tokens that its mask marks, and no others, such as
        answers without their prompts. Training counts all.
      max_eval_tokens: The stream to evaluate ends after this many tokens to predict; 0 takes all.
      data_dir: The prepared directory. Empty takes one named as the corpus in the directory that
        the environment variable DAWNJAX_DATA names, or in `./data` without it.
    """

    TAG: ClassVar[str] = "token_shards"
    corpus: str = "text"
    vocabulary: Literal["bytes", "gpt2", "llama2", "llama3", "file"] = "bytes"
    sequence_length: Annotated[
        int, Limit(lambda value: 1 <= value <= 2**20, "lie in 1 to 1048576")
    ] = 256
    rows: Literal["overlapping", "apart"] = "overlapping"
    masks_prompts: bool = False
    max_eval_tokens: NonNegative[int] = 0
    data_dir: str = ""

    def spec(self) -> TokenSpec:
        prepared = self._prepared()
        facts, words, where = prepared.facts, self._words(), prepared.directory
        if facts.vocabulary not in ("", self.vocabulary):
            raise ValueError(
                f"data.vocabulary={self.vocabulary}, but {where} was prepared with "
                f"{facts.vocabulary}; give --data.vocabulary={facts.vocabulary}"
            )
        for split, largest in facts.largest.items():
            if largest >= words.size:
                raise DataError(
                    f"{where / _file(split)}: holds the token {largest}, outside the vocabulary of "
                    f"{words.size} (data.vocabulary={words.name})"
                )
        is_apart = self.rows == "apart"
        for split in SPLITS:
            count = self._num_tokens(prepared, split)
            fewest = self.sequence_length + 1 if split == "train" else 2
            fewest = self.sequence_length if is_apart else fewest
            if count < fewest:
                raise DataError(
                    f"{where / _file(split)}: holds {count} tokens; {fewest} are needed"
                )
        if self.masks_prompts:
            self._mask(prepared)
        return self._spec_of(
            self._num_tokens(prepared, "train"),
            self._num_tokens(prepared, "eval"),
            words,
            prepared.fingerprint(repr(words), self.max_eval_tokens, self.masks_prompts),
            Declaration(name=self.corpus, overlap=facts.overlap),
        )

    def _spec_of(self, num_train_tokens: int, num_eval_tokens: int, *facts: Any) -> TokenSpec:
        spec = token_spec(
            num_train_tokens,
            num_eval_tokens,
            self.sequence_length,
            *facts,
            are_apart=self.rows == "apart",
        )
        return dataclasses.replace(spec, has_mask=self.masks_prompts)

    def published_spec(self) -> TokenSpec:
        """Specification of a published set, without its files; see `PUBLISHED`."""
        if (self.corpus, self.vocabulary) not in PUBLISHED:
            raise MissingDataError(
                f"how many tokens {self.corpus} has is known of prepared data alone: give "
                "--data.data_dir"
            )
        train, evaluated = PUBLISHED[self.corpus, self.vocabulary]
        return self._spec_of(
            train,
            min(evaluated, self._most_eval_tokens or evaluated),
            KNOWN_WORDS[self.vocabulary],
            NO_FINGERPRINT,
            Declaration(name=self.corpus),
        )

    def load(self, split: Split) -> dict[str, Any]:
        """Arrays of a split, mapped; streams of up to 2 GiB are verified."""
        prepared, words = self._prepared(), self._words()
        name = _file(split)
        column = prepared.files[name]
        num_bytes = column.shape[0] * np.dtype(column.dtype).itemsize
        stream = prepared.array(name, verified=num_bytes <= LARGEST_VERIFIED_BYTES)
        arrays = rows_of(
            stream,
            self._num_tokens(prepared, split),
            self.sequence_length,
            words.separator,
            split,
            dtype_of(words.size),
            are_apart=self.rows == "apart",
        )
        if split == "eval" and self.masks_prompts:
            arrays["is_target"] = self._mask(prepared)
        return arrays

    def token_text(self) -> TokenText:
        """Text of the tokens; DataError where the vocabulary's text is not known."""
        return token_text(self._words(), directory_of(self.corpus, self.data_dir))

    def _prepared(self) -> Columns[TokenFacts]:
        directory = directory_of(self.corpus, self.data_dir)
        return columns.read(directory, KIND, TokenFacts, "--dataset=token_shards --from=PATH")

    def _words(self) -> Words:
        if self.vocabulary != "file":
            return KNOWN_WORDS[self.vocabulary]
        return token_words.read_words(directory_of(self.corpus, self.data_dir))

    @property
    def _most_eval_tokens(self) -> int:
        # The first token of overlapping rows is not a target.
        return self.max_eval_tokens and self.max_eval_tokens + (self.rows == "overlapping")

    def _num_tokens(self, prepared: Columns[TokenFacts], split: Split) -> int:
        count = prepared.files[_file(split)].shape[0]
        return min(count, self._most_eval_tokens or count) if split == "eval" else count

    def _mask(self, prepared: Columns[TokenFacts]) -> np.ndarray:
        """Targets that count: bool [rows, sequence_length]; DataError without any."""
        if MASK_FILE not in prepared.files:
            raise DataError(
                f"{prepared.directory}: has no mask of prompts, which data.masks_prompts asks for; "
                "prepare it with --documents=pairs or rows"
            )
        mask = prepared.array(MASK_FILE)[: self._num_tokens(prepared, "eval")]
        marks = rows_of(
            mask,
            len(mask),
            self.sequence_length,
            False,
            "eval",
            "bool",
            are_apart=self.rows == "apart",
        )
        is_target = np.asarray(marks["tokens"])[:, 1:]
        if not is_target.any():
            raise DataError(f"{prepared.directory / MASK_FILE}: marks no target")
        return is_target


def _file(split: Split) -> str:
    return f"{split}_tokens.npy"


PUBLISHED = {
    ("fineweb10B", "gpt2"): (103 * 10**8, 10**8),
    ("c4_llama31", "llama3"): (39 * 10**9, 1024 * 8192 + 1),
    ("govreport", "llama2"): (3901 * 8192, 173 * 8192),
    ("squad_text", "bytes"): (13_950_479, 1_605_273),
}
"""Tokens to train on and to evaluate, by corpus and vocabulary.

Source: KellerJordan/modded-nanogpt, `data/cached_fineweb10B.py`: 103 shards of 100 million tokens
to train on, and one to evaluate. mlcommons/training_policies, `training_rules.adoc`: a quarter of
C4, of which Dodge et al. 2021 (arXiv 2104.08758) count 156 billion tokens of another vocabulary, so
that an epoch is known roughly; 1,024 rows of 8,192 tokens to evaluate; GovReport in 3,901 and 173
such rows. The passages of SQuAD v1.1, counted as `wikipedia_bytes_small` prepares them.
"""


def dtype_of(vocabulary_size: int) -> str:
    return "uint16" if vocabulary_size <= 2**16 else "uint32"


def token_spec(
    num_train_tokens: int,
    num_eval_tokens: int,
    sequence_length: int,
    words: Words,
    fingerprint: str,
    declaration: Declaration,
    *,
    are_apart: bool = False,
) -> TokenSpec:
    return TokenSpec(
        num_train_examples=_num_rows(num_train_tokens, sequence_length, "train", are_apart),
        num_eval_examples=_num_rows(num_eval_tokens, sequence_length, "eval", are_apart),
        sequence_length=sequence_length,
        vocabulary_size=words.size,
        separator=words.separator,
        vocabulary=words.name,
        fingerprint=fingerprint,
        bytes_of_token=words.bytes_of_token,
        are_apart=are_apart,
        declaration=declaration,
    )


def _num_rows(num_tokens: int, length: int, split: Split, are_apart: bool) -> int:
    if are_apart:
        return num_tokens // length
    return (num_tokens - 1) // length if split == "train" else -(-(num_tokens - 1) // length)


def rows_of(
    stream: np.ndarray,
    num_tokens: int,
    length: int,
    separator: int,
    split: Split,
    dtype: str = "uint16",
    *,
    are_apart: bool = False,
) -> dict[str, Any]:
    """Arrays of a split; separators fill the last row to evaluate, and follow rows apart."""
    num_rows = _num_rows(num_tokens, length, split, are_apart)
    stream = np.asarray(stream[:num_tokens]).astype(dtype, copy=False)
    if are_apart:
        rows = stream[: num_rows * length].reshape(num_rows, length)
        tokens = np.pad(rows, ((0, 0), (0, 1)), constant_values=separator)
    else:
        missing = max(0, num_rows * length + 1 - num_tokens)
        padded = np.pad(stream, (0, missing), constant_values=separator) if missing else stream
        # A view: nothing of a mapped stream is read before its rows are asked for.
        tokens = np.lib.stride_tricks.sliding_window_view(padded, length + 1)[::length][:num_rows]
    if split == "train":
        return {"tokens": tokens}
    counts = np.minimum(length, num_tokens - 1 - length * np.arange(num_rows))
    counts = np.full(num_rows, length - 1) if are_apart else counts
    return {"tokens": tokens, "num_targets": counts.astype(np.int32)}


MOST_BYTES = 2**30
"""Of a text."""

KINDS = ("none", "blank_lines", "pairs", "rows")

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
        raise DataError(f"{path}: holds blank lines alone")
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


def _coded(sources: list[str] | list[Pair], coder: ByteCoder | GivenCoder, separates: bool) -> Part:
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


def _rows(path: pathlib.Path, *, is_evaluated: bool) -> Part:
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
                f"{path}: row {number} has a label that is neither {IGNORED} nor its token"
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


def _divided(documents: list[Any], path: pathlib.Path, fraction: float) -> dict[Split, list[Any]]:
    """Documents to train on and to evaluate, by a hash of each."""
    parts: dict[Split, list[Any]] = {"train": [], "eval": []}
    for document in documents:
        is_text = isinstance(document, str)
        content = document if is_text else f"{document.prompt}{document.completion}"
        parts["eval" if is_evaluated(content.encode(), fraction) else "train"].append(document)
    if not all(parts.values()):
        raise DataError(
            f"{path}: a split is left without documents; choose another --eval_fraction"
        )
    return parts


MAGIC, VERSION = 20240520, 1
WIDE_MAGIC, WIDE_VERSION = 20240801, 7
HEADER_BYTES = 256 * 4

_AT_ONCE = 2**22

_NAMES: dict[Split, re.Pattern[str]] = {
    "train": re.compile(r"(?<![a-z])train(?:ing)?(?![a-z])", re.IGNORECASE),
    "eval": re.compile(r"(?<![a-z])val(?:id|idation)?(?![a-z])", re.IGNORECASE),
}
"""Whole words alone: `retrieval_train_000001.bin` is not a file to evaluate."""


def shards_in(folder: pathlib.Path) -> dict[Split, list[np.ndarray]]:
    """Tokens of a folder's shards, mapped; those of a split, sorted by name, are one stream."""
    found: dict[Split, list[np.ndarray]] = {"train": [], "eval": []}
    for path in sorted(folder.glob("*.bin")):
        splits = [split for split, name in _NAMES.items() if name.search(path.name)]
        if len(splits) != 1:
            raise DataError(f"{path}: has not one of train and val in its name; rename it")
        found[splits[0]].append(_shard(path))
    for split in SPLITS:
        name = "train" if split == "train" else "val"
        if not found[split]:
            raise MissingDataError(f"{folder}: no file *{name}*.bin is there")
        kinds = {shard.dtype.str for shard in found[split]}
        if len(kinds) > 1:
            raise DataError(f"{folder}: *{name}*.bin have tokens of two sizes; convert them to one")
    return found


def _shard(path: pathlib.Path) -> np.ndarray:
    with text_files.named_errors(path), records.open_plain(path) as file:
        start = file.read(HEADER_BYTES)
        magic, version, count, *_ = np.frombuffer(start.ljust(HEADER_BYTES, b"\0"), "<i4").tolist()
        size, known = file.seek(0, 2), {MAGIC: (VERSION, "<u2"), WIDE_MAGIC: (WIDE_VERSION, "<u4")}
        if magic not in known or version != known[magic][0]:
            raise DataError(
                f"{path}: begins with {magic} and version {version}; a shard of tokens has "
                f"{MAGIC} and {VERSION}, or {WIDE_MAGIC} and {WIDE_VERSION}"
            )
        dtype = np.dtype(known[magic][1])
        wanted = HEADER_BYTES + dtype.itemsize * count
        if size != wanted or count < 1:
            raise DataError(
                f"{path}: its header tells {count} tokens, so that it would end at byte {wanted}; "
                f"it ends at {size}"
            )
        return np.memmap(file, dtype, "r", HEADER_BYTES, (count,))


def _blocks(shards: list[np.ndarray]) -> Iterator[np.ndarray]:
    for shard in shards:
        for start in range(0, len(shard), _AT_ONCE):
            yield shard[start : start + _AT_ONCE]


def _narrow(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The same tokens in blocks, as uint16, or as uint32 where one needs it."""
    is_wide = any(part.itemsize > 2 and part.max(initial=0) >= 2**16 for part in parts)
    block, num_tokens = [], 0
    for number, part in enumerate(parts, 1):
        block.append(part)
        num_tokens += len(part)
        if num_tokens >= _AT_ONCE or number == len(parts):
            yield np.concatenate(block).astype("<u4" if is_wide else "<u2", copy=False)
            block, num_tokens = [], 0


def made(
    out: pathlib.Path,
    parts: dict[Split, Part],
    files: dict[str, bytes],
    vocabulary: str = "",
    unit: str = "",
    note: str = "",
) -> Made[TokenFacts]:
    """Tokens to be written; `unit` names what is compared, if it is."""
    contents: dict[str, Content] = dict(files)
    for split, part in parts.items():
        contents[_file(split)] = _narrow(part.tokens)
    if parts["eval"].masks:
        contents[MASK_FILE] = np.concatenate(parts["eval"].masks)
    found = None
    if unit:
        found = overlap.shared(*(parts[split].contents() for split in SPLITS), unit=unit)

    def facts(written: Columns[None]) -> TokenFacts:
        largest: dict[Split, int] = {
            split: int(written.array(_file(split), verified=False).max()) for split in SPLITS
        }
        return TokenFacts(vocabulary=vocabulary, largest=largest, overlap=found)

    def summary(written: Columns[TokenFacts]) -> str:
        said = []
        for split, part in parts.items():
            purpose = "to train on" if split == "train" else "to evaluate"
            words = f"{written.files[_file(split)].shape[0]:,} tokens {purpose}"
            words += f" in {len(part.tokens):,} {unit}" if unit else ""
            if split == "eval" and part.masks:
                words += f", of which {sum(int(mask.sum()) for mask in part.masks):,} count"
            said.append(words)
        return "; ".join(said) + note

    return Made(
        directory=out,
        kind=KIND,
        dataset="token_shards",
        files=contents,
        facts=facts,
        form=TokenFacts,
        summary=summary,
    )


def _prepare(request: Request) -> Made[TokenFacts]:
    source, given = request.required_source(), request.flags["validation"]
    kind = request.flags["documents"] or "none"
    size, tokenizer = request.flags["vocabulary_size"], request.flags["tokenizer"]
    fraction, separator = request.flags["eval_fraction"], request.flags["separator"]
    check_fraction(fraction)
    if request.out is None:
        raise FlagError("--out is missing: the directory to write to, such as data/text")
    if source.is_dir():
        return _of_shards(source, request.out_for("token_shards"))
    if given is None and fraction is None:
        raise FlagError("--validation is missing: the text to evaluate on; or give --eval_fraction")
    if given is not None and fraction is not None:
        raise FlagError("--eval_fraction takes the place of --validation; give one of them")
    if kind not in KINDS:
        raise FlagError(f"--documents={kind}: choose {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    for name in ("separator", "vocabulary_size"):
        if request.flags[name] is not None and tokenizer is None:
            raise FlagError(f"--{name} is of --tokenizer, which is missing")
    if kind == "rows" and tokenizer:
        raise FlagError("--documents=rows holds tokens already: leave out the flags of a text")
    if fraction is not None and kind not in ("blank_lines", "pairs"):
        raise FlagError("--eval_fraction divides documents: give --documents=blank_lines or pairs")
    out = request.out_for("token_shards")
    paths: dict[Split, pathlib.Path] = {"train": source, "eval": records.path_of(given or source)}
    if kind == "rows":
        rows: dict[Split, Part] = {
            split: _rows(path, is_evaluated=split == "eval") for split, path in paths.items()
        }
        return made(out, rows, {}, unit="rows")
    read: Callable[[pathlib.Path], Any] = pairs_of
    if kind != "pairs":
        read = functools.partial(documents_of, separation=kind)
    texts: dict[Split, Any] = (
        {split: read(path) for split, path in paths.items()}
        if fraction is None
        else _divided(read(source), source, fraction)
    )
    coder = ByteCoder() if tokenizer is None else GivenCoder(tokenizer, separator, size)
    parts: dict[Split, Part] = {
        split: _coded(documents, coder, separator != "") for split, documents in texts.items()
    }
    unit = "documents" if kind != "none" else ""
    return made(out, parts, coder.files(), coder.vocabulary, unit, coder.note())


def _of_shards(folder: pathlib.Path, out: pathlib.Path) -> Made[TokenFacts]:
    """Shards of a folder, with the files of their vocabulary that lie beside them."""
    found = shards_in(folder)
    files = {}
    for name in (token_words.FILE, token_words.TOKENIZER_FILE):
        if (folder / name).exists():
            files[name] = text_files.read_content(folder / name, tokenizer_file.MOST_BYTES)
    if token_words.FILE in files:
        token_words.read_words(folder)
    parts: dict[Split, Part] = {
        split: Part(list(_blocks(shards))) for split, shards in found.items()
    }
    return made(out, parts, files)


PREPARATION = Preparation(
    name="token_shards",
    usage=(
        "--from=train.txt --validation=valid.txt --out=DIR\n"
        "[--eval_fraction=FRACTION] [--documents=blank_lines] [--overwrite]\n"
        "[--tokenizer=tokenizer.json] [--separator=TOKEN] [--vocabulary_size=N]",
        "--documents=pairs --from=train.jsonl --validation=valid.jsonl --out=DIR\n[...]",
        "--documents=rows --from=train.parquet --validation=valid.parquet --out=DIR",
        "--from=FOLDER --out=DIR",
    ),
    takes="""--from and --validation name texts in UTF-8, plain or as .gz. Without a second text,
--eval_fraction takes so many documents of --from, by a hash of each. A document is a whole text, or
each part between blank lines. A token is a byte, or one of --tokenizer, a tokenizer.json of Hugging
Face such as Llama 3's. With --documents=pairs each line is JSON of a document with "prompt" and
"completion", and an evaluation may count completions alone. With --documents=rows the files hold
tokens, as Parquet or JSON lines of "input_ids" and "labels", -100 where a token does not count. A
folder of shards of tokens in llm.c's form, such as FineWeb's .bin files, is taken whole: `train` or
`val` in a file's name says its split, and a vocabulary.json beside them what a token is.""",
    flags=(
        Flag("validation", "The text to evaluate on."),
        Flag("eval_fraction", "Fraction of the documents of --from that is evaluated.", float),
        Flag(
            "documents",
            "What a document is: none (each text is one), blank_lines (what stands between them), "
            "pairs (a line of JSON with prompt and completion) or rows (of tokens).",
        ),
        Flag("vocabulary_size", "Tokens of the vocabulary; without it those of --tokenizer.", int),
        Flag("tokenizer", "A tokenizer.json, whose tokens the text is written in."),
        Flag(
            "separator",
            "Its token that begins a document; without the flag, its own first token. --separator= "
            "(empty) joins documents without one.",
        ),
    ),
    run=_prepare,
)
