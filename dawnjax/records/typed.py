"""Typed decoding: plain JSON values as dataclasses, and one line for a wrong field."""

import os
from typing import Any, TypeVar

import msgspec

from dawnjax.records.reading import MOST_BYTES, MOST_MARKS, load_json, read_plain

Kind = TypeVar("Kind")


class FieldError(ValueError):
    """A missing, unknown or mistyped field; one line names its path."""


FORGED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""Errors over a record that can be read and whose fields no program of ours writes."""


def decode(
    data: bytes | str, kind: type[Kind], most_marks: int = MOST_MARKS, *, others: bool = False
) -> Kind:
    """Decode a JSON text into a dataclass, a named tuple or a container of them.

    Raises `BoundError` and `ValueError` as `load_json` does, `FieldError` as `convert` does.
    """
    return convert(load_json(data, most_marks), kind, others=others)


def read_json(path: str | os.PathLike[str], kind: type[Kind], most_bytes: int = MOST_BYTES) -> Kind:
    """Read and decode a JSON file; `OSError` and the errors of `read_plain` and `decode`."""
    return decode(read_plain(path, most_bytes), kind)


def convert(value: Any, kind: type[Kind], *, at: str = "", others: bool = False) -> Kind:
    """Make a value of the given type from plain JSON values, or raise `FieldError`.

    Types are exact: `1` is not text, `1.0` is not a whole number, `true` is not a number. `at` is
    the value's path in its file, for the message. With `others`, unknown fields are dropped.
    """
    try:
        made = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise FieldError(in_words(error, at)) from None
    except UnicodeEncodeError:  # a name or a choice with half of a surrogate pair
        raise FieldError(f"{at or 'a field'} has a text that is no UTF-8") from None
    # msgspec drops what a dataclass does not know, such as the misspelt name of an optional field.
    unknown = "" if others else _unknown_field(value, msgspec.to_builtins(made))
    if unknown:
        # A stranger's name may move a terminal's cursor, or end the line.
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in unknown[:200])
        raise FieldError(f"{shown} is not a field of it")
    return made


def in_words(error: Exception, at: str = "") -> str:
    """Reason of an error of msgspec in one line, the field's path first."""
    reason, _, within = str(error).replace("`", "").partition(" - at $")
    path = (at + within).removeprefix(".")
    return f"{path}: {reason}" if path else reason


def plain(value: Any) -> Any:
    """Dicts, lists, texts and numbers of a dataclass, or of a container of them."""
    return msgspec.to_builtins(value)


def schema_of(kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON schema of a dataclass, and the definitions that it refers to, without defaults.

    What a field of another type is written as is a text.
    """
    (found,), definitions = msgspec.json.schema_components(
        (kind,), schema_hook=lambda _: {"type": "string"}
    )
    return found, {name: _without_defaults(one) for name, one in definitions.items()}


def _without_defaults(schema: Any) -> Any:
    """A written record has every field; and versions of msgspec name different defaults."""
    if isinstance(schema, list):
        return [_without_defaults(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {field: _without_defaults(one) for field, one in part.items()}
        if name == "properties"
        else _without_defaults(part)
        for name, part in schema.items()
        if name != "default"
    }


def _unknown_field(given: Any, known: Any, path: str = "") -> str:
    if isinstance(given, dict) and isinstance(known, dict):
        for name in given:
            where = f"{path}.{name}" if path else str(name)
            if name not in known:
                return where
            if found := _unknown_field(given[name], known[name], where):
                return found
    elif isinstance(given, list) and isinstance(known, list | tuple):
        for index, (left, right) in enumerate(zip(given, known, strict=False)):
            if isinstance(left, dict | list) and (
                found := _unknown_field(left, right, f"{path}[{index}]")
            ):
                return found
    return ""
