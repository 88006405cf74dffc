"""A few questions in SQuAD's own form, for the tests of its data."""

import copy
import json
from pathlib import Path
from typing import Any

CONTEXT = "In 1905 Ada didn't pay $1,000.50 for Bob's house."
OTHER = "The old house burned down."


def asked(number: str, question: str, *answers: tuple[int, str]) -> dict[str, Any]:
    """A question with its answers, each by its place and text."""
    listed = [{"answer_start": start, "text": text} for start, text in answers]
    return {"id": number, "question": question, "answers": listed}


def article(title: str, context: str, *questions: dict[str, Any]) -> dict[str, Any]:
    """An article of one paragraph."""
    return {"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}


# The last answer begins after the sign and ends inside the number.
TRAIN: dict[str, Any] = {
    "version": "1.1",
    "data": [
        article("Zoo", OTHER, asked("z1", "What burned?", (8, "house"))),
        article(
            "Ada",
            CONTEXT,
            asked("a1", "When?", (3, "1905")),
            asked("a2", "How much did Ada not pay?", (24, "1,000")),
        ),
    ],
}

EVAL: dict[str, Any] = {
    "version": "1.1",
    "data": [
        article(
            "Bridge",
            "The bridge was opened in May 1932 by the king.",
            asked("b1", "When was the bridge opened?", (25, "May 1932"), (29, "1932")),
            asked("b2", "Who opened it?", (37, "the king")),
        )
    ],
}


def changed(body: dict[str, Any], *path: Any, **fields: Any) -> dict[str, Any]:
    """A copy in which the object at a path has other fields; a value of None takes one away."""
    copied = copy.deepcopy(body)
    place: Any = copied
    for step in path:
        place = place[step]
    for name, value in fields.items():
        if value is None:
            del place[name]
        else:
            place[name] = value
    return copied


def write(folder: Path, train: Any = TRAIN, evaluated: Any = EVAL) -> tuple[Path, Path]:
    """Writes both files; returns their paths."""
    paths = folder / "train.json", folder / "dev.json"
    for path, body in zip(paths, (train, evaluated), strict=True):
        path.write_text(json.dumps(body), encoding="utf8")
    return paths
