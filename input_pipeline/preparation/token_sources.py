"""Text into shards of tokens, for `token_shards.TokenShards`: bytes, or those of a vocabulary."""

import pathlib
import re

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.token_shards import shard_of
from dawnjax.input_pipeline.preparation.request import Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.reading import text_files, token_words, tokenizer_file
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.vocabulary import END, Vocabulary, train_vocabulary

MOST_BYTES = 2**30
"""Of a text; a shard's header counts tokens in 32 bits."""

TRAIN_FILE, EVAL_FILE = "text_train_000000.bin", "text_val_000000.bin"
_PIECE_BYTES = 2**16
"""Of a text that is encoded at a time: SentencePiece's time grows faster than a text's length."""


def documents_of(path: pathlib.Path, separation: str) -> list[str]:
    """Documents of a text: all of it, or the parts between `blank_lines`."""
    text = text_files.read(path, MOST_BYTES)
    if not text:
        raise DataError(f"{path}: is empty")
    if separation == "none":
        return [text]
    documents = [part for part in re.split(r"\n(?:[ \t]*\n)+", text.strip("\n")) if part.strip()]
    if not documents:
        raise DataError(f"{path}: holds blank lines alone")
    return documents


def byte_tokens(documents: list[str]) -> np.ndarray:
    """Bytes of each document after the separator: uint16 [tokens]."""
    separator = np.array([token_words.BYTES.separator], np.uint16)
    parts = [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in documents]
    return np.concatenate([array for part in parts for array in (separator, part)])


def encoded_tokens(documents: list[str], vocabulary: Vocabulary, where: str) -> np.ndarray:
    """Tokens of each document after the separator: uint16 [tokens]."""
    num_bytes = np.array(vocabulary.bytes_of_token())
    rows = []
    for number, text in enumerate(documents, 1):
        pieces = [text[at : at + _PIECE_BYTES] for at in range(0, len(text), _PIECE_BYTES)]
        tokens = np.concatenate([row[:-1] for row in vocabulary.encode(pieces)])
        if num_bytes[tokens].sum() != len(text.encode()):
            raise DataError(
                f"{where}: document {number} holds the character U+2581, which SentencePiece "
                "writes for a blank; replace it"
            )
        rows += [np.array([END], np.uint16), tokens]
    return np.concatenate(rows)


def _prepare(request: Request) -> str:
    source, given = request.required_source(), request.flags["validation"]
    separation = request.flags["documents"] or "none"
    size, tokenizer = request.flags["vocabulary_size"], request.flags["tokenizer"]
    if given is None:
        raise FlagError("--validation is missing: the text to evaluate on")
    if request.out is None:
        raise FlagError("--out is missing: the directory to write to, such as data/text")
    if separation not in ("none", "blank_lines"):
        raise FlagError(f"--documents={separation}: choose none or blank_lines")
    if request.flags["separator"] is not None and tokenizer is None:
        raise FlagError("--separator is a token of --tokenizer, which is missing")
    paths = {TRAIN_FILE: source, EVAL_FILE: records.path_of(given)}
    coder = None if tokenizer is None else _Coder(tokenizer, request.flags["separator"], size)
    texts = {name: documents_of(path, separation) for name, path in paths.items()}
    files: dict[str, bytes] = {}
    if coder is not None:
        tokens = {name: coder.tokens(documents) for name, documents in texts.items()}
        files |= coder.files()
    elif size is None:
        tokens = {name: byte_tokens(documents) for name, documents in texts.items()}
    else:
        model = train_vocabulary(texts[TRAIN_FILE], size, keeps_white_space=True)
        vocabulary = Vocabulary(model)
        files[token_words.MODEL_FILE] = model
        files[token_words.FILE] = token_words.words_file(END, vocabulary.bytes_of_token())
        tokens = {
            name: encoded_tokens(documents, vocabulary, str(paths[name]))
            for name, documents in texts.items()
        }
    files |= {name: shard_of(of_split) for name, of_split in tokens.items()}
    _write_all(request.out, files, overwrite=request.overwrite)
    counts = ", ".join(
        f"{name} {len(texts[name]):,} documents, {len(of_split):,} tokens"
        for name, of_split in tokens.items()
    )
    told = f"{request.out}: prepared in {request.progress.seconds:.1f} s: {counts}"
    return told if coder is None else f"{told}\n{coder}"


class _Coder:
    """Tokens of a user's tokenizer, each document after the separator."""

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
        self._separator = self._tokenizer.separator(separator)
        counts = self._tokenizer.bytes_of_token()
        self._bytes = np.array(
            counts + [0] * (self._size - len(counts)) if counts else [], np.int64
        )

    def __str__(self) -> str:
        known = "known" if len(self._bytes) else "not known, so there is no bits_per_byte"
        return (
            f"{self._size:,} tokens, separator {self._separator}; bytes of a token are {known}; "
            f"tokenizer.json has the sha256 {self._tokenizer.sha256[:16]}"
        )

    def tokens(self, documents: list[str]) -> np.ndarray:
        """Tokens of all documents: uint32 [tokens]."""
        rows, start = [], np.array([self._separator], np.uint32)
        for text, row in zip(documents, self._tokenizer.encoded(documents), strict=True):
            # A tokenizer that changes its text, such as to small letters, has no bytes to count.
            if len(self._bytes) and self._bytes[row].sum() != len(text.encode()):
                self._bytes = self._bytes[:0]
            rows += [start, row]
        return np.concatenate(rows)

    def files(self) -> dict[str, bytes]:
        counts, sha256 = self._bytes.tolist(), self._tokenizer.sha256
        words = token_words.words_file(self._separator, counts, self._size, sha256)
        return {token_words.FILE: words, token_words.TOKENIZER_FILE: self._content}


def _write_all(directory: pathlib.Path, files: dict[str, bytes], *, overwrite: bool) -> None:
    known = {TRAIN_FILE, EVAL_FILE, token_words.MODEL_FILE, token_words.FILE}
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
        "[--documents=blank_lines] [--vocabulary_size=N] [--overwrite]\n"
        "[--tokenizer=tokenizer.json] [--separator=TOKEN]",
    ),
    takes="""--from and --validation name texts in UTF-8, plain or as .gz. A document is a whole
text, or each part between blank lines. A token is a byte, one of a SentencePiece vocabulary of N
tokens that is trained on --from, or one of --tokenizer, a tokenizer.json of Hugging Face such as
Llama 3's. Shards of tokens, such as FineWeb's .bin files, need no preparation.""",
    flags=(
        Flag("validation", "The text to evaluate on."),
        Flag("documents", "What ends a document: none (each text is one) or blank_lines."),
        Flag(
            "vocabulary_size", "Tokens of the vocabulary; with --tokenizer, its own or more.", int
        ),
        Flag("tokenizer", "A tokenizer.json, whose tokens the text is written in."),
        Flag("separator", "Its token that begins a document; without it, its own first token."),
    ),
    run=_prepare,
)
