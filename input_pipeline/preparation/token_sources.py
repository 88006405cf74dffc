"""Text into shards of tokens, for `token_shards.TokenShards`: bytes, or those of a vocabulary."""

import dataclasses
import functools
import io
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.token_shards import MASK_SUFFIX, shard_of
from dawnjax.input_pipeline.reading import text_files, token_words, tokenizer_file
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.preparing import (
    Flag,
    FlagError,
    Preparation,
    Request,
    check_fraction,
    is_evaluated,
)
from dawnjax.input_pipeline.reading.vocabulary import END, Vocabulary, train_vocabulary

MOST_BYTES = 2**30
"""Of a text; a shard's header counts tokens in 32 bits."""

TRAIN_FILE, EVAL_FILE = "text_train_000000.bin", "text_val_000000.bin"
MASK_FILE = str(pathlib.Path(EVAL_FILE).with_suffix(MASK_SUFFIX))

KINDS = ("none", "blank_lines", "pairs", "rows")

IGNORED = -100
"""Label of a token that does not count, as PyTorch's cross entropy and Hugging Face have it."""

_PIECE_BYTES = 2**16
"""Of a text that is encoded at a time: SentencePiece's time grows faster than a text's length."""


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
class Split:
    """Tokens of a split, in order, and whether each counts in an evaluation."""

    documents: list[np.ndarray]
    masks: list[np.ndarray] = dataclasses.field(default_factory=list)
    num_left_out: int = 0

    @functools.cached_property
    def tokens(self) -> np.ndarray:
        return np.concatenate(self.documents)


class Coder(Protocol):
    """From documents to tokens; `separator` begins each."""

    separator: int

    def encoded(self, documents: list[str], where: str) -> Iterable[np.ndarray]: ...
    def files(self) -> dict[str, bytes]: ...


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


def rows_of(path: pathlib.Path) -> Iterator[Row]:
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
    columns = [field.name for field in dataclasses.fields(Row)]
    try:
        with text_files.named_errors(path), records.open_plain(path) as file:
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(64, columns=columns):
                for fields in batch.to_pylist():
                    yield records.convert(fields, Row)
    except (pyarrow.ArrowException, KeyError, ValueError) as error:
        words = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: is no Parquet of {' and '.join(columns)}: {words}") from None


def _record(line: str, kind: type, where: str) -> Any:
    try:
        return records.decode(line, kind, others=True)
    except ValueError as error:
        names = ", ".join(f'"{field.name}": ...' for field in dataclasses.fields(kind))
        raise DataError(f"{where}: {error}; wanted a line such as {{{names}}}") from None


class ByteCoder:
    """Tokens that are the bytes of a text."""

    separator = token_words.BYTES.separator

    def encoded(self, documents: list[str], where: str) -> Iterator[np.ndarray]:
        for text in documents:
            yield np.frombuffer(text.encode(), np.uint8).astype(np.uint16)

    def files(self) -> dict[str, bytes]:
        return {}


class TrainedCoder:
    """Tokens of a SentencePiece vocabulary that is trained on the text itself."""

    separator = END

    def __init__(self, documents: list[str], size: int):
        self._model = train_vocabulary(documents, size, keeps_white_space=True)
        self._vocabulary = Vocabulary(self._model)

    def encoded(self, documents: list[str], where: str) -> Iterator[np.ndarray]:
        num_bytes = np.array(self._vocabulary.bytes_of_token())
        for number, text in enumerate(documents, 1):
            pieces = [text[at : at + _PIECE_BYTES] for at in range(0, len(text), _PIECE_BYTES)]
            tokens = np.concatenate([row[:-1] for row in self._vocabulary.encode(pieces or [""])])
            if num_bytes[tokens].sum() != len(text.encode()):
                raise DataError(
                    f"{where}: document {number} holds the character U+2581, which SentencePiece "
                    "writes for a blank; replace it"
                )
            yield tokens

    def files(self) -> dict[str, bytes]:
        words = token_words.words_file(END, self._vocabulary.bytes_of_token())
        return {token_words.MODEL_FILE: self._model, token_words.FILE: words}


class GivenCoder:
    """Tokens of a user's tokenizer."""

    def __init__(self, path: str, separator: str | None, size: int | None):
        content = text_files.read_content(records.path_of(path), tokenizer_file.MOST_BYTES)
        self._content, self._tokenizer = content, tokenizer_file.TokenizerFile(content, path)
        if size is not None and size < self._tokenizer.size:
            raise FlagError(
                f"--vocabulary_size={size}: {path} has {self._tokenizer.size} tokens; "
                "give that or more"
            )
        self._size = size or self._tokenizer.size
        if self._size > token_words.MOST_TOKENS:
            raise FlagError(
                f"{path} has {self._size} tokens; at most {token_words.MOST_TOKENS} are read"
            )
        self.separator = self._tokenizer.separator(separator or None)
        counts = self._tokenizer.bytes_of_token()
        if max(counts, default=0) > token_words.MOST_TOKEN_BYTES:
            counts = []
        self._bytes = counts + [0] * (self._size - len(counts)) if counts else []

    def __str__(self) -> str:
        known = "known" if self._bytes else "not known, so there is no bits_per_byte"
        return (
            f"{self._size:,} tokens, separator {self.separator}; bytes of a token are {known}; "
            f"tokenizer.json has the sha256 {self._tokenizer.sha256[:16]}"
        )

    def encoded(self, documents: list[str], where: str) -> Iterator[np.ndarray]:
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


def _coded(
    sources: list[str] | list[Pair],
    coder: Coder,
    path: pathlib.Path,
    longest: int | None,
    separates: bool,
) -> Split:
    """Tokens of documents or pairs, each after a separator; longer ones are left out."""
    split, start = Split([]), np.array([coder.separator] if separates else [], np.uint32)
    pairs = [source for source in sources if isinstance(source, Pair)]
    texts = [text if isinstance(text, str) else text.prompt + text.completion for text in sources]
    prompts = iter(coder.encoded([pair.prompt for pair in pairs], str(path)))
    for row in coder.encoded(texts, str(path)):
        num_uncounted = len(start) + len(next(prompts)) if pairs else 0
        tokens = np.concatenate([start, row])
        if longest and len(tokens) > longest:
            split.num_left_out += 1
            continue
        split.documents.append(tokens)
        if pairs:
            split.masks.append(np.arange(len(tokens)) >= num_uncounted)
    if not split.documents:
        raise DataError(f"{path}: every document has more than {longest} tokens")
    return split


def _rows(path: pathlib.Path, *, is_evaluated: bool) -> Split:
    split = Split([])
    for number, row in enumerate(rows_of(path), 1):
        tokens, labels = (np.array(column, np.int64) for column in (row.input_ids, row.labels))
        length = len(split.documents[0]) if split.documents else len(tokens)
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
        split.documents.append(tokens)
        split.masks.append(is_counted)
    if not split.documents:
        raise DataError(f"{path}: holds no row")
    return split


def _divided(documents: list[Any], path: pathlib.Path, fraction: float) -> dict[str, list[Any]]:
    """Documents to train on and to evaluate, by a hash of each."""
    parts: dict[str, list[Any]] = {TRAIN_FILE: [], EVAL_FILE: []}
    for document in documents:
        is_text = isinstance(document, str)
        content = document if is_text else f"{document.prompt}{document.completion}"
        name = EVAL_FILE if is_evaluated(content.encode(), fraction) else TRAIN_FILE
        parts[name].append(document)
    if not all(parts.values()):
        raise DataError(
            f"{path}: a split is left without documents; choose another --eval_fraction"
        )
    return parts


def _prepare(request: Request) -> str:
    source, given = request.required_source(), request.flags["validation"]
    kind, longest = request.flags["documents"] or "none", request.flags["longest_document"]
    size, tokenizer = request.flags["vocabulary_size"], request.flags["tokenizer"]
    fraction = request.flags["eval_fraction"]
    check_fraction(fraction)
    if given is None and fraction is None:
        raise FlagError("--validation is missing: the text to evaluate on; or give --eval_fraction")
    if given is not None and fraction is not None:
        raise FlagError("--eval_fraction takes the place of --validation; give one of them")
    if request.out is None:
        raise FlagError("--out is missing: the directory to write to, such as data/text")
    if kind not in KINDS:
        raise FlagError(f"--documents={kind}: choose {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if request.flags["separator"] is not None and tokenizer is None:
        raise FlagError("--separator is a token of --tokenizer, which is missing")
    if kind == "rows" and (tokenizer or size or longest):
        raise FlagError("--documents=rows holds tokens already: leave out the flags of a text")
    if fraction is not None and kind not in ("blank_lines", "pairs"):
        raise FlagError("--eval_fraction divides documents: give --documents=blank_lines or pairs")
    paths = {TRAIN_FILE: source, EVAL_FILE: records.path_of(given or source)}
    if kind == "rows":
        splits = {n: _rows(path, is_evaluated=n == EVAL_FILE) for n, path in paths.items()}
        coder: Coder = ByteCoder()
    else:
        separator = request.flags["separator"]
        given_coder = None if tokenizer is None else GivenCoder(tokenizer, separator, size)
        read = pairs_of if kind == "pairs" else functools.partial(documents_of, separation=kind)
        texts: dict[str, Any] = (
            {name: read(path) for name, path in paths.items()}
            if fraction is None
            else _divided(read(source), source, fraction)
        )
        coder = given_coder or (ByteCoder() if size is None else _trained(texts[TRAIN_FILE], size))
        separates = separator != ""
        splits = {n: _coded(texts[n], coder, path, longest, separates) for n, path in paths.items()}
    files = {**coder.files(), **{name: shard_of(split.tokens) for name, split in splits.items()}}
    if splits[EVAL_FILE].masks:
        content = io.BytesIO()
        np.lib.format.write_array(content, np.concatenate(splits[EVAL_FILE].masks))
        files[MASK_FILE] = content.getvalue()
    _write_all(request.out, files, overwrite=request.overwrite)
    told = f"{request.out}: prepared in {request.progress.seconds:.1f} s: "
    told += ", ".join(_said(name, split, kind) for name, split in splits.items())
    return f"{told}\n{coder}" if isinstance(coder, GivenCoder) else told


def _trained(sources: list[str] | list[Pair], size: int) -> TrainedCoder:
    texts = [text if isinstance(text, str) else text.prompt + text.completion for text in sources]
    return TrainedCoder(texts, size)


def _said(name: str, split: Split, kind: str) -> str:
    what = "rows" if kind == "rows" else "documents"
    said = f"{name} {len(split.documents):,} {what}, {len(split.tokens):,} tokens"
    if split.num_left_out:
        said += f" ({split.num_left_out:,} longer ones left out)"
    if name == EVAL_FILE and split.masks:
        said += f", of which {sum(int(mask.sum()) for mask in split.masks):,} count"
    return said


def _write_all(directory: pathlib.Path, files: dict[str, bytes], *, overwrite: bool) -> None:
    known = {TRAIN_FILE, EVAL_FILE, MASK_FILE, token_words.MODEL_FILE, token_words.FILE}
    known.add(token_words.TOKENIZER_FILE)
    others = [path for path in directory.glob("*.bin") if path.name not in known]
    if others:
        raise DataError(f"{directory}: holds other shards ({others[0].name}); choose another")
    for name in sorted(known):
        path = directory / name
        if path.exists() and not overwrite and not _holds(path, files.get(name, b"")):
            raise DataError(f"{path}: holds other content; give --overwrite to replace it")
    for name in known - set(files):
        (directory / name).unlink(missing_ok=True)
    for name, content in files.items():
        records.write(directory / name, content)


def _holds(path: pathlib.Path, content: bytes) -> bool:
    try:
        return records.read_plain(path, len(content)) == content
    except (OSError, records.BoundError):
        return False


PREPARATION = Preparation(
    name="token_shards",
    usage=(
        "--from=train.txt --validation=valid.txt --out=DIR\n"
        "[--eval_fraction=FRACTION] [--documents=blank_lines] [--vocabulary_size=N] [--overwrite]\n"
        "[--tokenizer=tokenizer.json] [--separator=TOKEN]",
        "--documents=pairs --from=train.jsonl --validation=valid.jsonl --out=DIR\n"
        "[--longest_document=N] [...]",
        "--documents=rows --from=train.parquet --validation=valid.parquet --out=DIR",
    ),
    takes="""--from and --validation name texts in UTF-8, plain or as .gz. Without a second text,
--eval_fraction takes so many documents of --from, by a hash of each. A document is a whole text, or
each part between blank lines. A token is a byte, one of a SentencePiece vocabulary of N
tokens that is trained on --from, or one of --tokenizer, a tokenizer.json of Hugging Face such as
Llama 3's. With --documents=pairs each line is JSON of a document with "prompt" and "completion",
and an evaluation may count completions alone. With --documents=rows the files hold tokens, as
Parquet or JSON lines of "input_ids" and "labels", -100 where a token does not count. Shards of
tokens, such as FineWeb's .bin files, need no preparation.""",
    flags=(
        Flag("validation", "The text to evaluate on."),
        Flag("eval_fraction", "Fraction of the documents of --from that is evaluated.", float),
        Flag(
            "documents",
            "What a document is: none (each text is one), blank_lines (what stands between them), "
            "pairs (a line of JSON with prompt and completion) or rows (of tokens).",
        ),
        Flag("longest_document", "Documents of more tokens are left out; all are taken.", int),
        Flag(
            "vocabulary_size", "Tokens of the vocabulary; with --tokenizer, its own or more.", int
        ),
        Flag("tokenizer", "A tokenizer.json, whose tokens the text is written in."),
        Flag(
            "separator",
            "Its token that begins a document; without the flag, its own first token. --separator= "
            "(empty) joins documents without one.",
        ),
    ),
    run=_prepare,
)
