"""What a command answers: text for a person or, with `--json`, one object for a program.

A command fills a record, `RESULT` in its module, and returns it in an `Answer`; nothing but this
module prints the object. docs/schemas has the JSON schema of each command's object.
"""

import contextlib
import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ExitStatus

SCHEMA_VERSION = 1
"""Version of every command's object."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command found.

    Attributes:
      result: The command's record, a `RESULT` of its module; None if there is none.
      text: The same for a person, unless the command has already printed it.
      status: Its exit status.
      reasons: Why it is not `done`, a line each.
      next: Commands that make sense now, as a shell takes them.
    """

    result: Any = None
    text: str = ""
    status: ExitStatus = ExitStatus.DONE
    reasons: Sequence[str] = ()
    next: Sequence[str] = ()

    def to_json(self, command: str) -> dict[str, Any]:
        # `plain` alone would leave out defaults of a record that was converted.
        result = None if self.result is None else dataclasses.asdict(self.result)
        return {
            "schema_version": SCHEMA_VERSION,
            "command": command,
            "status": self.status.name.lower(),
            "exit_status": int(self.status),
            "reasons": list(self.reasons),
            "next": list(self.next),
            "result": records.plain(result),
        }


def asked(argv: Sequence[str]) -> tuple[list[str], bool]:
    """Arguments without `--json`, and whether it was among them; what follows `--` stays."""
    end = argv.index("--") if "--" in argv else len(argv)
    values = flags.FlagValues()
    command_line.define_json(values)
    rest = command_line.known(values, argv[:end])
    return [*rest, *argv[end:]], bool(values["json"].value)


@contextlib.contextmanager
def standard_output_for_answers() -> Iterator[None]:
    """Send all else that is printed to standard error, by libraries and child processes too."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def schema(command: str, result: type) -> dict[str, Any]:
    """JSON schema of a command's object, with the meaning of each field."""
    found, definitions = records.schema_of(result)
    for name, kind in _classes(result).items():
        if name in definitions and "properties" in definitions[name]:
            _describe(definitions[name], kind)
    words = [status.name.lower() for status in ExitStatus]
    texts = {"type": "array", "items": {"type": "string"}}
    fields = {
        "schema_version": {"const": SCHEMA_VERSION},
        "command": {"const": command},
        "status": {"enum": words, "description": "The exit status in a word."},
        "exit_status": {"enum": [int(status) for status in ExitStatus]},
        "reasons": {**texts, "description": "Why the status is not `done`, a line each."},
        "next": {**texts, "description": "Commands that make sense now, as a shell takes them."},
        "result": {
            "anyOf": [found, {"type": "null"}],
            "description": "null where the command failed before it had one.",
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dawnjax {command} --json",
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
        "$defs": definitions,
    }


def _describe(definition: dict[str, Any], kind: type) -> None:
    from dawnjax.config.flag_tree import attribute_docs

    summary, *_ = inspect.cleandoc(kind.__doc__ or "").splitlines()
    definition["description"] = _for_json(summary)
    for name, text in attribute_docs(kind).items():
        if name in definition["properties"]:
            definition["properties"][name]["description"] = _for_json(text)
    # All fields of a record are written.
    definition["required"] = list(definition["properties"])
    definition["additionalProperties"] = False


def _for_json(text: str) -> str:
    """Docstring of a record, with `null` for Python's `None`."""
    return re.sub(r"\bNone\b", "null", text)


def _classes(kind: Any) -> dict[str, type]:
    """Dataclasses that a type holds, by name."""
    found: dict[str, type] = {}
    left = [kind]
    while left:
        kind = left.pop()
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            if kind.__name__ not in found:
                found[kind.__name__] = kind
                left += inspect.get_annotations(kind, eval_str=True).values()
        else:
            left += getattr(kind, "__args__", ())
    return found
