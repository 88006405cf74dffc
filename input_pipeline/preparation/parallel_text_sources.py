"""From text files, or TFDS, to prepared parallel text: vocabulary, tokens, packed rows.

Files are UTF-8, plain or gzip (.gz), one sentence a line, line n of the source beside line n of the
target. A training pair with an empty side, or with a side longer than a row, is left out and
counted; no pair to evaluate ever is.
"""

import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import shutil
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.parallel_text import (
    DESCRIPTION_FILE,
    REFERENCES_FILE,
    SCHEMA_VERSION,
    VOCABULARY_FILE,
    digest_of,
    read_description,
    spec_of,
)
from dawnjax.input_pipeline.preparation import packing
from dawnjax.input_pipeline.preparation.parallel_text_tfds import TfdsPairs
from dawnjax.input_pipeline.preparation.request import DONE, Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.reading import vocabulary
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError, TextSpec
from dawnjax.input_pipeline.reading.prepared import Outcome, with_overwrite

MAX_EXPANSION = 20
LARGEST_SMALL_TEXT = 16 * 2**20
"""A .gz of text unpacks to 3 or 4 times its size. One that unpacks to more than this many times,
and this many bytes beside, is a bomb."""

ROW_LENGTHS = (8, 510)
"""Shortest and longest row: segments are stored as uint8, and a sentence has two tokens or more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """What is prepared.

    Attributes:
      train_sources: Files of source sentences.
      train_targets: The same number of files of their translations.
      eval_source: The file of sentences to translate at evaluations; None takes those of `tfds`.
      eval_target: The file of their reference translations.
      tfds: Pairs that TensorFlow Datasets has; its training split comes before the files.
      vocabulary_size: Tokens of the joint vocabulary.
      row_length: Room of a row, in tokens of the side that has more.
      vocabulary_file: A SentencePiece model to use; None trains one on the training text.
    """

    train_sources: tuple[pathlib.Path, ...] = ()
    train_targets: tuple[pathlib.Path, ...] = ()
    eval_source: pathlib.Path | None = None
    eval_target: pathlib.Path | None = None
    tfds: TfdsPairs | None = None
    vocabulary_size: int
    row_length: int
    vocabulary_file: pathlib.Path | None = None


def prepare(
    corpus: Corpus,
    out: pathlib.Path,
    *,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, Any], Outcome]:
    """Writes the prepared form of a corpus, or finds that it is there already.

    It is written beside the directory and renamed into place, so an interruption leaves nothing
    half-made there.

    Args:
      corpus: The files and sizes.
      out: The directory.
      overwrite: Replace another prepared corpus there.
      say: Called with a line of progress.

    Returns:
      The description, and "unchanged" where the directory held the same content.

    Raises:
      DataError: A file that cannot be read, sides of different length, or a directory that holds
        something else.
    """
    low, high = ROW_LENGTHS
    if not low <= corpus.row_length <= high:
        raise DataError(f"row_length={corpus.row_length} must lie in {low} to {high}")
    is_ours = (out / DESCRIPTION_FILE).exists()
    if out.exists() and not is_ours and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out}: holds something else; choose another directory")
    files, counts = _contents(corpus, say)
    body: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "dataset": "parallel_text",
        **counts,
        "files": {
            name: {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }
    if is_ours and _holds(out, body, overwrite):
        return body, "unchanged"
    text = json.dumps({**body, "sha256": digest_of(body)}, indent=1) + "\n"
    partial = out.with_name(out.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in {**files, DESCRIPTION_FILE: text.encode()}.items():
            (partial / name).write_bytes(content)
        if is_ours:
            shutil.rmtree(out)
        partial.replace(out)
    except OSError as error:
        raise DataError(f"{out}: cannot be written ({error.strerror})") from None
    return body, "written"


def _holds(out: pathlib.Path, wanted: dict[str, Any], overwrite: bool) -> bool:
    try:
        there = read_description(out)
        same = spec_of(there) == spec_of(wanted)
    except DataError as error:
        if not overwrite:
            raise DataError(with_overwrite(error)) from None
        return False
    if not same and not overwrite:
        raise DataError(f"{out}: holds other parallel text; give --overwrite to replace it")
    # An earlier version did not count what it read: its description is written anew.
    return same and there.keys() >= wanted.keys()


def _contents(
    corpus: Corpus, say: Callable[[str], None]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Makes the files' contents, and what the description says of them."""
    counts_differ = len(corpus.train_sources) != len(corpus.train_targets)
    if counts_differ or not (corpus.train_sources or corpus.tfds):
        raise DataError(
            f"{len(corpus.train_sources)} source and {len(corpus.train_targets)} target files to "
            "train on; each source file needs its target file"
        )
    sources: list[str] = []
    targets: list[str] = []
    if corpus.tfds is not None:
        sources, targets = corpus.tfds.read("train")
    for files in zip(corpus.train_sources, corpus.train_targets, strict=True):
        source, target = read_pairs(*files)
        sources += source
        targets += target
    whole = [index for index, pair in enumerate(zip(sources, targets, strict=True)) if all(pair)]
    num_empty = len(sources) - len(whole)
    sources, targets = [sources[index] for index in whole], [targets[index] for index in whole]
    if not sources:
        where = [*corpus.train_sources, corpus.tfds and corpus.tfds.directory][0]
        raise DataError(f"{where}: no sentence pairs")
    if corpus.eval_source is not None and corpus.eval_target is not None:
        eval_sources, eval_targets = read_pairs(corpus.eval_source, corpus.eval_target)
    elif corpus.tfds is not None:
        names = [corpus.tfds.eval_split] if corpus.tfds.eval_split else ["validation", "test"]
        eval_sources, eval_targets = corpus.tfds.read(*names)
    else:
        raise DataError("no sentence pairs to evaluate: two files, source and target, are needed")
    if not eval_sources:
        raise DataError(f"{corpus.eval_source}: no sentence pairs")

    if corpus.vocabulary_file is not None:
        try:
            model = corpus.vocabulary_file.read_bytes()
        except FileNotFoundError as error:
            raise MissingDataError(f"{corpus.vocabulary_file}: {error.strerror}") from None
        except OSError as error:
            raise DataError(f"{corpus.vocabulary_file}: {error.strerror}") from None
    else:
        say(
            f"training a vocabulary of {corpus.vocabulary_size:,} tokens on {2 * len(sources):,} "
            "sentences"
        )
        model = vocabulary.train_vocabulary([*sources, *targets], corpus.vocabulary_size)
    words = vocabulary.Vocabulary(model)
    if words.size != corpus.vocabulary_size:
        raise DataError(
            f"the vocabulary has {words.size} tokens, not vocabulary_size={corpus.vocabulary_size}"
        )
    say(f"{len(sources):,} pairs to encode and pack")
    packed, counts = _packed_rows(words.encode(sources), words.encode(targets), corpus.row_length)
    evaluated, references = _evaluated(eval_sources, eval_targets, words)
    arrays = {**packed, **{f"eval_{side}.npy": array for side, array in evaluated.items()}}
    contents = {name: _npy_bytes(array) for name, array in arrays.items()}
    contents[VOCABULARY_FILE] = model
    contents[REFERENCES_FILE] = "".join(line + "\n" for line in references).encode()
    return contents, {
        **counts,
        "num_empty_pairs": num_empty,
        "num_pairs_read": len(sources) + num_empty,
        "eval_text_md5": [
            hashlib.md5(_read_text(path), usedforsecurity=False).hexdigest()
            for path in (corpus.eval_source, corpus.eval_target)
            if path is not None
        ],
        "num_eval_examples": len(references),
        "eval_source_length": arrays["eval_source.npy"].shape[1],
        "eval_target_length": arrays["eval_target.npy"].shape[1],
        "vocabulary_size": words.size,
    }


@dataclasses.dataclass(frozen=True)
class EvaluatedText:
    """Sentences to translate and their references, encoded.

    Attributes:
      arrays: `source` and `target`, uint16 [pairs, longest], shortest source first.
      references: The target sentences as they were, in the same order.
      fingerprint: Hash of both sides' text, 16 hex digits.
    """

    arrays: dict[str, np.ndarray]
    references: tuple[str, ...]
    fingerprint: str


def read_test_set(
    source: pathlib.Path, target: pathlib.Path, words: vocabulary.Vocabulary
) -> EvaluatedText:
    """Reads two files of text as a split to evaluate, encoded by a vocabulary that there is.

    Raises:
      DataError: A file cannot be read, or they have different numbers of lines, or none.
    """
    sources, targets = read_pairs(source, target)
    if not sources:
        raise DataError(f"{source}: no sentence pairs")
    digest = hashlib.sha256("\n".join([*sources, *targets]).encode())
    arrays, references = _evaluated(sources, targets, words)
    return EvaluatedText(arrays, references, digest.hexdigest()[:16])


def _evaluated(
    sources: list[str], targets: list[str], words: vocabulary.Vocabulary
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """The arrays and references of a split to evaluate."""
    source_tokens, target_tokens = words.encode(sources), words.encode(targets)
    # Sentences of like length are translated together, so that a batch ends soon.
    order = sorted(range(len(source_tokens)), key=lambda row: (len(source_tokens[row]), row))
    arrays = {}
    for side, tokens in (("source", source_tokens), ("target", target_tokens)):
        longest = max(len(sentence) for sentence in tokens)
        arrays[side], _ = _filled([[tokens[row]] for row in order], longest)
    return arrays, tuple(targets[row] for row in order)


def _packed_rows(
    sources: list[np.ndarray], targets: list[np.ndarray], row_length: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of the training split, and their counts."""
    source_lengths = np.array([len(row) for row in sources])
    target_lengths = np.array([len(row) for row in targets])
    source_room, target_room = packing.row_lengths(source_lengths, target_lengths, row_length)
    fits = np.flatnonzero((source_lengths <= source_room) & (target_lengths <= target_room))
    if not fits.size:
        raise DataError(f"no pair fits row_length={row_length}; take a larger one")
    rows = packing.pack(source_lengths[fits], target_lengths[fits], source_room, target_room)
    arrays = {}
    for side, tokens, room in (("source", sources, source_room), ("target", targets, target_room)):
        sentences = [[tokens[fits[position]] for position in row] for row in rows]
        filled, segments = _filled(sentences, room)
        arrays[f"train_{side}.npy"], arrays[f"train_{side}_segments.npy"] = filled, segments
    num_tokens = [int(lengths[fits].sum()) for lengths in (source_lengths, target_lengths)]
    return arrays, {
        "num_train_examples": len(rows),
        "num_train_pairs": int(fits.size),
        "num_too_long_pairs": len(sources) - int(fits.size),
        "source_length": source_room,
        "target_length": target_room,
        "num_source_tokens": num_tokens[0],
        "num_target_tokens": num_tokens[1],
        "source_padding_fraction": 1 - num_tokens[0] / (len(rows) * source_room),
        "target_padding_fraction": 1 - num_tokens[1] / (len(rows) * target_room),
    }


def read_pairs(source: pathlib.Path, target: pathlib.Path) -> tuple[list[str], list[str]]:
    """Reads the lines of two files, UTF-8 or gzip, of which the second translates the first.

    Raises:
      DataError: A file cannot be read, or they have different numbers of lines.
    """
    sides = _read_lines(source), _read_lines(target)
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{source} has {len(sides[0]):,} lines and {target} {len(sides[1]):,}; line n of the "
            "target must be the translation of line n of the source"
        )
    return sides


def _read_lines(path: pathlib.Path) -> list[str]:
    """The lines, split at newlines only, each stripped of white space at its ends."""
    content = _read_text(path)
    try:
        text = content.decode("utf8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path}: line {line} is not UTF-8") from None
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.strip() for line in lines]


def _read_text(path: pathlib.Path) -> bytes:
    """A file's content, decompressed."""
    try:
        content = path.read_bytes()
        if content[:2] != b"\x1f\x8b":
            return content
        return records.gunzip(
            io.BytesIO(content), LARGEST_SMALL_TEXT + MAX_EXPANSION * len(content)
        )
    except records.BoundError as error:
        raise DataError(f"{path}: {error}, which no text does; unpack it first") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error})") from None
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


def _filled(rows: Sequence[Sequence[np.ndarray]], room: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences side by side, uint16 [rows, room], and the place of each in its row, from 1."""
    filled = np.zeros((len(rows), room), np.uint16)
    segments = np.zeros((len(rows), room), np.uint8)
    for number, row in enumerate(rows):
        start = 0
        for segment, sentence in enumerate(row, start=1):
            end = start + len(sentence)
            filled[number, start:end], segments[number, start:end] = sentence, segment
            start = end
    return filled, segments


def _npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def describe(description: dict[str, Any]) -> str:
    """One line that says what was prepared."""
    spec: TextSpec = spec_of(description)
    padding = [description[f"{side}_padding_fraction"] for side in ("source", "target")]
    left_out = description["num_too_long_pairs"] + description["num_empty_pairs"]
    return (
        f"{spec.num_train_pairs:,} pairs in {spec.num_train_examples:,} rows of "
        f"{spec.source_length} + {spec.target_length} tokens ({left_out:,} pairs left out, too "
        f"long or empty), padding {padding[0]:.2%} and {padding[1]:.2%}; "
        f"{spec.num_eval_examples:,} pairs to evaluate; vocabulary of {spec.vocabulary_size:,}"
    )


def _prepare(request: Request) -> str:
    values = {**request.flags, "out": request.out}
    files = ["train_source", "train_target", "eval_source", "eval_target"]
    needed = ["source_language", "target_language"] if request.source else files
    for name in [*needed, "vocabulary_size", "row_length", "out"]:
        if not values[name]:
            raise FlagError(f"--{name} is missing: parallel_text needs it")
    languages = [name for name in ("source_language", "target_language") if values[name]]
    if languages and not request.source:
        raise FlagError(f"--{languages[0]} is for a TFDS directory, given as --from=PATH")
    if bool(values["eval_source"]) != bool(values["eval_target"]):
        raise FlagError("--eval_source and --eval_target go together")

    def paths(name: str) -> tuple[pathlib.Path, ...]:
        parts = (values[name] or "").split(",")
        return tuple(pathlib.Path(part).expanduser() for part in parts if part)

    tfds = request.source and TfdsPairs(
        directory=request.source,
        source_language=values["source_language"],
        target_language=values["target_language"],
        eval_split=values["eval_split"] or "",
    )
    corpus = Corpus(
        train_sources=paths("train_source"),
        train_targets=paths("train_target"),
        eval_source=next(iter(paths("eval_source")), None),
        eval_target=next(iter(paths("eval_target")), None),
        tfds=tfds,
        vocabulary_size=values["vocabulary_size"],
        row_length=values["row_length"],
        vocabulary_file=next(iter(paths("vocabulary")), None),
    )
    progress = request.progress
    description, outcome = prepare(
        corpus, values["out"], overwrite=request.overwrite, say=progress.say
    )
    done = f"{DONE[outcome]} in {progress.seconds:.1f} s"
    return f"{values['out']}: {done}: {describe(description)}"


PREPARATION = Preparation(
    name="parallel_text",
    usage=(
        "--train_source=FILES --train_target=FILES\n"
        "--eval_source=FILE --eval_target=FILE --vocabulary_size=N --row_length=N --out=DIR\n"
        "[--vocabulary=FILE] [--overwrite]",
        "--from=TFDS_DIR --source_language=CODE\n"
        "--target_language=CODE [--eval_split=NAME] --vocabulary_size=N --row_length=N --out=DIR\n"
        "[--vocabulary=FILE] [--overwrite]",
    ),
    takes="""The files are UTF-8 or .gz, line n of the target being the translation of line n of the
source. It trains a joint SentencePiece vocabulary on the training text, encodes, and packs whole
pairs into rows of row_length tokens; --vocabulary takes one that was trained before
(vocabulary.model in a prepared directory). Instead of files, or beside more files to train on,
--from names a translation dataset of TensorFlow Datasets in ArrayRecord files, such as
wmt14_translate/de-en, and the two languages' codes in it.""",
    flags=(
        Flag("source_language", "Code of the language to translate, such as en: with --from."),
        Flag("target_language", "Code of the language to translate to, such as de: with --from."),
        Flag("eval_split", "Split of --from to evaluate; without it, validation, or else test."),
        Flag("train_source", "Files of source sentences to train on, separated by commas."),
        Flag("train_target", "Files of their translations, in the same order."),
        Flag("eval_source", "The file of source sentences to evaluate."),
        Flag("eval_target", "The file of their reference translations."),
        Flag("vocabulary", "A SentencePiece model to use instead of training one."),
        Flag("vocabulary_size", "Tokens of the vocabulary.", int),
        Flag("row_length", "Room of a packed row, in tokens of the side that has more.", int),
    ),
    run=_prepare,
)
