"""SQuAD's own JSON files, read, checked and written for `squad.Squad`.

    {"data": [{"title", "paragraphs": [{"context", "qas": [
        {"id", "question", "answers": [{"answer_start", "text"}]}]}]}]}

`answer_start` counts characters of the context from 0.

Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (arXiv
1606.05250); the form is that of `train-v1.1.json`.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.datasets.squad import (
    KIND,
    TEXTS_FILE,
    TYPES_FILE,
    Counts,
    QuestionFacts,
    Texts,
)
from dawnjax.input_pipeline.preparation.request import DONE, Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.preparation.writing import Outcome, refuse_strangers, write_files
from dawnjax.input_pipeline.reading import overlap, text_files
from dawnjax.input_pipeline.reading.dataset import DataError, overlap_line
from dawnjax.input_pipeline.reading.manifest import Manifest
from dawnjax.input_pipeline.reading.questions import Passages, Question, encode
from dawnjax.input_pipeline.reading.tokens import covering, spans_of

MOST_BYTES = 2**30
_MOST_MARKS = 2_000_000
_BYTES_A_MARK = 16
"""SQuAD's own files have 17 and 23 bytes for each comma, colon and bracket; the larger limit holds.
Empty lists have two, and make 30 times their bytes."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")
"""JSON can escape it alone, as `\\ud83d`; it is no character, and UTF-8 cannot hold it."""


def read_passages(path: pathlib.Path) -> Passages:
    """Questions of a file, plain or packed; articles are sorted by their titles."""
    body = text_files.read_json(path, MOST_BYTES, _MOST_MARKS, _BYTES_A_MARK)
    articles = _field(body, "data", list, f"{path}")
    if not articles:
        raise DataError(f"{path}: holds no articles")
    titled = []
    for number, article in enumerate(articles, 1):
        where = f"{path}: article {number}"
        titled.append((_field(article, "title", str, where), article))
    titled.sort(key=lambda pair: pair[0])
    contexts: list[str] = []
    questions: list[Question] = []
    ids: dict[str, str] = {}
    for number, (title, article) in enumerate(titled):
        where = f"{path}: article {title!r}"
        for place, passage in enumerate(_field(article, "paragraphs", list, where), 1):
            here = f"{where}, paragraph {place}"
            context = _field(passage, "context", str, here)
            spans = spans_of(context)
            if not spans:
                raise DataError(f"{here}: the context is empty")
            for entry in _field(passage, "qas", list, here):
                question = _question(entry, context, spans, here, len(contexts), number)
                if question.id in ids:
                    raise DataError(
                        f"{where}: question {question.id!r} is there twice; the first is of "
                        f"article {ids[question.id]!r}"
                    )
                ids[question.id] = title
                questions.append(question)
            contexts.append(context)
    if not questions:
        raise DataError(f"{path}: holds no questions")
    return Passages(len(articles), contexts, questions)


def _question(
    entry: Any, context: str, spans: list[tuple[int, int]], where: str, passage: int, article: int
) -> Question:
    name = _field(entry, "id", str, f"{where}, a question")
    here = f"{where}, question {name!r}"
    text = _field(entry, "question", str, here)
    if not spans_of(text):
        raise DataError(f"{here}: the question is empty")
    answers = []
    for answer in _field(entry, "answers", list, here):
        start = _field(answer, "answer_start", int, f"{here}, an answer")
        wanted = _field(answer, "text", str, f"{here}, an answer")
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
        raise DataError(f"{here}: has no answer; questions without one are those of SQuAD 2.0")
    return Question(name, passage, article, text, tuple(answers))


def _field(owner: Any, name: str, kind: type, where: str) -> Any:
    kinds = {list: "a list", str: "a text", int: "a whole number"}
    if not isinstance(owner, dict):
        raise DataError(f"{where}: is no object with a field {name!r}")
    if name not in owner:
        raise DataError(f"{where}: the field {name!r} is missing")
    value = owner[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{where}: the field {name!r} is {_short(value)}; wanted {kinds[kind]}")
    if isinstance(value, str) and _HALF_PAIR.search(value):
        raise DataError(f"{where}: the field {name!r} holds one half of a surrogate pair")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def prepare(
    train: pathlib.Path, evaluated: pathlib.Path, out: pathlib.Path, *, overwrite: bool = False
) -> tuple[Manifest[QuestionFacts], Outcome]:
    refuse_strangers(out)
    splits = {"train": read_passages(train), "eval": read_passages(evaluated)}
    arrays, types = encode(splits["train"], splits["eval"])
    del arrays["train_offsets"]  # nothing reads them
    asked = splits["eval"].questions
    texts = Texts(
        contexts=splits["eval"].contexts,
        ids=[question.id for question in asked],
        questions=[question.text for question in asked],
        answers=[[text for _, text in question.answers] for question in asked],
    )
    contents: dict[str, np.ndarray | bytes] = {f"{name}.npy": arrays[name] for name in arrays}
    contents[TYPES_FILE] = "".join(f"{word}\n" for word in types[1:]).encode()
    contents[TEXTS_FILE] = json.dumps(records.plain(texts), ensure_ascii=False).encode()
    facts = QuestionFacts(
        train=_counts(splits["train"]),
        eval=_counts(splits["eval"]),
        num_types=len(types) - 1,
        eval_references=references_digest(asked),
        overlap=overlap.shared(_asked(splits["train"]), _asked(splits["eval"]), "questions"),
    )
    return write_files(out, KIND, facts, contents, overwrite=overwrite)


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


def _prepare(request: Request) -> str:
    train, given = request.required_source(), request.flags["eval_from"]
    if not given:
        raise FlagError("--eval_from is missing: the file of questions to evaluate")
    out = request.out_for("squad")
    evaluated = records.path_of(given)
    manifest, outcome = prepare(train, evaluated, out, overwrite=request.overwrite)
    seconds = request.progress.seconds
    facts = manifest.facts
    note = overlap_line(facts.overlap, "\nnote: ")
    return f"{out}: {DONE[outcome]} in {seconds:.1f} s: {facts.summary()}{note}"


PREPARATION = Preparation(
    name="squad",
    usage=("--from=train-v1.1.json --eval_from=dev-v1.1.json\n[--out=DIR] [--overwrite]",),
    takes="""--from and --eval_from name files in the form of SQuAD v1.1, plain or as .xz or .gz. An
answer that begins or ends inside a token stands for the whole token in training; answers are scored
as the files have them. Articles are sorted by their titles.""",
    flags=(Flag("eval_from", "The file of questions to evaluate, such as dev-v1.1.json."),),
    run=_prepare,
)
