"""Configs as plain JSON values, and back."""

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax import records
from dawnjax.config.choices import CHOICES, choice_of
from dawnjax.errors import ConfigError
from dawnjax.text import without_secrets


def to_json(value: Any) -> Any:
    """Plain JSON values of a config, without secrets; a tagged choice gains its `tag`."""
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
    """Hash of plain JSON values, 16 hex digits; equal for two runs of the same experiment."""
    # Sorted and without blanks: the order of fields in a class must not change an identity.
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def from_json(cls: type, value: Any, classes: Mapping[str, Sequence[type]] | None = None) -> Any:
    """The config that `to_json` was given; ConfigError if another version wrote it."""
    return _config(cls, value, classes or {}, "")


def _config(cls: type, value: Any, classes: Mapping[str, Sequence[type]], at: str) -> Any:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {field.name for field in dataclasses.fields(cls)}
    try:
        given = dict(records.convert(value, dict[str, Any], at=at))
        given.pop("tag", None)
        unknown = next((name for name in given if name not in fields), None)
        if unknown is not None:
            raise ConfigError(f"{cls.__name__} has no field {unknown!r}; another version wrote it")
        for name, item in given.items():
            where = f"{at}.{name}" if at else name
            given[name] = _leaf(hints[name], item, classes.get(name, ()), where)
        return cls(**given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"cannot read {cls.__name__}: {error}") from None


def _leaf(hint: Any, value: Any, classes: Sequence[type], at: str) -> Any:
    choice = choice_of(hint)
    if typing.get_origin(hint) is typing.Annotated and choice is None:
        hint = typing.get_args(hint)[0]
    own: dict[Any, type] = {getattr(cls, "TAG", None): cls for cls in classes}
    variants: list[Any] = [arg for arg in typing.get_args(hint) if dataclasses.is_dataclass(arg)]
    if choice is not None or len(variants) > 1:
        tag = records.convert(value, dict[str, Any], at=at).get("tag")
        if choice is not None:
            known = [*own, *(other for other in CHOICES[choice.field] if other not in own)]
        else:
            own = {**{variant.TAG: variant for variant in variants}, **own}
            known = list(own)
        if tag not in known:
            raise ConfigError(
                f"{tag!r} is none of {', '.join(known)}; if the experiment's own file defines it, "
                "name that file: --experiment=FILE"
            )
        chosen = own[tag] if tag in own or choice is None else choice.load(str(tag))
        return _config(chosen, value, {}, at)
    if dataclasses.is_dataclass(hint):
        return _config(typing.cast(type, hint), value, {}, at)
    inner = typing.get_args(hint)[:1] if typing.get_origin(hint) is tuple else ()
    if inner and dataclasses.is_dataclass(inner[0]):
        items = records.convert(value, list[Any], at=at)
        return tuple(_leaf(inner[0], item, (), f"{at}[{n}]") for n, item in enumerate(items))
    if variants and value is not None:
        return _config(variants[0], value, {}, at)
    return records.convert(value, hint, at=at)
