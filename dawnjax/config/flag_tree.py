"""A config whose leaf fields are absl flags of their type.

`--optimizer.base_learning_rate=0.2` sets that field; `--optimizer=muon` chooses another variant,
whose own fields become the flags.
"""

import dataclasses
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable
from typing import Any

from absl import flags

from dawnjax.config.choices import CHOICES, choice_of
from dawnjax.config.command_line import value_in
from dawnjax.config.experiment import Experiment
from dawnjax.errors import ConfigError

FIXED_FIELDS = ("name", "observations", "target_note", "mlperf_benchmark", "initial_state")
"""Fields of an experiment without a flag: claims about a recipe and target, void for any other."""

LEAF_TYPES = (
    "a field is a bool, int, float, str, Literal, a tuple of one of these, such as "
    "tuple[int, ...], or a dataclass"
)


class FlagTree:
    """A config whose leaves become flags, and which is made again from their values."""

    def __init__(
        self,
        cls: type,
        default: Any,
        argv: list[str],
        prefix: str = "",
        only: tuple[str, ...] | None = None,
    ):
        """Read the class's fields; those in `only` become flags, or all if None.

        `default` is None for a chosen variant that the experiment has not: fields without a default
        in the class must be given. `argv` chooses variants.
        """
        self._cls, self._prefix = cls, prefix
        self._leaves: dict[str, tuple[str, Any, Any, str]] = {}
        self._children: dict[str, Any] = {}
        self._tags: dict[str, tuple[str, list[str], str]] = {}
        self._fixed: dict[str, Any] = {}
        helps = attribute_docs(cls)
        hints = typing.get_type_hints(cls)
        marked = typing.get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            name, hint = field.name, hints[field.name]
            if (cls is Experiment and name in FIXED_FIELDS) or (
                only is not None and name not in only
            ):
                self._fixed[name] = getattr(default, name)
                continue
            value: Any = field.default if default is None else getattr(default, name)
            flag = prefix + name
            variants, choice = variants_of(hint), choice_of(marked[name])
            if choice is not None or len(variants) > 1:
                loaders: dict[str, Callable[[], type]] = {
                    variant.TAG: functools.partial(typing.cast, type, variant)
                    for variant in variants
                }
                if choice is not None:
                    loaders = {
                        tag: functools.partial(choice.load, tag) for tag in CHOICES[choice.field]
                    }
                chosen = self._choose(flag, name, loaders, value, argv)
                kept = value if type(value) is chosen else None
                self._children[name] = FlagTree(chosen, kept, argv, flag + ".")
            elif variants:
                if value is not None and type(value) is not variants[0]:
                    raise ConfigError(
                        f"{flag} must be a {variants[0].__name__}, not a {type(value).__name__}"
                    )
                self._children[name] = FlagTree(variants[0], value, argv, flag + ".")
            elif typing.get_origin(hint) is tuple and dataclasses.is_dataclass(_item(hint)):
                self._children[name] = [
                    FlagTree(_item(hint), item, argv, f"{flag}.{index}.")
                    for index, item in enumerate(value)
                ]
            else:
                self._leaves[name] = (flag, hint, value, helps.get(name, ""))

    def _choose(
        self,
        flag: str,
        name: str,
        loaders: dict[str, Callable[[], type]],
        value: Any,
        argv: list[str],
    ) -> type:
        current = str(getattr(value, "TAG", None))
        if value is not None and value is not dataclasses.MISSING:
            if current in loaders and loaders[current]() is not type(value):
                raise ConfigError(
                    f"{flag}: TAG = {current!r} of {type(value).__name__} is taken; choose another"
                )
            loaders = {**loaders, current: lambda: type(value)}
        # Read before absl parses: the variant decides which flags there are.
        tag = value_in(argv, flag) or current
        if tag not in loaders:
            raise ConfigError(f"--{flag}={tag} is unknown; choose one of {', '.join(loaders)}")
        self._tags[name] = (flag, list(loaders), current)
        return loaders[tag]()

    def define(self, flag_values: flags.FlagValues) -> None:
        for flag, tags, current in self._tags.values():
            flags.DEFINE_enum(
                flag, current, tags, "The variant; its fields follow.", flag_values=flag_values
            )
        for flag, hint, default, doc in self._leaves.values():
            define_leaf(flag, hint, default, doc, flag_values)
        for child in self._all_children():
            child.define(flag_values)

    def flag_names(self) -> list[str]:
        names = [flag for flag, *_ in self._tags.values()]
        names += [flag for flag, *_ in self._leaves.values()]
        return names + [name for child in self._all_children() for name in child.flag_names()]

    def value(self, flag_values: flags.FlagValues) -> Any:
        fields = dict(self._fixed)
        for name, (flag, hint, default, _) in self._leaves.items():
            value: Any = flag_values[flag].value
            if value is None and default is dataclasses.MISSING:
                raise ConfigError(f"--{flag} is missing: {self._cls.TAG} has no default")
            refuse_unusable_number(flag, value)
            is_tuple = typing.get_origin(hint) is tuple
            fields[name] = tuple(typing.cast(Any, value)) if is_tuple else value
        for name, child in self._children.items():
            is_list = isinstance(child, list)
            fields[name] = (
                tuple(item.value(flag_values) for item in child)
                if is_list
                else child.value(flag_values)
            )
        try:
            return self._cls(**fields)
        except (ValueError, TypeError) as error:  # a config that checks its own fields
            raise ConfigError(f"{self._prefix}{error}") from None

    def _all_children(self) -> list["FlagTree"]:
        children = []
        for child in self._children.values():
            children += child if isinstance(child, list) else [child]
        return children


class _TupleParser(flags.ArgumentParser):
    def __init__(self, item: type):
        self._item = item
        self.syntactic_help = f"{item.__name__}s separated by commas"

    def parse(self, argument: Any) -> tuple:
        if not isinstance(argument, str):
            return tuple(argument)
        try:
            return tuple(self._item(part) for part in argument.split(",") if part.strip())
        except ValueError:
            raise ValueError(f"expected {self.syntactic_help}") from None

    def flag_type(self) -> str:
        return f"{self._item.__name__},..."


def define_leaf(flag: str, hint: Any, default: Any, doc: str, values: flags.FlagValues) -> None:
    default = None if default is dataclasses.MISSING else default
    optional = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType) and len(optional) == 1:
        hint = optional[0]
    if typing.get_origin(hint) is typing.Literal:
        flags.DEFINE_enum(flag, default, list(typing.get_args(hint)), doc, flag_values=values)
    elif typing.get_origin(hint) is tuple:
        parser = _TupleParser(_item(hint))
        flags.DEFINE(parser, flag, default, doc, values, flags.ListSerializer(","))
    else:
        known = {
            bool: flags.DEFINE_boolean,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            str: flags.DEFINE_string,
        }
        define = known.get(hint) if isinstance(hint, type) else None
        if define is None:
            shown = getattr(hint, "__name__", hint)
            raise ConfigError(f"{flag} has the type {shown}; {LEAF_TYPES}")
        define(flag, default, doc, flag_values=values)


def refuse_unusable_number(flag: str, value: Any) -> None:
    for number in value if isinstance(value, tuple | list) else [value]:
        # JSON has no NaN or infinity, so a log could not hold it.
        if isinstance(number, float) and not math.isfinite(number):
            raise ConfigError(f"--{flag}={number} must be a finite number")
        if isinstance(number, int) and abs(number) >= 2**63:
            raise ConfigError(f"--{flag} must lie below 2**63")


def variants_of(hint: Any) -> list[type]:
    """Dataclasses that a field may hold: several for a choice, none for a leaf."""
    if dataclasses.is_dataclass(hint):
        return [typing.cast(type, hint)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arguments = typing.get_args(hint)
        return [typing.cast(type, arg) for arg in arguments if dataclasses.is_dataclass(arg)]
    return []


def _item(hint: Any) -> Any:
    return typing.get_args(hint)[0]


def attribute_docs(cls: type) -> dict[str, str]:
    """Each field's text, from the `Attributes:` sections of a class and of those it extends."""
    docs: dict[str, str] = {}
    # Base classes first: a class that describes a field anew wins.
    for extended in cls.__bases__:
        docs |= attribute_docs(extended)
    lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
    name, inside = "", False
    for line in lines:
        if line and not line.startswith(" "):
            inside = line == "Attributes:"
        elif inside and (match := re.match(r"  (\w+): (.*)", line)):
            name = match[1]
            docs[name] = match[2]
        elif inside and name and line.strip():
            docs[name] += " " + line.strip()
    return docs
