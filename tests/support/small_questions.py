"""A few questions in SQuAD's own form, for the tests of its data."""

import copy
import json
from pathlib import Path
from typing import Any

CONTEXT = "In 1905 Ada didn't pay $1,000.50 for Bob's house."
OTHER = "The old house burned down."

TRAIN: dict[str, Any] = {
    "version": "1.1",
    "data": [
        {
            "title": "Zoo",
            "paragraphs": [
                {
                    "context": OTHER,
                    "qas": [
                        {
                            "id": "z1",
                            "question": "What burned?",
                            "answers": [{"answer_start": 8, "text": "house"}],
                        }
                    ],
                }
            ],
        },
        {
            "title": "Ada",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "a1",
                            "question": "When?",
                            "answers": [{"answer_start": 3, "text": "1905"}],
                        },
                        {
                            "id": "a2",
                            "question": "How much did Ada not pay?",
                            # It begins after the sign and ends inside the number.
                            "answers": [{"answer_start": 24, "text": "1,000"}],
                        },
                    ],
                }
            ],
        },
    ],
}

EVAL: dict[str, Any] = {
    "version": "1.1",
    "data": [
        {
            "title": "Bridge",
            "paragraphs": [
                {
                    "context": "The bridge was opened in May 1932 by the king.",
                    "qas": [
                        {
                            "id": "b1",
                            "question": "When was the bridge opened?",
                            "answers": [
                                {"answer_start": 25, "text": "May 1932"},
                                {"answer_start": 29, "text": "1932"},
                            ],
                        },
                        {
                            "id": "b2",
                            "question": "Who opened it?",
                            "answers": [{"answer_start": 37, "text": "the king"}],
                        },
                    ],
                }
            ],
        }
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
