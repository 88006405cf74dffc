"""Configs as plain JSON values, and back: frozen dataclasses of numbers, texts and each other."""

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.config.choices import CHOICES, choice_of
from dawnjax.errors import ConfigError
from dawnjax.text import without_secrets


def to_json(value: Any) -> Any:
    """Turns a config into plain JSON values, without secrets; a tagged choice gains its `tag`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = typing.get_type_hints(type(value))
        fields = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            # 15 and 15.0 epochs are one experiment, so they must be one text.
            is_float = hints[field.name] is float and isinstance(item, int)
            fields[field.name] = float(item) if is_float else to_json(item)
        tag = getattr(value, "TAG", None)
        return without_secrets({"tag": tag, **fields} if tag else fields)
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def identity_of(fields: dict[str, Any]) -> str:
    """Hash of plain JSON values; equal for two runs of the same experiment."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def from_json(cls: type, value: Any, classes: Mapping[str, Sequence[type]] | None = None) -> Any:
    """The config that `to_json` was given.

    Args:
      cls: A config class.
      value: What `to_json` gave for an instance of it.
      classes: Classes of an experiment's own file, by field.

    Raises:
      ConfigError: A field is unknown, missing or of another kind; another version wrote it.
    """
    fields = {field.name for field in dataclasses.fields(cls)}
    unknown = [name for name in value if name not in fields and name != "tag"]
    if unknown:
        raise ConfigError(f"{cls.__name__} has no field {unknown[0]!r}; another version wrote it")
    hints = typing.get_type_hints(cls, include_extras=True)
    try:
        return cls(
            **{
                name: _leaf(hints[name], item, (classes or {}).get(name, ()))
                for name, item in value.items()
                if name != "tag"
            }
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"cannot read {cls.__name__}: {error}") from None


def _leaf(hint: Any, value: Any, classes: Sequence[type] = ()) -> Any:
    own: dict[Any, type] = {getattr(cls, "TAG", None): cls for cls in classes}
    choice = choice_of(hint)
    if choice is not None:
        tags, tag = CHOICES[choice.field], value.get("tag")
        _refuse_unknown(tag, [*own, *(other for other in tags if other not in own)])
        return from_json(own[tag] if tag in own else choice.load(tag), value)
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    variants: list[Any] = [arg for arg in typing.get_args(hint) if dataclasses.is_dataclass(arg)]
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), value)
    if typing.get_origin(hint) is tuple:
        return tuple(_leaf(typing.get_args(hint)[0], item) for item in value)
    if len(variants) == 1 and isinstance(value, dict):
        return from_json(variants[0], value)
    if len(variants) > 1:
        by_tag = {**{variant.TAG: variant for variant in variants}, **own}
        _refuse_unknown(value.get("tag"), list(by_tag))
        return from_json(by_tag[value["tag"]], value)
    return value


def _refuse_unknown(tag: Any, known: list[str]) -> None:
    if tag not in known:
        raise ConfigError(
            f"{tag!r} is none of {', '.join(known)}; if it is a class of the experiment's own "
            "file, name that file: --experiment=FILE"
        )
