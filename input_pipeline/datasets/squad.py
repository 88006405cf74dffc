"""Questions in the form of SQuAD, as `dawnjax prepare --dataset=squad` wrote them.

    types.txt           the distinct tokens, one a line
    ranks.npy, characters.npy, {train,eval}_*.npy    as `questions.encode` has them
    eval_texts.json     passages, questions and reference answers of the split to evaluate

The originals are JSON, in which `answer_start` counts characters of the context from 0:

    {"data": [{"title", "paragraphs": [{"context", "qas": [
        {"id", "question", "answers": [{"answer_start", "text"}]}]}]}]}

Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (arXiv
1606.05250); the form is that of `train-v1.1.json`.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import columns, overlap, text_files
from dawnjax.input_pipeline.reading.columns import Columns, Content, Made
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.preparing import Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.reading.questions import (
    NUM_SPECIAL,
    Encoded,
    EvaluatedTexts,
    Lengths,
    Passages,
    Question,
    QuestionsSpec,
    Selection,
    covering,
    encode,
    spans_of,
)
from dawnjax.input_pipeline.reading.word_vectors import read_vectors
from dawnjax.limits import Limit, NonNegative, OneOrMore

KIND = "squad"
TYPES_FILE, TEXTS_FILE = "types.txt", "eval_texts.json"

MOST_BYTES = 2**30
_MOST_MARKS = 2_000_000
_BYTES_A_MARK = 16
"""SQuAD's own files have 17 and 23 bytes for each comma, colon and bracket; the larger limit holds.
Empty lists have two, and make 30 times their bytes."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")
"""JSON can escape it alone, as `\\ud83d`; it is no character, and UTF-8 cannot hold it."""

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

    def __str__(self) -> str:
        parts = [
            f"{counts['questions']:,} questions about {counts['passages']:,} passages of "
            f"{counts['articles']:,} articles {purpose}"
            for counts, purpose in ((self.train, "to train on"), (self.eval, "to evaluate"))
        ]
        return f"{', '.join(parts)}; {self.num_types:,} distinct tokens"


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
      word_vectors: A file of published vectors in GloVe's text format, `word v1 ... vN`. A missing
        relative path is looked up in the directory of the environment variable DAWNJAX_DATA. The
        vectors stay fixed, and the vocabulary is the file's. Empty trains new vectors.
      vocabulary_size: Words with their own vectors: the most frequent of the training split in
        lower case, including padding and the unknown word.
      context_length: Tokens of a passage; longer passages and their questions are left out of
        training.
      question_length: Tokens of a question; longer questions are left out of training, and cut in
        an evaluation.
      eval_context_length: Tokens of an evaluation passage; an answer after them cannot be found. 0
        takes the longest, so nothing is cut.
      train_articles: Articles to train on, the first by title; 0 takes all.
      eval_articles: Articles to evaluate, likewise.
      data_dir: The prepared directory. Empty takes `squad` in the directory of the environment
        variable DAWNJAX_DATA, or in `./data` without it.
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
        prepared = self._prepared()
        vectors, width, more = self._vectors(_types(prepared)), 0, ()
        if vectors is not None:
            width, more = vectors.shape[1], (hashlib.sha256(vectors.tobytes()).hexdigest(),)
        return self._selection.spec(
            _encoded(prepared),
            width,
            prepared.fingerprint(*more),
            dataclasses.replace(self._declare(prepared.facts), overlap=prepared.facts.overlap),
        )

    def published_spec(self) -> QuestionsSpec:
        """Count and shapes of SQuAD v1.1, for the lengths that `PUBLISHED_LENGTHS` has; vectors are
        as wide as their file's name says.
        """
        width = re.search(r"\.(\d+)d\b", self.word_vectors)
        plain = dataclasses.replace(self, vocabulary_size=20_000, word_vectors="", data_dir="")
        known = next((facts for made, facts in PUBLISHED_LENGTHS if made == plain), None)
        if known is None or bool(self.word_vectors) != bool(width):
            raise MissingDataError(
                "the size of SQuAD with these fields is known only from prepared data: give "
                "--data.data_dir"
            )
        num_train_examples, num_eval_examples, longest = known
        return QuestionsSpec(
            num_train_examples=num_train_examples,
            num_eval_examples=num_eval_examples,
            context_length=self.context_length,
            question_length=self.question_length,
            eval_context_length=longest,
            vocabulary_size=0 if width else self.vocabulary_size,
            vector_width=int(width[1]) if width else 0,
            fingerprint=NO_FINGERPRINT,
        )

    def load(self, split: Split) -> dict[str, Any]:
        prepared = self._prepared()
        encoded, vectors = _encoded(prepared), self._vectors(_types(prepared))
        width = 0 if vectors is None else vectors.shape[1]
        spec = self._selection.spec(encoded, width, "", None)
        return self._selection.arrays(encoded, split, vectors, spec)

    def evaluated_texts(self) -> EvaluatedTexts:
        return _read_texts(self._prepared().directory, self._selection)

    def train_lengths(self) -> Lengths:
        return self._selection.lengths(_encoded(self._prepared()))

    @property
    def _selection(self) -> Selection:
        names = [field.name for field in dataclasses.fields(Selection)]
        return Selection(**{name: getattr(self, name) for name in names})

    def _prepared(self) -> Columns[QuestionFacts]:
        return _read(directory_of("squad", self.data_dir))

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
            evidence = "the counts are SQuAD v1.1's, but the reference answers differ"
            return Declaration(name="questions in the form of SQuAD", evidence=evidence)
        if self.train_articles or self.eval_articles:
            evidence = "articles are left out"
            return Declaration(name="a part of SQuAD v1.1", evidence=evidence)
        return Declaration(
            name="SQuAD v1.1",
            benchmark="SQuAD",
            evidence="counts of both files; names and answers of the evaluation questions",
        )


PUBLISHED_LENGTHS = (
    (Squad(), (87_352, 10_570, 706)),
    (
        Squad(context_length=128, question_length=24, eval_context_length=256, eval_articles=6),
        (41_699, 1_341, 256),
    ),
)
"""Questions of SQuAD v1.1 to train on and to evaluate, and tokens of a passage to evaluate."""


def _read(directory: pathlib.Path) -> Columns[QuestionFacts]:
    command = "--dataset=squad --from=FILE --eval_from=FILE"
    return columns.read(directory, KIND, QuestionFacts, command)


def _types(prepared: Columns[QuestionFacts]) -> list[str]:
    return prepared.text(TYPES_FILE).split("\n")[:-1]


def _encoded(prepared: Columns[QuestionFacts]) -> Encoded:
    names = [name for name in prepared.files if name.endswith(".npy")]
    return {name.removesuffix(".npy"): np.asarray(prepared.array(name)) for name in names}


@functools.lru_cache(maxsize=2)
def _read_texts(directory: pathlib.Path, selection: Selection) -> EvaluatedTexts:
    prepared = _read(directory)
    texts = records.decode(prepared.content(TEXTS_FILE), Texts, 10 * records.MOST_MARKS)
    encoded = _encoded(prepared)
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
class _Answer:
    answer_start: int
    text: str


@dataclasses.dataclass(frozen=True)
class _Entry:
    id: str
    question: str
    answers: list[_Answer]


@dataclasses.dataclass(frozen=True)
class _Paragraph:
    context: str
    qas: list[_Entry]


@dataclasses.dataclass(frozen=True)
class _Article:
    title: str
    paragraphs: list[_Paragraph]


@dataclasses.dataclass(frozen=True)
class _File:
    data: list[_Article]


def read_passages(path: pathlib.Path) -> Passages:
    """Questions of a file, plain or packed; articles are sorted by their titles."""
    body = text_files.read_json(path, MOST_BYTES, _MOST_MARKS, _BYTES_A_MARK)
    try:
        articles = records.convert(body, _File, others=True).data
    except records.FieldError as error:
        raise DataError(f"{path}: {error}") from None
    contexts: list[str] = []
    questions: list[Question] = []
    ids: dict[str, str] = {}
    for number, article in enumerate(sorted(articles, key=lambda article: article.title)):
        where = f"{path}: article {_short(article.title)}"
        for place, passage in enumerate(article.paragraphs, 1):
            here = f"{where}, paragraph {place}"
            spans = spans_of(_text(here, passage.context))
            if not spans:
                raise DataError(f"{here}: the context is empty")
            for entry in passage.qas:
                questions.append(
                    _question(entry, passage.context, spans, here, len(contexts), number)
                )
                if entry.id in ids:
                    raise DataError(
                        f"{where}: question {entry.id!r} appears twice; the first is of article "
                        f"{ids[entry.id]!r}"
                    )
                ids[entry.id] = article.title
            contexts.append(passage.context)
    if not questions:
        raise DataError(f"{path}: holds no questions")
    return Passages(len(articles), contexts, questions)


def _question(
    entry: _Entry,
    context: str,
    spans: list[tuple[int, int]],
    where: str,
    passage: int,
    article: int,
) -> Question:
    here = f"{where}, question {_short(entry.id)}"
    if not spans_of(_text(here, entry.id + entry.question)[len(entry.id) :]):
        raise DataError(f"{here}: the question is empty")
    answers = []
    for answer in entry.answers:
        start, wanted = answer.answer_start, answer.text
        there = context[max(0, start) : max(0, start) + len(wanted)]
        if start < 0 or there != wanted:
            raise DataError(
                f"{here}: answer {_short(wanted)} is not at answer_start={start} of its context of "
                f"{len(context)} characters; there is {_short(there)}"
            )
        if covering(spans, start, start + len(wanted)) is None:
            raise DataError(f"{here}: an answer is empty")
        answers.append((start, wanted))
    if not answers:
        raise DataError(f"{here}: has no answer, as in SQuAD 2.0")
    return Question(entry.id, passage, article, entry.question, tuple(answers))


def _text(where: str, text: str) -> str:
    if _HALF_PAIR.search(text):
        raise DataError(f"{where}: a text has half of a surrogate pair")
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def made(train: Passages, evaluated: Passages, out: pathlib.Path) -> Made:
    """Questions of both splits to be written."""
    arrays, types = encode(train, evaluated)
    del arrays["train_offsets"]  # nothing reads them
    texts = Texts(
        contexts=evaluated.contexts,
        ids=[question.id for question in evaluated.questions],
        questions=[question.text for question in evaluated.questions],
        answers=[[text for _, text in question.answers] for question in evaluated.questions],
    )
    files: dict[str, Content] = {f"{name}.npy": array for name, array in arrays.items()}
    files[TYPES_FILE] = "".join(f"{word}\n" for word in types[1:]).encode()
    files[TEXTS_FILE] = json.dumps(records.plain(texts), ensure_ascii=False).encode()
    facts = QuestionFacts(
        train=_counts(train),
        eval=_counts(evaluated),
        num_types=len(types) - 1,
        eval_references=references_digest(evaluated.questions),
        overlap=overlap.shared(_asked(train), _asked(evaluated), "questions"),
    )
    return Made(directory=out, kind=KIND, files=files, facts=facts)


def _asked(passages: Passages) -> Iterator[bytes]:
    for question in passages.questions:
        yield f"{question.text}\n{passages.contexts[question.passage]}".encode()


def _counts(passages: Passages) -> Counts:
    return {
        "articles": passages.num_articles,
        "passages": len(passages.contexts),
        "questions": len(passages.questions),
    }


def references_digest(questions: list[Question]) -> str:
    """Hash of the questions' names and reference answers, in any order; 64 hex digits."""
    lines = [
        json.dumps([q.id, sorted(" ".join(text.split()) for _, text in q.answers)])
        for q in questions
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _prepare(request: Request) -> Made:
    train, given = request.required_source(), request.flags["eval_from"]
    if not given:
        raise FlagError("--eval_from is missing: the file of questions to evaluate")
    out = request.out_for("squad")
    return made(read_passages(train), read_passages(records.path_of(given)), out)


PREPARATION = Preparation(
    name="squad",
    usage=("--from=train-v1.1.json --eval_from=dev-v1.1.json\n[--out=DIR] [--overwrite]",),
    takes="""--from and --eval_from name files in the form of SQuAD v1.1, plain or as .xz or .gz. In
training, an answer that begins or ends inside a token counts as the whole token; scoring uses the
files' answers. Articles are sorted by title.""",
    flags=(Flag("eval_from", "The file of questions to evaluate, such as dev-v1.1.json."),),
    run=_prepare,
)
