"""Questions about passages whose answers are spans of them: encoding, selection and rows.

A *type* is a distinct token as it is written, numbered from 1. The arrays of a split are

    {"context", "question": int32 [questions, length], a row of the vocabulary for each token
        (float16 [questions, length, N] where words have published vectors),
     "context_characters", "question_characters": uint8 [questions, length, WORD_LENGTH],
     "start", "end": int32 [questions], the first and last token of the answer; in training alone}

0 is padding, 1 a word or character that the vocabulary lacks. Every token has a first character, so
padding shows in the characters.
"""

import collections
import dataclasses
import itertools
import re
from typing import Any, NamedTuple

import numpy as np

from dawnjax.input_pipeline.reading.dataset import Declaration, Shapes, Spec, Split
from dawnjax.input_pipeline.reading.rows_on_demand import LookedUp

PADDING, UNKNOWN = 0, 1
NUM_SPECIAL = 2

NO_RANK = 2**31 - 1
"""Rank of a word outside the training split."""

WORD_LENGTH = 16
"""Characters of a token that are kept. Source: QANet (arXiv 1804.09541), section 4.1.1."""

NUM_CHARACTERS = 200
"""Rows of an embedding of characters: padding, the unknown one, and the most frequent."""

_TOKEN = re.compile(
    r"\d+(?:[.,]\d+)*"  # 1,000.5
    r"|[^\W\d_]+?(?=n['\u2019]t\b)|n['\u2019]t\b"  # do n't
    r"|['\u2019](?:s|re|ve|ll|d|m)\b"  # 's
    r"|[^\W\d_]+"  # letters
    r"|\S",
    re.IGNORECASE,
)
"""A number with its separators, a run of letters, an English ending after an apostrophe, or one
other sign: most such tokens are words that published vectors know."""


def spans_of(text: str) -> list[tuple[int, int]]:
    """First character and the one after the last of each token, white space left out."""
    return [match.span() for match in _TOKEN.finditer(text)]


def covering(spans: list[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """First and last of the spans with characters `start` to `end` - 1; None for white space."""
    inside = [n for n, (first, after) in enumerate(spans) if after > start and first < end]
    return (inside[0], inside[-1]) if inside else None


class Question(NamedTuple):
    """Question; its answers are pairs of first character in the passage and text."""

    id: str
    passage: int
    article: int
    text: str
    answers: tuple[tuple[int, str], ...]


@dataclasses.dataclass(frozen=True)
class Passages:
    """Passages, and the questions about them in the order of the articles."""

    num_articles: int
    contexts: list[str]
    questions: list[Question]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionsSpec(Spec):
    """Counts and shapes of questions; the fingerprint covers vectors, texts and references too.

    Attributes:
      context_length: Tokens of a passage to train on.
      eval_context_length: Tokens of a passage to evaluate.
      vocabulary_size: Rows of an embedding of words; 0 where words have vectors.
      vector_width: Values of a word's vector; 0 where there are none.
    """

    context_length: int
    question_length: int
    eval_context_length: int
    vocabulary_size: int
    vector_width: int

    def example_shapes(self, split: Split) -> Shapes:
        context = self.context_length if split == "train" else self.eval_context_length
        shapes: Shapes = {}
        for name, length in (("context", context), ("question", self.question_length)):
            width = self.vector_width
            shapes[name] = ((length, width), "float16") if width else ((length,), "int32")
            shapes[f"{name}_characters"] = ((length, WORD_LENGTH), "uint8")
        return shapes | ({"start": ((), "int32"), "end": ((), "int32")} if split == "train" else {})

    def batch_elements(self, batch_size: int) -> int:
        width = max(WORD_LENGTH, self.vector_width)
        return batch_size * max(self.context_length, self.eval_context_length) * width


@dataclasses.dataclass(frozen=True)
class EvaluatedTexts:
    """Texts that an evaluation needs to score spans.

    Attributes:
      passage: int32 [questions], each question's passage.
      offsets: int32 [tokens, 2], first character of each token and the one after its last.
      starts: int64 [passages], each passage's first token in `offsets`.
      references: The reference answers of each question.
    """

    contexts: tuple[str, ...]
    passage: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    questions: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]

    def answer(self, question: int, start: int, end: int) -> str | None:
        """Text from token `start` to `end` of a question's passage; None for no span."""
        if not 0 <= start <= end:
            return None
        passage = self.passage[question]
        first = self.starts[passage]
        (begin, _), (_, after) = self.offsets[first + start], self.offsets[first + end]
        return self.contexts[passage][begin:after]


Encoded = dict[str, np.ndarray]
"""Arrays that `encode` makes, by name."""


def encode(train: Passages, evaluated: Passages) -> tuple[Encoded, list[str]]:
    """Number the tokens of both splits.

    Returns:
      Arrays by name, and the types in their order:
        `ranks`: int32 [types], the place of a type's lower case among those of the training split,
          most frequent first; NO_RANK where it is not among them.
        `characters`: uint8 [types, WORD_LENGTH].
        Of each split, with its name before them: `contexts` and `questions`, int32 [tokens], all in
        a row, with the end of each, int64, in `context_ends` and `question_ends`; `passage` and
        `article`, int32 [questions]; `spans`, int32 [questions, 2], tokens of the first answer;
        `offsets`, int32 [context tokens, 2].
    """
    types: dict[str, int] = {}
    arrays: Encoded = {}
    for name, passages in (("train", train), ("eval", evaluated)):
        arrays |= {f"{name}_{part}": array for part, array in _split(passages, types).items()}
    # Type 0 is padding: the others are numbered from 1.
    words = ["", *types]
    used = np.concatenate([arrays["train_contexts"], arrays["train_questions"]])
    counts = np.bincount(used, minlength=len(words))
    arrays["ranks"] = _ranks(words, counts)
    arrays["characters"] = _characters(words, counts)
    return arrays, words


def _split(passages: Passages, types: dict[str, int]) -> Encoded:
    # Numbers in order of appearance, so that a file alone decides them.
    number = lambda word: types.setdefault(word, len(types) + 1)  # noqa: E731
    spans_of_contexts = [spans_of(context) for context in passages.contexts]
    contexts = [
        [number(context[a:b]) for a, b in spans]
        for context, spans in zip(passages.contexts, spans_of_contexts, strict=True)
    ]
    questions = [[number(q.text[a:b]) for a, b in spans_of(q.text)] for q in passages.questions]
    answers = []
    for question in passages.questions:
        start, text = question.answers[0]
        # The reader has refused answers without a token.
        span = covering(spans_of_contexts[question.passage], start, start + len(text))
        answers.append(span or (0, 0))
    return {
        "contexts": np.fromiter(itertools.chain(*contexts), np.int32),
        "context_ends": np.cumsum([len(row) for row in contexts], dtype=np.int64),
        "questions": np.fromiter(itertools.chain(*questions), np.int32),
        "question_ends": np.cumsum([len(row) for row in questions], dtype=np.int64),
        "passage": np.array([q.passage for q in passages.questions], np.int32),
        "article": np.array([q.article for q in passages.questions], np.int32),
        "spans": np.array(answers, np.int32).reshape(-1, 2),
        "offsets": np.array([s for spans in spans_of_contexts for s in spans], np.int32),
    }


def _ranks(words: list[str], counts: np.ndarray) -> np.ndarray:
    lower: collections.Counter[str] = collections.Counter()
    for word, count in zip(words, counts.tolist(), strict=True):
        lower[word.lower()] += count
    # Those of equal counts in the order of their text, so that nothing hangs on the articles'.
    frequent = sorted((w for w in lower if lower[w]), key=lambda word: (-lower[word], word))
    places = {word: place for place, word in enumerate(frequent)}
    return np.array([places.get(word.lower(), NO_RANK) for word in words], np.int32)


def _characters(words: list[str], counts: np.ndarray) -> np.ndarray:
    total: collections.Counter[str] = collections.Counter()
    for word, count in zip(words, counts.tolist(), strict=True):
        for character in word[:WORD_LENGTH]:
            total[character] += count
    frequent = sorted((c for c in total if total[c]), key=lambda c: (-total[c], c))
    numbers = {c: n for n, c in enumerate(frequent[: NUM_CHARACTERS - NUM_SPECIAL], NUM_SPECIAL)}
    table = np.zeros((len(words), WORD_LENGTH), np.uint8)
    for row, word in enumerate(words):
        for column, character in enumerate(word[:WORD_LENGTH]):
            table[row, column] = numbers.get(character, UNKNOWN)
    return table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """Choice of questions, and how much of each: the numbers of a dataset's config.

    Attributes:
      context_length: A longer passage is not trained on, with all its questions.
      question_length: A longer question is not trained on; to evaluate, its first tokens are kept.
      eval_context_length: Tokens of a passage to evaluate that are kept; 0 for all.
      vocabulary_size: Rows of the vocabulary, with padding and the unknown word.
      train_articles: Articles to train on, the first ones; 0 for all. `eval_articles` likewise.
    """

    context_length: int
    question_length: int
    eval_context_length: int
    vocabulary_size: int
    train_articles: int = 0
    eval_articles: int = 0

    def rows(self, encoded: Encoded, split: Split) -> np.ndarray:
        """Positions of the questions taken, int64 [n]."""
        articles = self.train_articles if split == "train" else self.eval_articles
        article = encoded[f"{split}_article"]
        taken = article < (articles or len(article) + 1)
        if split == "train":
            contexts = _lengths(encoded["train_context_ends"])[encoded["train_passage"]]
            questions = _lengths(encoded["train_question_ends"])
            taken &= (contexts <= self.context_length) & (questions <= self.question_length)
        return np.flatnonzero(taken)

    def spec(
        self,
        encoded: Encoded,
        vector_width: int,
        fingerprint: str,
        declaration: Declaration | None,
    ) -> QuestionsSpec:
        """Count and shapes of the questions taken; ValueError if none is left to train on."""
        train, evaluated = self.rows(encoded, "train"), self.rows(encoded, "eval")
        if not len(train):
            raise ValueError(
                f"no question to train on is left: passages have {self.context_length} tokens or "
                f"fewer (data.context_length) and questions {self.question_length} "
                "(data.question_length)"
            )
        lengths = _lengths(encoded["eval_context_ends"])[encoded["eval_passage"][evaluated]]
        return QuestionsSpec(
            num_train_examples=len(train),
            num_eval_examples=len(evaluated),
            context_length=self.context_length,
            question_length=self.question_length,
            eval_context_length=self.eval_context_length or int(lengths.max()),
            vocabulary_size=0 if vector_width else self.vocabulary_size,
            vector_width=vector_width,
            fingerprint=fingerprint,
            declaration=declaration,
        )

    def arrays(
        self, encoded: Encoded, split: Split, vectors: np.ndarray | None, spec: QuestionsSpec
    ) -> dict[str, Any]:
        """Arrays of a split; `vectors`, float16 [types, N], replace rows of the vocabulary."""
        rows = self.rows(encoded, split)
        known = encoded["ranks"] < self.vocabulary_size - NUM_SPECIAL
        words = np.where(known, encoded["ranks"], UNKNOWN - NUM_SPECIAL) + np.int32(NUM_SPECIAL)
        # Type 0 is padding and has no rank: without this it would be the unknown word.
        words[0] = PADDING
        values = words if vectors is None else vectors
        passages = encoded[f"{split}_passage"][rows]
        length = spec.context_length if split == "train" else spec.eval_context_length
        arrays: dict[str, Any] = {}
        for name, index, room in (
            ("context", passages, length),
            ("question", rows, spec.question_length),
        ):
            ends = encoded[f"{split}_{name}_ends"]
            table = _padded(encoded[f"{split}_{name}s"], ends, room)
            arrays[name] = LookedUp(table, index, values)
            arrays[f"{name}_characters"] = LookedUp(table, index, encoded["characters"])
        if split == "train":
            start, end = encoded["train_spans"][rows].T
            arrays |= {"start": np.ascontiguousarray(start), "end": np.ascontiguousarray(end)}
        return arrays

    def lengths(self, encoded: Encoded) -> "Lengths":
        rows = self.rows(encoded, "train")
        contexts = _lengths(encoded["train_context_ends"])[encoded["train_passage"][rows]]
        questions = _lengths(encoded["train_question_ends"])[rows]
        in_word = np.count_nonzero(encoded["characters"], axis=1)
        words = np.zeros(WORD_LENGTH + 1, np.int64)
        for name, counts in (
            ("context", np.bincount(encoded["train_passage"][rows])),
            ("question", np.isin(np.arange(len(encoded["train_question_ends"])), rows)),
        ):
            each = _lengths(encoded[f"train_{name}_ends"])
            # Passages after the last that is asked about count nothing.
            times = np.zeros(len(each), np.int64)
            times[: len(counts)] = counts
            used = in_word[encoded[f"train_{name}s"]]
            words += np.bincount(used, np.repeat(times, each), WORD_LENGTH + 1).astype(np.int64)
        return Lengths(contexts, questions, words)


class Lengths(NamedTuple):
    """Tokens of each question's passage and of each question, int64 [questions], without padding.

    `words`, int64 [WORD_LENGTH + 1], counts tokens by their number of characters.
    """

    contexts: np.ndarray
    questions: np.ndarray
    words: np.ndarray


def _lengths(ends: np.ndarray) -> np.ndarray:
    return np.diff(ends, prepend=0)


def _padded(tokens: np.ndarray, ends: np.ndarray, room: int) -> np.ndarray:
    """Sequences that lie end to end, in a row each: int32 [sequences, room]."""
    starts = ends - _lengths(ends)
    places = starts[:, None] + np.arange(room)
    real = places < ends[:, None]
    return np.where(real, tokens[np.minimum(places, len(tokens) - 1)], 0).astype(np.int32)
