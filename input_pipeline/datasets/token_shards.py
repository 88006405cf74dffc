"""Shards of tokens: rows of a stream, mapped into memory.

A shard has 256 little-endian int32 (20240520, version 1, the number of tokens, zeros), and the
tokens as uint16; one of a large vocabulary begins with 20240801 and version 7, and has uint32
tokens. The files with the word `train` or `val` in their name, sorted, are one stream.

    train: {"tokens": uint16 [rows, length + 1]}
    eval:  {"tokens": uint16 [rows, length + 1], "num_targets": int32 [rows]}

Row i begins with token i * length, and its last token is the next row's first: each token but the
stream's first is predicted once. A training stream ends with its last whole row; the last row to
evaluate is filled with separators, and `num_targets` counts the tokens before them.

Rows that are `apart` have `length` tokens each, a separator behind them that is no target, and no
token in common. A stream to evaluate may lie beside a mask, `NAME.mask.npy` of `NAME.bin`, bool
[tokens]: then an evaluation also has `is_target`, bool [rows, length], and counts no others.

Source: karpathy/llm.c, `dev/data/data_common.py`, for the form of a shard.
"""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import overlap
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
from dawnjax.input_pipeline.reading.npy_files import map_array
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand
from dawnjax.input_pipeline.reading.token_words import (
    KNOWN_WORDS,
    TokenText,
    Words,
    read_words,
    token_text,
)
from dawnjax.limits import Limit, NonNegative

MASK_SUFFIX = ".mask.npy"

MAGIC, VERSION = 20240520, 1
WIDE_MAGIC, WIDE_VERSION = 20240801, 7
HEADER_BYTES = 256 * 4

WHOLE_BYTES = 2**28
"""Of a split's files: up to this, a run reads them whole before its clock starts."""

SAMPLES, SAMPLE_BYTES = 64, 4096

MOST_COMPARED_BYTES = 2**25
"""Of both streams: up to this, passages of the splits are compared; of more, whole shards."""

_WORDS = {
    part: re.compile(rf"(?<![a-z]){part}(?:{more})?(?![a-z])", re.IGNORECASE)
    for part, more in (("train", "ing"), ("val", "id|idation"))
}
"""Whole words alone: `retrieval_train_000001.bin` is no file of the split `val`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenSpec(Spec):
    """Counts and shapes of a stream of tokens.

    Attributes:
      num_train_examples: Rows to train on; an epoch is this many.
      sequence_length: Tokens that a row predicts.
      separator: The token that begins a document.
      fingerprint: Of a large file of parts, as in `TokenShards`.
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
class TokenShards:
    """Tokens in files of the form of llm.c.

    Files of up to 256 MiB are checked and hashed whole before a run. Of a larger one that is done
    to its header, its size and 64 evenly spaced blocks of 4 KiB: a stream of billions of tokens is
    not read before a run, and a token outside the vocabulary is found when its row is read.

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
      masks_prompts: An evaluation counts the tokens that the masks beside its shards mark, and no
        others, such as answers without their prompts. Training counts all.
      max_eval_tokens: The stream to evaluate ends after this many tokens to predict; 0 takes all.
      data_dir: The directory. Empty takes one named as the corpus in the directory that the
        environment variable DAWNJAX_DATA names, or in `./data` without it.
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
        words = self._words()
        digest = hashlib.sha256(repr((words, self.max_eval_tokens)).encode())
        train, evaluated = (self._stream(split) for split in ("train", "eval"))
        for shard in (*train.shards, *evaluated.shards):
            shard.check_and_hash(words, digest)
        if self.masks_prompts:
            digest.update(self._mask(evaluated).tobytes())
        return self._spec_of(
            train.num_tokens,
            evaluated.num_tokens,
            words,
            digest.hexdigest()[:16],
            Declaration(name=self.corpus, overlap=_overlap(train, evaluated)),
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
                f"how many tokens {self.corpus} has is known of its shards alone: give "
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
        """Arrays of a split, mapped; a token outside the vocabulary is a DataError when read."""
        stream, words = self._stream(split), self._words()
        arrays = rows_of(
            stream,
            stream.num_tokens,
            self.sequence_length,
            words.separator,
            split,
            dtype_of(words.size),
            are_apart=self.rows == "apart",
        )
        if split == "eval" and self.masks_prompts:
            arrays["is_target"] = self._mask(stream)
        return arrays

    @property
    def _most_eval_tokens(self) -> int:
        # The first token of overlapping rows is no target.
        return self.max_eval_tokens and self.max_eval_tokens + (self.rows == "overlapping")

    def _mask(self, stream: "Stream") -> np.ndarray:
        """Targets that count: bool [rows, sequence_length]; DataError without a mask, or any."""
        parts = []
        for shard in stream.shards:
            path = shard.path.with_suffix(MASK_SUFFIX)
            mask = map_array(path)
            if mask.dtype != bool or mask.shape != (shard.num_tokens,):
                raise DataError(
                    f"{path}: is {mask.dtype} {list(mask.shape)}; wanted bool [{shard.num_tokens}]"
                )
            parts.append(mask)
        mask, length = np.concatenate(parts)[: stream.num_tokens], self.sequence_length
        marks = rows_of(
            mask, len(mask), length, False, "eval", "bool", are_apart=self.rows == "apart"
        )
        is_target = np.asarray(marks["tokens"])[:, 1:]
        if not is_target.any():
            raise DataError(f"{stream.shards[0].path.with_suffix(MASK_SUFFIX)}: marks no target")
        return is_target

    def token_text(self) -> TokenText:
        """Text of the tokens; numbers where the vocabulary's text is not known."""
        return token_text(self._words(), directory_of(self.corpus, self.data_dir))

    def _words(self) -> Words:
        if self.vocabulary != "file":
            return KNOWN_WORDS[self.vocabulary]
        return read_words(directory_of(self.corpus, self.data_dir))

    def _stream(self, split: Split) -> "Stream":
        directory = directory_of(self.corpus, self.data_dir)
        part, other = ("train", "val") if split == "train" else ("val", "train")
        paths = sorted(path for path in directory.glob("*.bin") if _WORDS[part].search(path.name))
        both = [path for path in paths if _WORDS[other].search(path.name)]
        if both:
            raise DataError(
                f"{both[0]}: has both train and val in its name; a shard is of one split: rename it"
            )
        if not paths:
            raise MissingDataError(
                f"{directory}: no file *{part}*.bin is there; "
                "`dawnjax prepare --dataset=token_shards` makes them of text"
            )
        most = self._most_eval_tokens if split == "eval" else None
        stream = Stream([Shard(path) for path in paths], most, self._words())
        fewest = self.sequence_length + 1 if split == "train" else 2
        if self.rows == "apart":
            fewest = self.sequence_length
        if stream.num_tokens < fewest:
            raise DataError(
                f"{directory}: *{part}*.bin hold {stream.num_tokens} tokens; {fewest} are needed"
            )
        return stream


def _overlap(train: "Stream", evaluated: "Stream") -> Overlap | None:
    sizes = (np.dtype(s.shards[0].dtype).itemsize * s.num_tokens for s in (train, evaluated))
    num_bytes = sum(sizes)
    if num_bytes <= min(MOST_COMPARED_BYTES, WHOLE_BYTES):
        return overlap.shared_passages([train[:]], [evaluated[:]])

    def contents(stream: Stream) -> Iterator[bytes]:
        for shard in stream.shards:
            yield b"".join(part.tobytes() for _, part in shard.parts())

    is_sampled = any(s.is_sampled for stream in (train, evaluated) for s in stream.shards)
    unit = "shards (by samples)" if is_sampled else "shards"
    return overlap.shared(contents(train), contents(evaluated), unit)


PUBLISHED = {
    ("fineweb10B", "gpt2"): (103 * 10**8, 10**8),
    ("c4_llama31", "llama3"): (39 * 10**9, 1024 * 8192 + 1),
    ("govreport", "llama2"): (3901 * 8192, 173 * 8192),
}
"""Tokens to train on and to evaluate, by corpus and vocabulary.

Source: KellerJordan/modded-nanogpt, `data/cached_fineweb10B.py`: 103 shards of 100 million tokens
to train on, and one to evaluate. mlcommons/training_policies, `training_rules.adoc`: a quarter of
C4, of which Dodge et al. 2021 (arXiv 2104.08758) count 156 billion tokens of another vocabulary, so
that an epoch is known roughly; 1,024 rows of 8,192 tokens to evaluate; GovReport in 3,901 and 173
such rows.
"""


def dtype_of(vocabulary_size: int) -> str:
    return "uint16" if vocabulary_size <= 2**16 else "uint32"


class Shard:
    """File of tokens whose header and size were checked."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            with records.open_plain(path) as file:
                header = np.frombuffer(file.read(HEADER_BYTES).ljust(HEADER_BYTES, b"\0"), "<i4")
                size = file.seek(0, 2)
        except records.BoundError as error:
            raise DataError(f"{path}: {error}") from None
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None
        if size < HEADER_BYTES:
            raise DataError(f"{path}: ends at byte {size}, within its header of {HEADER_BYTES}")
        magic, version, self.num_tokens = (int(value) for value in header[:3])
        if magic not in (MAGIC, WIDE_MAGIC):
            raise DataError(
                f"{path}: byte 0: the magic number is {magic}, wanted {MAGIC} or {WIDE_MAGIC}"
            )
        wanted = VERSION if magic == MAGIC else WIDE_VERSION
        if version != wanted:
            raise DataError(f"{path}: byte 4: the version is {version}, wanted {wanted}")
        self.dtype = "<u2" if magic == MAGIC else "<u4"
        wanted = HEADER_BYTES + np.dtype(self.dtype).itemsize * self.num_tokens
        if size != wanted or self.num_tokens < 0:
            raise DataError(
                f"{path}: byte 8: the header tells {self.num_tokens} tokens, so the file would end "
                f"at byte {wanted}; it ends at {size}"
            )

    @property
    def is_sampled(self) -> bool:
        """True if parts alone are read before a run: billions of tokens would take too long."""
        return np.dtype(self.dtype).itemsize * self.num_tokens > WHOLE_BYTES

    def check_and_hash(self, words: Words, digest: Any) -> None:
        """Refuse tokens outside the vocabulary, and add the tokens to a hash."""
        digest.update(str(self.num_tokens).encode())
        for start, part in self.parts():
            self.check(part, start, words)
            digest.update(part.tobytes())

    def parts(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the first place and the tokens of each part that is read before a run."""
        tokens = self.tokens()
        step = SAMPLE_BYTES // tokens.itemsize
        if not self.is_sampled:
            step = 2**20
            starts = range(0, tokens.size, step)
        else:
            # `Stream` checks the rest row by row.
            starts = sorted({tokens.size * place // SAMPLES for place in range(SAMPLES)})
        for start in starts:
            yield start, tokens[start : start + step]

    def check(self, part: np.ndarray, start: int, words: Words) -> None:
        """Refuse a part of the tokens, which begins at `start`, outside the vocabulary."""
        if part.size and part.max() >= words.size:
            at = int(np.argmax(part >= words.size))
            raise DataError(
                f"{self.path}: token {start + at} is {part[at]}, outside the vocabulary of "
                f"{words.size} (data.vocabulary={words.name})"
            )

    def tokens(self) -> np.ndarray:
        """Tokens, uint16 or uint32 [num_tokens], mapped."""
        if not self.num_tokens:
            return np.zeros(0, self.dtype)
        with records.open_plain(self.path) as file:
            return np.memmap(file, self.dtype, "r", HEADER_BYTES, (self.num_tokens,))


class Stream:
    """Shards one after another, whose tokens are checked when they are read."""

    def __init__(self, shards: list[Shard], most: int | None, words: Words):
        self.shards, self.words = shards, words
        self.ends = np.cumsum([shard.num_tokens for shard in shards])
        self.num_tokens = min(int(self.ends[-1]), most or int(self.ends[-1]))
        self._maps = [shard.tokens() for shard in shards]

    def __getitem__(self, span: slice) -> np.ndarray:
        start, stop, _ = span.indices(self.num_tokens)
        parts = []
        while start < stop:
            place = int(np.searchsorted(self.ends, start, side="right"))
            shard_start = int(self.ends[place]) - self.shards[place].num_tokens
            end = min(stop, int(self.ends[place]))
            part = self._maps[place][start - shard_start : end - shard_start]
            self.shards[place].check(part, start - shard_start, self.words)
            parts.append(part)
            start = end
        return np.concatenate(parts)


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
    stream: Any,
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

    def row(index: int) -> np.ndarray:
        tokens = stream[index * length : index * length + length + (not are_apart)]
        filling = length + 1 - len(tokens)
        return np.pad(tokens.astype(dtype), (0, filling), constant_values=separator)

    def all_rows() -> np.ndarray:
        if are_apart:
            tokens = stream[: num_rows * length].astype(dtype).reshape(num_rows, length)
            return np.pad(tokens, ((0, 0), (0, 1)), constant_values=separator)
        # A loop over 54,000 rows of 256 took 4 s after `run_start`.
        last = num_rows * length + 1
        tokens = stream[: min(last, num_tokens)].astype(dtype)
        padded = np.pad(tokens, (0, last - len(tokens)), constant_values=separator)
        return np.lib.stride_tricks.sliding_window_view(padded, length + 1)[::length]

    tokens = RowsOnDemand(num_rows, (length + 1,), dtype, row, make_all=all_rows)
    if split == "train":
        return {"tokens": tokens}
    counts = np.minimum(length, num_tokens - 1 - length * np.arange(num_rows))
    counts = np.full(num_rows, length - 1) if are_apart else counts
    return {"tokens": tokens, "num_targets": counts.astype(np.int32)}


def shard_of(tokens: np.ndarray) -> bytes:
    """Content of a shard that holds integers below 2**32 [tokens]; wide if they need it."""
    header, is_wide = np.zeros(HEADER_BYTES // 4, "<i4"), tokens.max(initial=0) >= 2**16
    header[:3] = *((WIDE_MAGIC, WIDE_VERSION) if is_wide else (MAGIC, VERSION)), len(tokens)
    return header.tobytes() + tokens.astype("<u4" if is_wide else "<u2").tobytes()
