"""Text files, or TFDS, into prepared parallel text: vocabulary, tokens, packed rows.

Line n of the target translates line n of the source. A training pair with an empty side, or with a
side longer than a row, is left out and counted; no pair to evaluate ever is.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.parallel_text import (
    KIND,
    REFERENCES_FILE,
    VOCABULARY_FILE,
    TextFacts,
)
from dawnjax.input_pipeline.preparation import packing
from dawnjax.input_pipeline.preparation.parallel_text_tfds import TfdsPairs
from dawnjax.input_pipeline.preparation.request import DONE, Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.preparation.writing import Outcome, refuse_strangers, write_files
from dawnjax.input_pipeline.reading import overlap, sentence_pairs, text_files, vocabulary
from dawnjax.input_pipeline.reading.dataset import DataError, overlap_line
from dawnjax.input_pipeline.reading.manifest import Manifest
from dawnjax.input_pipeline.reading.sentence_pairs import (
    MOST_EVAL_LINE_BYTES,
    evaluated_arrays,
    read_pairs,
)

ROW_LENGTHS = (8, 510)
"""Shortest and longest row: segments are stored as uint8, and a sentence has two tokens or more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """Files and sizes of a corpus.

    Attributes:
      train_targets: As many files as `train_sources`, of their translations.
      eval_source: Sentences to translate at evaluations; None takes those of `tfds`.
      tfds: Pairs that TensorFlow Datasets has; its training split comes before the files.
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
) -> tuple[Manifest[TextFacts], Outcome]:
    """Write the prepared form of a corpus, or find it there; `say` takes lines of progress."""
    low, high = ROW_LENGTHS
    if not low <= corpus.row_length <= high:
        raise DataError(f"row_length={corpus.row_length} must lie in {low} to {high}")
    refuse_strangers(out)
    facts, contents = _contents(corpus, say)
    return write_files(out, KIND, facts, contents, overwrite=overwrite)


Pairs = tuple[list[str], list[str]]


def _training_pairs(corpus: Corpus) -> Pairs:
    counts_differ = len(corpus.train_sources) != len(corpus.train_targets)
    if counts_differ or not (corpus.train_sources or corpus.tfds):
        raise DataError(
            f"{len(corpus.train_sources)} source and {len(corpus.train_targets)} target files to "
            "train on; each source file needs its target file"
        )
    sources, targets = corpus.tfds.read("train") if corpus.tfds is not None else ([], [])
    for files in zip(corpus.train_sources, corpus.train_targets, strict=True):
        source, target = read_pairs(*files)
        sources += source
        targets += target
    return sources, targets


def _eval_pairs(corpus: Corpus) -> Pairs:
    if corpus.eval_source is not None and corpus.eval_target is not None:
        files = (corpus.eval_source, corpus.eval_target)
        sources, targets = read_pairs(*files, MOST_EVAL_LINE_BYTES)
    elif corpus.tfds is not None:
        names = [corpus.tfds.eval_split] if corpus.tfds.eval_split else ["validation", "test"]
        sources, targets = corpus.tfds.read(*names)
    else:
        raise DataError("no sentence pairs to evaluate: two files, source and target, are needed")
    if not sources:
        raise DataError(f"{corpus.eval_source}: no sentence pairs")
    return sources, targets


def _contents(
    corpus: Corpus, say: Callable[[str], None]
) -> tuple[TextFacts, dict[str, np.ndarray | bytes]]:
    pairs = _training_pairs(corpus)
    num_read = len(pairs[0])
    whole = [index for index, pair in enumerate(zip(*pairs, strict=True)) if all(pair)]
    sources, targets = ([side[index] for index in whole] for side in pairs)
    if not sources:
        where = [*corpus.train_sources, corpus.tfds and corpus.tfds.directory][0]
        raise DataError(f"{where}: no sentence pairs")
    eval_pairs = _eval_pairs(corpus)
    # The vocabulary sees no text to evaluate: that would leak it into training.
    if corpus.vocabulary_file is not None:
        model = text_files.read_content(corpus.vocabulary_file, vocabulary.MOST_BYTES)
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
    arrays, counts = _packed_rows(words.encode(sources), words.encode(targets), corpus.row_length)
    evaluated, references = evaluated_arrays(*eval_pairs, words)
    arrays |= {f"eval_{side}.npy": array for side, array in evaluated.items()}
    facts = TextFacts(
        overlap=overlap.shared(_contents_of(pairs), _contents_of(eval_pairs), "pairs"),
        **counts,
        num_pairs_read=num_read,
        num_empty_pairs=num_read - len(sources),
        eval_text_md5=tuple(
            hashlib.md5(
                text_files.read_content(path, sentence_pairs.MOST_BYTES), usedforsecurity=False
            ).hexdigest()
            for path in (corpus.eval_source, corpus.eval_target)
            if path is not None
        ),
        num_eval_examples=len(references),
        eval_source_length=evaluated["source"].shape[1],
        eval_target_length=evaluated["target"].shape[1],
        vocabulary_size=words.size,
    )
    text = "".join(line + "\n" for line in references).encode()
    return facts, {**arrays, VOCABULARY_FILE: model, REFERENCES_FILE: text}


def _contents_of(pairs: Pairs) -> Iterator[bytes]:
    for pair in zip(*pairs, strict=True):
        yield "\n".join(pair).encode()


def _packed_rows(
    sources: list[np.ndarray], targets: list[np.ndarray], row_length: int
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
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
        filled, segments = sentence_pairs.filled(sentences, room)
        arrays[f"train_{side}.npy"], arrays[f"train_{side}_segments.npy"] = filled, segments
    return arrays, {
        "num_train_examples": len(rows),
        "num_train_pairs": int(fits.size),
        "num_too_long_pairs": len(sources) - int(fits.size),
        "source_length": source_room,
        "target_length": target_room,
        "num_source_tokens": int(source_lengths[fits].sum()),
        "num_target_tokens": int(target_lengths[fits].sum()),
    }


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
        return tuple(records.path_of(part) for part in parts if part)

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
    manifest, outcome = prepare(
        corpus, values["out"], overwrite=request.overwrite, say=progress.say
    )
    done = f"{DONE[outcome]} in {progress.seconds:.1f} s"
    facts = manifest.facts
    note = overlap_line(facts.overlap, "\nnote: ")
    return f"{values['out']}: {done}: {facts.summary()}{note}"


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
