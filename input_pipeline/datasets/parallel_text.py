"""Parallel text for translation, as `dawnjax prepare --dataset=parallel_text` wrote it.

    vocabulary.model                       the joint SentencePiece vocabulary
    train_{source,target}.npy              uint16 [rows, length]: several pairs in each row
    train_{source,target}_segments.npy     uint8 [rows, length]: the pair of each token, from 1
    eval_{source,target}.npy               uint16 [pairs, longest]: one pair a row, shortest first
    eval_references.txt                    the target sentences as they were, in the same order

Of the originals, line n of the target translates line n of the source. A training pair with an
empty side, or with a side longer than a row, is left out and counted; no pair to evaluate ever is.
"""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import (
    columns,
    overlap,
    packing,
    sentence_pairs,
    text_files,
    vocabulary,
)
from dawnjax.input_pipeline.reading.columns import Columns, Content, Made
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    TextSpec,
    directory_of,
)
from dawnjax.input_pipeline.reading.preparing import Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.reading.sentence_pairs import (
    MOST_EVAL_LINE_BYTES,
    evaluated_arrays,
    read_pairs,
)

KIND = "parallel_text"
VOCABULARY_FILE = "vocabulary.model"
REFERENCES_FILE = "eval_references.txt"

ROW_LENGTHS = (8, 510)
"""Shortest and longest row: segments are stored as uint8, and a sentence has two tokens or more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFacts:
    """Facts of prepared parallel text; `TextSpec` has those of the same names.

    Attributes:
      num_pairs_read: Training pairs before any is left out.
      num_empty_pairs: Training pairs with an empty side, left out.
      num_too_long_pairs: Training pairs with a side longer than a row, left out.
      eval_text_md5: Of the text of both sides to evaluate.
      overlap: Pairs in both splits, both sides equal.
    """

    num_pairs_read: int
    num_empty_pairs: int
    num_too_long_pairs: int
    num_train_examples: int
    num_train_pairs: int
    num_eval_examples: int
    source_length: int
    target_length: int
    eval_source_length: int
    eval_target_length: int
    num_source_tokens: int
    num_target_tokens: int
    vocabulary_size: int
    eval_text_md5: tuple[str, ...]
    overlap: Overlap | None = None

    def __str__(self) -> str:
        rows = self.num_train_examples
        padding = [
            1 - self.num_source_tokens / (rows * self.source_length),
            1 - self.num_target_tokens / (rows * self.target_length),
        ]
        left_out = self.num_too_long_pairs + self.num_empty_pairs
        return (
            f"{self.num_train_pairs:,} pairs in {rows:,} rows of {self.source_length} + "
            f"{self.target_length} tokens ({left_out:,} pairs left out as too long or empty), "
            f"padding {padding[0]:.2%} and {padding[1]:.2%}; {self.num_eval_examples:,} pairs to "
            f"evaluate; vocabulary of {self.vocabulary_size:,}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelText:
    """Sentence pairs of two languages.

    An example of the training split is a packed row, not a sentence: `global_batch_size` counts
    rows, each of nearly `row_length` source and target tokens.

    Attributes:
      corpus: Name of the corpus and direction, and of its directory.
      vocabulary_size: Tokens of the joint vocabulary; the prepared vocabulary must have as many.
      row_length: Length of a training row, in tokens of the longer side; the prepared rows must
        have the same.
      data_dir: The prepared directory. Empty takes the corpus's folder in the directory of the
        environment variable DAWNJAX_DATA, or in `./data` without it.
    """

    TAG: ClassVar[str] = "parallel_text"
    corpus: str
    vocabulary_size: int
    row_length: int
    data_dir: str = ""

    def spec(self) -> TextSpec:
        for read in (_read_vocabulary, _read_references):
            read.cache_clear()  # the next run of this process reads them on its own clock
        prepared = self._prepared()
        spec = spec_of(prepared)
        longer = max(spec.source_length, spec.target_length)
        for name, there in (("vocabulary_size", spec.vocabulary_size), ("row_length", longer)):
            wanted = getattr(self, name)
            if there != wanted:
                raise ValueError(
                    f"data.{name}={wanted}, but {prepared.directory} was prepared with {there}; "
                    f"prepare it with --{name}={wanted} --overwrite, or give --data.{name}={there}"
                )
        return spec

    def published_spec(self) -> TextSpec:
        """Approximate counts and shapes of the published corpus, without its files."""
        return _published(self.corpus, self.vocabulary_size, self.row_length)

    def load(self, split: Split) -> dict[str, np.ndarray]:
        """Arrays of a split, verified, memory-mapped and read only."""
        prepared = self._prepared()
        names = spec_of(prepared).example_shapes(split)
        return {name: prepared.array(f"{split}_{name}.npy") for name in names}

    def train_pair_lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of every training pair, source and target, int64 [pairs] each."""
        arrays = self.load("train")
        return pair_lengths(arrays["source_segments"], arrays["target_segments"])

    def vocabulary(self) -> vocabulary.Vocabulary:
        return _read_vocabulary(self._directory())

    def references(self) -> tuple[str, ...]:
        """Target sentences to evaluate, in the order of the split."""
        return _read_references(self._directory())

    def _directory(self) -> pathlib.Path:
        return directory_of(self.corpus, self.data_dir)

    def _prepared(self) -> Columns[TextFacts]:
        command = (
            f"--dataset=parallel_text --vocabulary_size={self.vocabulary_size} "
            f"--row_length={self.row_length}"
        )
        return columns.read(self._directory(), KIND, TextFacts, command)


def pair_lengths(
    source_segments: np.ndarray, target_segments: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of every pair of packed rows, source and target, int64 [pairs] each.

    Segments are int [rows, length], the pair of each token, from 1; 0 for padding.
    """
    # Every pair has both sides, so both name the same segments of a row, in the same order.
    sides = []
    for segments in (source_segments, target_segments):
        rows = np.arange(len(segments), dtype=np.int64)[:, None]
        # Segments are uint8, so 256 keeps those of two rows apart.
        row_and_segment = rows * 256 + np.asarray(segments)
        sides.append(np.unique(row_and_segment[segments > 0], return_counts=True)[1])
    return sides[0].astype(np.int64), sides[1].astype(np.int64)


def spec_of(prepared: Columns[TextFacts]) -> TextSpec:
    facts = prepared.facts
    names = [field.name for field in dataclasses.fields(TextSpec) if hasattr(facts, field.name)]
    return TextSpec(
        end=vocabulary.END,
        fingerprint=prepared.fingerprint(),
        declaration=declare(facts.num_pairs_read, facts.eval_text_md5, facts.overlap),
        **{name: getattr(facts, name) for name in names},
    )


@functools.lru_cache(maxsize=2)
def _read_vocabulary(directory: pathlib.Path) -> vocabulary.Vocabulary:
    content = columns.read(directory, KIND, TextFacts).content(VOCABULARY_FILE)
    return vocabulary.Vocabulary(content, str(directory / VOCABULARY_FILE))


@functools.lru_cache(maxsize=2)
def _read_references(directory: pathlib.Path) -> tuple[str, ...]:
    text = columns.read(directory, KIND, TextFacts).text(REFERENCES_FILE)
    return tuple(text.removesuffix("\n").split("\n"))


WMT_BENCHMARK = "WMT English-German"

WMT_TRAIN_PAIRS = {
    4_508_785: "WMT14",
    4_548_885: "WMT16",
    5_906_184: "WMT17",
}
"""Training pairs, before any is left out, of the preparations that TensorFlow Datasets publishes.
Source: its catalog."""

NEWSTEST2014_MD5 = ("dabf51a9c02b2235632f3cee75c72d49", "f6c3818b477e4a25cad68b61cc883c17")
"""Of the text of newstest2014, English and German, 3,003 lines. Source: `verify_dataset.sh` of
MLPerf's reference of the Transformer (mlcommons/training, v0.5)."""


def declare(
    num_train_pairs: int, eval_md5: Sequence[str], overlap: Overlap | None = None
) -> Declaration:
    """Declaration of parallel text, by all pairs that were read and the MD5 of its eval files."""
    name = f"parallel text of {num_train_pairs:,} pairs"
    if num_train_pairs not in WMT_TRAIN_PAIRS:
        known = ", ".join(f"{count:,}" for count in WMT_TRAIN_PAIRS)
        why = f"published preparations of {WMT_BENCHMARK} have {known} pairs"
    elif tuple(eval_md5) != NEWSTEST2014_MD5:
        why = "the evaluation text is not newstest2014, English to German"
    else:
        evidence = (
            f"equal: the number of training pairs of {WMT_TRAIN_PAIRS[num_train_pairs]} and the "
            "text of newstest2014; the training text is not compared"
        )
        return Declaration(
            name=WMT_BENCHMARK, benchmark=WMT_BENCHMARK, evidence=evidence, overlap=overlap
        )
    return Declaration(name=f"{name}, not {WMT_BENCHMARK}", evidence=why, overlap=overlap)


@dataclasses.dataclass(frozen=True)
class _Corpus:
    """Approximate size of a corpus: pairs of each split, and target tokens of a pair.

    Source: Multi30K and Tatoeba with vocabularies of 8,000, counted; for WMT, the paper's 25,000
    tokens a batch over its steps an epoch, rounded.

    Attributes:
      short: The longest side of a pair in tokens, the pairs that are left with it, and the mean
        tokens of a side of those. A longer pair is not part of an epoch.
    """

    train_pairs: int
    eval_pairs: int
    mean_tokens: float
    longest: int
    short: tuple[int, int, float] = (0, 0, 0.0)


_CORPORA = {
    # Short pairs: MLPerf Training v0.5, nvidia/dgx2 gnmt, whose log says "Pairs before: 4068191,
    # after: 3498161" for 50 tokens; tokens are its tokens a second over pairs a second, halved.
    "wmt_en_de": _Corpus(4_508_785, 3_003, 30.0, 128, short=(50, 3_498_161, 24.2)),
    "multi30k_en_de": _Corpus(29_000, 1_000, 15.5, 48),
    "tatoeba_en_de": _Corpus(163_931, 2_569, 9.97, 60),
}

_FILLED = 0.97
"""Part of a training row that holds tokens: measured of both corpora."""


def _published(corpus: str, vocabulary_size: int, row_length: int) -> TextSpec:
    """Approximate specification of a published corpus whose files need not be here."""
    known = _CORPORA.get(corpus)
    if known is None:
        raise MissingDataError(
            f"the size of {corpus} is known only from prepared data: give --data.data_dir"
        )
    pairs, mean_tokens = known.train_pairs, known.mean_tokens
    if row_length <= known.short[0]:
        _, pairs, mean_tokens = known.short
    return TextSpec(
        num_train_examples=round(pairs * mean_tokens / (_FILLED * row_length)),
        num_train_pairs=pairs,
        num_eval_examples=known.eval_pairs,
        source_length=row_length,
        target_length=row_length,
        eval_source_length=known.longest,
        eval_target_length=known.longest,
        vocabulary_size=vocabulary_size,
        end=1,
        fingerprint=NO_FINGERPRINT,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """Files and sizes of a corpus.

    Attributes:
      train_targets: As many files as `train_sources`, of their translations.
      eval_source: Sentences to translate at evaluations; `eval_target` their translations.
      row_length: Room of a row, in tokens of the side that has more.
      vocabulary_file: A SentencePiece model to use; None trains one on the training text.
    """

    train_sources: tuple[pathlib.Path, ...]
    train_targets: tuple[pathlib.Path, ...]
    eval_source: pathlib.Path
    eval_target: pathlib.Path
    vocabulary_size: int
    row_length: int
    vocabulary_file: pathlib.Path | None = None


Pairs = tuple[list[str], list[str]]


def made(corpus: Corpus, out: pathlib.Path, say: Callable[[str], None] = lambda line: None) -> Made:
    """A corpus to be written; `say` takes lines of progress."""
    low, high = ROW_LENGTHS
    if not low <= corpus.row_length <= high:
        raise DataError(f"row_length={corpus.row_length} must lie in {low} to {high}")
    facts, files = _contents(corpus, say)
    return Made(directory=out, kind=KIND, files=files, facts=facts)


def _training_pairs(corpus: Corpus) -> Pairs:
    if len(corpus.train_sources) != len(corpus.train_targets):
        raise DataError(
            f"{len(corpus.train_sources)} source and {len(corpus.train_targets)} target files to "
            "train on; each source file needs a target file"
        )
    sources, targets = [], []
    for files in zip(corpus.train_sources, corpus.train_targets, strict=True):
        source, target = read_pairs(*files)
        sources += source
        targets += target
    return sources, targets


def _contents(corpus: Corpus, say: Callable[[str], None]) -> tuple[TextFacts, dict[str, Content]]:
    pairs = _training_pairs(corpus)
    num_read = len(pairs[0])
    whole = [index for index, pair in enumerate(zip(*pairs, strict=True)) if all(pair)]
    sources, targets = ([side[index] for index in whole] for side in pairs)
    if not sources:
        raise DataError(f"{corpus.train_sources[0]}: no sentence pairs")
    eval_files = (corpus.eval_source, corpus.eval_target)
    eval_pairs = read_pairs(*eval_files, MOST_EVAL_LINE_BYTES)
    if not eval_pairs[0]:
        raise DataError(f"{corpus.eval_source}: no sentence pairs")
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
            for path in eval_files
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
) -> tuple[dict[str, Content], dict[str, int]]:
    source_lengths = np.array([len(row) for row in sources])
    target_lengths = np.array([len(row) for row in targets])
    source_room, target_room = packing.row_lengths(source_lengths, target_lengths, row_length)
    fits = np.flatnonzero((source_lengths <= source_room) & (target_lengths <= target_room))
    if not fits.size:
        raise DataError(f"no pair fits row_length={row_length}; take a larger one")
    rows = packing.pack(source_lengths[fits], target_lengths[fits], source_room, target_room)
    arrays: dict[str, Content] = {}
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


def _prepare(request: Request) -> Made:
    values = {**request.flags, "out": request.out}
    files = ["train_source", "train_target", "eval_source", "eval_target"]
    for name in [*files, "vocabulary_size", "row_length", "out"]:
        if not values[name]:
            raise FlagError(f"--{name} is missing: parallel_text needs it")
    if request.source is not None:
        raise FlagError("parallel_text does not use --from; name its files with --train_source")

    def paths(name: str) -> tuple[pathlib.Path, ...]:
        parts = (values[name] or "").split(",")
        return tuple(records.path_of(part) for part in parts if part)

    corpus = Corpus(
        train_sources=paths("train_source"),
        train_targets=paths("train_target"),
        eval_source=paths("eval_source")[0],
        eval_target=paths("eval_target")[0],
        vocabulary_size=values["vocabulary_size"],
        row_length=values["row_length"],
        vocabulary_file=next(iter(paths("vocabulary")), None),
    )
    return made(corpus, request.out_for("parallel_text"), request.progress.say)


PREPARATION = Preparation(
    name="parallel_text",
    usage=(
        "--train_source=FILES --train_target=FILES\n"
        "--eval_source=FILE --eval_target=FILE --vocabulary_size=N --row_length=N --out=DIR\n"
        "[--vocabulary=FILE] [--overwrite]",
    ),
    takes="""The files are UTF-8 or .gz; line n of the target translates line n of the source. The
command trains a joint SentencePiece vocabulary on the training text, encodes, and packs whole pairs
into rows of row_length tokens; --vocabulary takes a trained vocabulary (vocabulary.model in a
prepared directory).""",
    flags=(
        Flag("train_source", "Files of source sentences to train on, separated by commas."),
        Flag("train_target", "Files of their translations, in the same order."),
        Flag("eval_source", "The file of source sentences to evaluate."),
        Flag("eval_target", "The file of their reference translations."),
        Flag("vocabulary", "A SentencePiece model to use instead of training one."),
        Flag("vocabulary_size", "Tokens of the vocabulary.", int),
        Flag("row_length", "Length of a packed row, in tokens of the longer side.", int),
    ),
    run=_prepare,
)
