"""SQuAD's own JSON files, read, checked and written for `squad.Squad`.

    {"data": [{"title", "paragraphs": [{"context", "qas": [
        {"id", "question", "answers": [{"answer_start", "text"}]}]}]}]}

`answer_start` counts characters of the context from 0.

Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (arXiv
1606.05250); the form is that of `train-v1.1.json`.
"""

import contextlib
import gzip
import hashlib
import json
import lzma
import pathlib
import zlib
from typing import Any

from dawnjax import records
from dawnjax.input_pipeline.datasets.squad import DATASET, SCHEMA_VERSION, TEXTS_FILE, TYPES_FILE
from dawnjax.input_pipeline.preparation.request import DONE, Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.reading import file_set
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError
from dawnjax.input_pipeline.reading.prepared import Outcome
from dawnjax.input_pipeline.reading.questions import Passages, Question, encode
from dawnjax.input_pipeline.reading.tokens import covering, spans_of

MOST_BYTES = 2**30
_MOST_MARKS = 200_000_000
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"


def read_passages(path: pathlib.Path) -> Passages:
    """Reads a file of questions, plain or as .xz or .gz; articles are sorted by their titles.

    Raises:
      DataError: It cannot be read, has another form, or an answer is not where it says; names
        file, article and question.
    """
    body = _load(path)
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
    """A field of a JSON object, of the wanted kind."""
    kinds = {list: "a list", str: "a text", int: "a whole number"}
    if not isinstance(owner, dict):
        raise DataError(f"{where}: is no object with a field {name!r}")
    if name not in owner:
        raise DataError(f"{where}: the field {name!r} is missing")
    value = owner[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{where}: the field {name!r} is {_short(value)}; wanted {kinds[kind]}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _load(path: pathlib.Path) -> Any:
    try:
        with records.open_plain(path) as file:
            start = file.read(len(_XZ))
            file.seek(0)
            with contextlib.ExitStack() as opened:
                if start == _XZ:
                    file = opened.enter_context(lzma.LZMAFile(file))
                elif start.startswith(_GZIP):
                    file = opened.enter_context(gzip.GzipFile(fileobj=file))
                content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DataError(f"{path}: has more than {MOST_BYTES:,} bytes")
        if not content.strip():
            raise DataError(f"{path}: is empty")
        return records.load_json(content, _MOST_MARKS)
    except FileNotFoundError:
        raise MissingDataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        raise DataError(f"{path}: cannot be read (damaged or incomplete)") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: no JSON ({error.msg})") from None
    except records.BoundError as error:
        raise DataError(f"{path}: {error}") from None


def prepare(
    train: pathlib.Path, evaluated: pathlib.Path, out: pathlib.Path, *, overwrite: bool = False
) -> tuple[dict[str, Any], Outcome]:
    """Writes the prepared form of two files, or finds that it is there already.

    Returns:
      The description, and "unchanged" where the directory held the same content.

    Raises:
      DataError: As `read_passages`, or a directory that holds something else.
    """
    file_set.check_room(out)
    splits = {"train": read_passages(train), "eval": read_passages(evaluated)}
    arrays, types = encode(splits["train"], splits["eval"])
    del arrays["train_offsets"]  # nothing reads them
    asked = splits["eval"].questions
    texts = {
        "contexts": splits["eval"].contexts,
        "ids": [question.id for question in asked],
        "questions": [question.text for question in asked],
        "answers": [[text for _, text in question.answers] for question in asked],
    }
    files = {f"{name}.npy": file_set.array_bytes(array) for name, array in arrays.items()}
    files[TYPES_FILE] = "".join(f"{word}\n" for word in types[1:]).encode()
    files[TEXTS_FILE] = json.dumps(texts, ensure_ascii=False).encode()
    facts: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for name, passages in splits.items():
        facts[f"num_{name}_articles"] = passages.num_articles
        facts[f"num_{name}_passages"] = len(passages.contexts)
        facts[f"num_{name}_questions"] = len(passages.questions)
    facts["num_types"] = len(types) - 1
    facts["eval_references"] = references_digest(asked)
    return file_set.write(out, DATASET, facts, files, overwrite=overwrite)


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
    out = request.out_for(DATASET)
    evaluated = pathlib.Path(given).expanduser()
    body, outcome = prepare(train, evaluated, out, overwrite=request.overwrite)
    counts = [
        f"{body[f'num_{split}_questions']:,} questions about {body[f'num_{split}_passages']:,} "
        f"passages of {body[f'num_{split}_articles']:,} articles {purpose}"
        for split, purpose in (("train", "to train on"), ("eval", "to evaluate"))
    ]
    return (
        f"{out}: {DONE[outcome]} in {request.progress.seconds:.1f} s: {', '.join(counts)}; "
        f"{body['num_types']:,} distinct tokens"
    )


PREPARATION = Preparation(
    name=DATASET,
    usage=("--from=train-v1.1.json --eval_from=dev-v1.1.json\n[--out=DIR] [--overwrite]",),
    takes="""--from and --eval_from name files in the form of SQuAD v1.1, plain or as .xz or .gz. An
answer that begins or ends inside a token stands for the whole token in training; answers are scored
as the files have them. Articles are sorted by their titles.""",
    flags=(Flag("eval_from", "The file of questions to evaluate, such as dev-v1.1.json."),),
    run=_prepare,
)
