"""Questions in the form of SQuAD, as `dawnjax prepare --dataset=squad` wrote them.

types.txt           the distinct tokens, one a line
ranks.npy, characters.npy, {train,eval}_*.npy    as `questions.encode` has them
eval_texts.json     passages, questions and reference answers of the split to evaluate
dataset.json        the manifest, with the counts of `QuestionFacts`
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.published import NO_FINGERPRINT
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.manifest import Kind, Manifest
from dawnjax.input_pipeline.reading.questions import (
    NUM_SPECIAL,
    Encoded,
    EvaluatedTexts,
    Lengths,
    Passages,
    QuestionsSpec,
    Selection,
    encode_own,
)
from dawnjax.input_pipeline.reading.word_vectors import read_vectors
from dawnjax.limits import Limit, NonNegative, OneOrMore

TYPES_FILE, TEXTS_FILE = "types.txt", "eval_texts.json"

Counts = dict[Literal["articles", "passages", "questions"], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionFacts:
    """Counts of prepared questions, and `references_digest` of those to evaluate.

    `overlap` counts questions in both splits about the same passage.
    """

    train: Counts
    eval: Counts
    num_types: int
    eval_references: str
    overlap: Overlap | None = None

    def summary(self) -> str:
        parts = [
            f"{counts['questions']:,} questions about {counts['passages']:,} passages of "
            f"{counts['articles']:,} articles {purpose}"
            for counts, purpose in ((self.train, "to train on"), (self.eval, "to evaluate"))
        ]
        return f"{', '.join(parts)}; {self.num_types:,} distinct tokens"


_ARRAYS = ("contexts", "context_ends", "questions", "question_ends", "passage", "article", "spans")

KIND = Kind(
    name="squad",
    title="squad",
    facts=QuestionFacts,
    files=(
        *(f"{split}_{name}.npy" for split in ("train", "eval") for name in _ARRAYS),
        *("eval_offsets.npy", "ranks.npy", "characters.npy", TYPES_FILE, TEXTS_FILE),
    ),
)


@dataclasses.dataclass(frozen=True)
class Texts:
    """Content of `eval_texts.json`; ids, questions and answers in the order of the questions."""

    contexts: list[str]
    ids: list[str]
    questions: list[str]
    answers: list[list[str]]


PUBLISHED = QuestionFacts(
    train={"articles": 442, "passages": 18_896, "questions": 87_599},
    eval={"articles": 48, "passages": 2_067, "questions": 10_570},
    num_types=0,
    eval_references="bbd329a949d4df173ca02cb57adc77a64d7e18b6e427d43aa77cab65580fc20b",
)
"""SQuAD v1.1; types are not compared. Source: Rajpurkar et al. 2016, section 4 (the articles), and
the published files."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Squad:
    """Questions whose answers are spans of a passage.

    Attributes:
      word_vectors: A file of published vectors in GloVe's text form, `word v1 ... vN`. A relative
        path that is not there is looked for in the directory that the environment variable
        DAWNJAX_DATA names. The vectors stay as they are, and the vocabulary is that of the file.
        Empty trains vectors of its own.
      vocabulary_size: Words that have vectors of their own, the most frequent of the training
        split in lower case, with padding and the unknown word.
      context_length: Tokens of a passage; a longer one is not trained on, with all its questions.
      question_length: Tokens of a question; a longer one is not trained on, and its first tokens
        are evaluated.
      eval_context_length: Tokens of a passage to evaluate; an answer after them is not found. 0
        takes the longest, so that nothing is cut.
      train_articles: Articles to train on, the first by title; 0 for all.
      eval_articles: Articles to evaluate, likewise.
      data_dir: The prepared directory. Empty takes `squad` in the directory that the environment
        variable DAWNJAX_DATA names, or in `./data` without it.
    """

    TAG: ClassVar[str] = "squad"
    word_vectors: str = ""
    vocabulary_size: Annotated[
        int, Limit(lambda value: value > NUM_SPECIAL, f"be above {NUM_SPECIAL}")
    ] = 20_000
    context_length: OneOrMore[int] = 400
    question_length: OneOrMore[int] = 50
    eval_context_length: NonNegative[int] = 0
    train_articles: NonNegative[int] = 0
    eval_articles: NonNegative[int] = 0
    data_dir: str = ""

    def spec(self) -> QuestionsSpec:
        """Counts and shapes; reads the vectors too, so that a wrong line ends a run early."""
        _read_texts.cache_clear()  # the next run of this process reads them on its own clock
        directory, manifest = self._manifest()
        vectors, width, more = self._vectors(self._types(directory, manifest)), 0, ()
        if vectors is not None:
            width, more = vectors.shape[1], (hashlib.sha256(vectors.tobytes()).hexdigest(),)
        return self._selection.spec(
            _encoded(directory, manifest),
            width,
            manifest.fingerprint(*more),
            dataclasses.replace(self._declare(manifest.facts), overlap=manifest.facts.overlap),
        )

    def published_spec(self) -> QuestionsSpec:
        """Count and shapes of SQuAD v1.1 with default lengths, vectors as wide as their file's name
        says.
        """
        width = re.search(r"\.(\d+)d\b", self.word_vectors)
        default = Squad(vocabulary_size=self.vocabulary_size)._selection
        if self._selection != default or bool(self.word_vectors) != bool(width):
            raise MissingDataError(
                "what is left of SQuAD with these fields is known of prepared data alone: give "
                "--data.data_dir"
            )
        return QuestionsSpec(
            num_train_examples=87_352,
            num_eval_examples=10_570,
            context_length=self.context_length,
            question_length=self.question_length,
            eval_context_length=706,
            vocabulary_size=0 if width else self.vocabulary_size,
            vector_width=int(width[1]) if width else 0,
            fingerprint=NO_FINGERPRINT,
        )

    def load(self, split: Split) -> dict[str, Any]:
        directory, manifest = self._manifest()
        encoded = _encoded(directory, manifest)
        vectors = self._vectors(self._types(directory, manifest))
        width = 0 if vectors is None else vectors.shape[1]
        spec = self._selection.spec(encoded, width, "", None)
        return self._selection.arrays(encoded, split, vectors, spec)

    def evaluated_texts(self) -> EvaluatedTexts:
        directory, _ = self._manifest()
        return _read_texts(directory, self._selection)

    def own_questions(self, passages: Passages) -> "OwnQuestions":
        """Questions of a person's own, in the words and vectors of these."""
        directory, manifest = self._manifest()
        words = ["", *self._types(directory, manifest)]
        encoded, words = encode_own(_encoded(directory, manifest), words, passages)
        return asked(self._selection, encoded, self._vectors(words[1:]), passages)

    def train_lengths(self) -> Lengths:
        return self._selection.lengths(_encoded(*self._manifest()))

    @property
    def _selection(self) -> Selection:
        names = [field.name for field in dataclasses.fields(Selection)]
        return Selection(**{name: getattr(self, name) for name in names})

    def _manifest(self) -> tuple[pathlib.Path, Manifest[QuestionFacts]]:
        directory = directory_of("squad", self.data_dir)
        return directory, KIND.read(directory)

    def _types(self, directory: pathlib.Path, manifest: Manifest[QuestionFacts]) -> list[str]:
        return manifest.text(directory, TYPES_FILE).split("\n")[:-1]

    def _vectors(self, types: list[str]) -> np.ndarray | None:
        if not self.word_vectors:
            return None
        path = records.path_of(self.word_vectors)
        elsewhere = pathlib.Path(os.environ.get("DAWNJAX_DATA", "data")) / path
        path = elsewhere if not path.exists() and elsewhere.exists() else path
        vectors, _ = read_vectors(path, types)
        # Type 0 is padding, and no word of the file.
        return np.concatenate([np.zeros_like(vectors[:1]), vectors])

    def _declare(self, facts: QuestionFacts) -> Declaration:
        for split in ("train", "eval"):
            there, wanted = getattr(facts, split), getattr(PUBLISHED, split)
            if there != wanted:
                return Declaration(
                    name="questions in the form of SQuAD",
                    evidence=f"{there['questions']:,} questions to {split}, and SQuAD v1.1 has "
                    f"{wanted['questions']:,}",
                )
        if facts.eval_references != PUBLISHED.eval_references:
            evidence = "the counts are those of SQuAD v1.1, and the reference answers are others"
            return Declaration(name="questions in the form of SQuAD", evidence=evidence)
        if self.train_articles or self.eval_articles:
            evidence = "articles are left out"
            return Declaration(name="a part of SQuAD v1.1", evidence=evidence)
        return Declaration(
            name="SQuAD v1.1",
            benchmark="SQuAD",
            evidence="counts of both files, and names and reference answers of the questions to "
            "evaluate",
        )


def _encoded(directory: pathlib.Path, manifest: Manifest[QuestionFacts]) -> Encoded:
    return {
        name.removesuffix(".npy"): np.asarray(manifest.array(directory, name))
        for name in KIND.files
        if name.endswith(".npy")
    }


@functools.lru_cache(maxsize=2)
def _read_texts(directory: pathlib.Path, selection: Selection) -> EvaluatedTexts:
    manifest = KIND.read(directory)
    content, encoded = manifest.content(directory, TEXTS_FILE), _encoded(directory, manifest)
    try:
        texts = records.decode(content, Texts, 10 * records.MOST_MARKS)
    except ValueError as error:
        raise DataError(f"{directory / TEXTS_FILE}: damaged ({error})") from None
    wanted = [len(encoded["eval_context_ends"])] + 3 * [len(encoded["eval_passage"])]
    if [len(getattr(texts, field.name)) for field in dataclasses.fields(Texts)] != wanted:
        raise DataError(f"{directory / TEXTS_FILE}: damaged (other counts than the arrays)")
    if not all(texts.answers):
        raise DataError(f"{directory / TEXTS_FILE}: damaged (a question has no reference answer)")
    return texts_of(texts.contexts, texts.questions, texts.answers, encoded, selection)


def texts_of(
    contexts: list[str],
    questions: list[str],
    references: list[list[str]],
    encoded: Encoded,
    selection: Selection,
) -> EvaluatedTexts:
    """Texts of the selected questions, out of those of all."""
    rows, ends = selection.rows(encoded, "eval"), encoded["eval_context_ends"]
    return EvaluatedTexts(
        contexts=tuple(contexts),
        passage=encoded["eval_passage"][rows],
        offsets=encoded["eval_offsets"],
        starts=np.concatenate([[0], ends[:-1]]),
        questions=tuple(questions[row] for row in rows),
        references=tuple(tuple(references[row]) for row in rows),
    )


@dataclasses.dataclass(frozen=True)
class OwnQuestions:
    """Questions of a person's own as a split to evaluate, without references."""

    spec: QuestionsSpec
    examples: dict[str, Any]
    texts: EvaluatedTexts

    def evaluated_texts(self) -> EvaluatedTexts:
        return self.texts


def asked(
    selection: Selection, encoded: Encoded, vectors: np.ndarray | None, passages: Passages
) -> OwnQuestions:
    """Questions that `encode_own` has put in the place of the split to evaluate."""
    selection = dataclasses.replace(selection, eval_articles=0)
    spec = selection.spec(encoded, 0 if vectors is None else vectors.shape[1], "", None)
    texts = [question.text for question in passages.questions]
    return OwnQuestions(
        spec,
        selection.arrays(encoded, "eval", vectors, spec),
        texts_of(passages.contexts, texts, [[] for _ in texts], encoded, selection),
    )
