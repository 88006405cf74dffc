"""Questions in the form of SQuAD, as `dawnjax prepare --dataset=squad` wrote them.

A prepared directory holds

    types.txt           the distinct tokens, one a line
    ranks.npy, characters.npy, {train,eval}_*.npy    as `questions.encode` says
    eval_texts.json     passages, questions and reference answers of the split to evaluate
    dataset.json        counts, and size and hash of each file

It appears whole or not at all.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import file_set
from dawnjax.input_pipeline.reading.dataset import DataError, Declaration, MissingDataError, Split
from dawnjax.input_pipeline.reading.prepared import directory_of
from dawnjax.input_pipeline.reading.published import NO_FINGERPRINT
from dawnjax.input_pipeline.reading.questions import (
    NUM_SPECIAL,
    Encoded,
    EvaluatedTexts,
    Lengths,
    QuestionsSpec,
    Selection,
)
from dawnjax.input_pipeline.reading.word_vectors import read_vectors
from dawnjax.limits import Limit, NonNegative, OneOrMore

DATASET = "squad"
SCHEMA_VERSION = 1
TYPES_FILE, TEXTS_FILE = "types.txt", "eval_texts.json"

_COUNTS = {
    "train": (442, 18_896, 87_599),
    "eval": (48, 2_067, 10_570),
}
"""Articles, passages and questions of SQuAD v1.1. Source: Rajpurkar et al. 2016, section 4 (the
articles), and the published files."""

_REFERENCES = "bbd329a949d4df173ca02cb57adc77a64d7e18b6e427d43aa77cab65580fc20b"
"""`references_digest` of the published development set."""


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

    TAG: ClassVar[str] = DATASET
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
        """Counts and shapes; reads the vectors too, so that a wrong line ends a run early.

        Raises:
          DataError: A file is missing or damaged.
          ValueError: No question is left.
        """
        _read_texts.cache_clear()  # the next run of this process reads them on its own clock
        directory, body = self._description()
        vectors = self._vectors(directory, body)
        content = {name: file["sha256"] for name, file in body["files"].items()}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        if vectors is not None:
            digest.update(vectors.tobytes())
        width = 0 if vectors is None else vectors.shape[1]
        encoded = _encoded(directory, body)
        fingerprint = digest.hexdigest()[:16]
        return self._selection.spec(encoded, width, fingerprint, self._declare(body))

    def published_spec(self) -> QuestionsSpec:
        """Counts and shapes of SQuAD v1.1 with the default lengths, without its files.

        The width of vectors is that of the file's name, as in `glove.6B.100d.txt`.

        Raises:
          MissingDataError: Other lengths or articles, or a name without a width.
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
        """The arrays of a split, as `questions` says.

        Raises:
          DataError: A file is missing or damaged.
        """
        directory, body = self._description()
        encoded, vectors = _encoded(directory, body), self._vectors(directory, body)
        width = 0 if vectors is None else vectors.shape[1]
        spec = self._selection.spec(encoded, width, "", None)
        return self._selection.arrays(encoded, split, vectors, spec)

    def evaluated_texts(self) -> EvaluatedTexts:
        """Passages and reference answers of the split to evaluate, in its order.

        Raises:
          DataError: They are missing or damaged.
        """
        directory, _ = self._description()
        return _read_texts(directory, self._selection)

    def train_lengths(self) -> Lengths:
        """How long the questions to train on are.

        Raises:
          DataError: A file is missing or damaged.
        """
        directory, body = self._description()
        return self._selection.lengths(_encoded(directory, body))

    @property
    def _selection(self) -> Selection:
        names = [field.name for field in dataclasses.fields(Selection)]
        return Selection(**{name: getattr(self, name) for name in names})

    def _description(self) -> tuple[pathlib.Path, dict[str, Any]]:
        directory = directory_of(DATASET, self.data_dir)
        return directory, file_set.read_description(directory, DATASET, SCHEMA_VERSION)

    def _vectors(self, directory: pathlib.Path, body: dict[str, Any]) -> np.ndarray | None:
        if not self.word_vectors:
            return None
        path = pathlib.Path(self.word_vectors).expanduser()
        elsewhere = pathlib.Path(os.environ.get("DAWNJAX_DATA", "data")) / path
        path = elsewhere if not path.exists() and elsewhere.exists() else path
        types = file_set.read_file(directory, body, TYPES_FILE).decode().split("\n")
        # Type 0 is padding, and no word of the file.
        vectors, _ = read_vectors(path, types[:-1])
        return np.concatenate([np.zeros_like(vectors[:1]), vectors])

    def _declare(self, body: dict[str, Any]) -> Declaration:
        """What the questions are: the published ones, if counts and references are theirs."""
        names = ("articles", "passages", "questions")
        for split, counts in _COUNTS.items():
            there = tuple(body[f"num_{split}_{name}"] for name in names)
            if there != counts:
                return Declaration(
                    name="questions in the form of SQuAD",
                    evidence=f"{there[2]:,} questions to {split}, and SQuAD v1.1 has {counts[2]:,}",
                )
        if body["eval_references"] != _REFERENCES:
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


def _encoded(directory: pathlib.Path, body: dict[str, Any]) -> Encoded:
    names = [name for name in body["files"] if name.endswith(".npy")]
    return {name.removesuffix(".npy"): file_set.read_array(directory, body, name) for name in names}


@functools.lru_cache(maxsize=2)
def _read_texts(directory: pathlib.Path, selection: Selection) -> EvaluatedTexts:
    body = file_set.read_description(directory, DATASET, SCHEMA_VERSION)
    content = file_set.read_file(directory, body, TEXTS_FILE)
    try:
        texts = records.load_json(content, 10 * records.MOST_MARKS)
    except ValueError:
        raise DataError(f"{directory / TEXTS_FILE}: damaged (no JSON)") from None
    encoded = _encoded(directory, body)
    return texts_of(texts["contexts"], texts["questions"], texts["answers"], encoded, selection)


def texts_of(
    contexts: list[str],
    questions: list[str],
    references: list[list[str]],
    encoded: Encoded,
    selection: Selection,
) -> EvaluatedTexts:
    """The texts of the questions that are evaluated.

    Args:
      contexts: All passages.
      questions: All questions.
      references: The answers of each.
      encoded: What `encode` made of them.
      selection: Which of them are taken.
    """
    rows, ends = selection.rows(encoded, "eval"), encoded["eval_context_ends"]
    return EvaluatedTexts(
        contexts=tuple(contexts),
        passage=encoded["eval_passage"][rows],
        offsets=encoded["eval_offsets"],
        starts=np.concatenate([[0], ends[:-1]]),
        questions=tuple(questions[row] for row in rows),
        references=tuple(tuple(references[row]) for row in rows),
    )
