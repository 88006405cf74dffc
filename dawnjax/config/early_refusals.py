"""Wrong flags that are refused before an experiment is loaded, and JAX with it."""

import copy
import dataclasses
import typing
from collections.abc import Sequence
from typing import Any

from absl import flags

from dawnjax.config import command_line
from dawnjax.config.choices import choice_of
from dawnjax.config.experiment import Experiment
from dawnjax.config.flag_tree import (
    FIXED_FIELDS,
    define_leaf,
    refuse_unusable_number,
    variants_of,
)
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.limits import check_value


def refuse_early(argv: Sequence[str], defined: flags.FlagValues) -> None:
    """Refuses flags that no built-in experiment takes, before one is loaded, and JAX with it.

    The fields of models, tasks and datasets are not looked at: their classes need JAX.

    Args:
      argv: The command line.
      defined: Flags that are defined besides the experiment's; their values are not set.

    Raises:
      ConfigError: The same as when the whole command line is read.
    """
    names = [*defined, *_plain_names(Experiment)]
    fields = {field.name for field in dataclasses.fields(Experiment)}
    for argument in argv:
        if argument in ("--", "--help", "-h"):
            return
        name, separator, _ = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or not separator:
            continue
        hints = _hints_of(name, [Experiment]) or _hints_of(name, [RunOptions])
        errors = [_error_of(name, argument, hint) for hint in hints]
        if errors and all(errors):
            raise typing.cast(ConfigError, errors[0])
        if name in defined:
            command_line.parse("", copy.deepcopy(defined), [argument], "", "")
            continue
        near = command_line.closest(name, names, cutoff=0.85)
        # A match of the last part alone may be worse than that of a flag not yet known.
        is_whole = near is not None and near.count(".") == name.count(".")
        if name.partition(".")[0] not in fields and is_whole:
            raise ConfigError(f"unknown flag --{name}; did you mean --{near}?")


def _plain_names(cls: type, prefix: str = "") -> list[str]:
    """The flags of a config that are the same in every experiment."""
    names = []
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        variants = variants_of(hint)
        if len(variants) == 1:
            names += _plain_names(variants[0], f"{prefix}{name}.")
        elif name not in (*FIXED_FIELDS, "targets"):
            names.append(prefix + name)
    return names


def _hints_of(name: str, classes: Sequence[type]) -> list[Any]:
    """The types, with their limits, of a flag's field in each class; none if one lacks it."""
    first, _, rest = name.partition(".")
    known = [typing.get_type_hints(cls, include_extras=True) for cls in classes]
    if not all(first in fields for fields in known):
        return []
    hints = [fields[first] for fields in known]
    if rest:
        return _hints_of(rest, [variant for hint in hints for variant in variants_of(hint)])
    return [hint for hint in hints if not variants_of(hint) and choice_of(hint) is None]


def _error_of(flag: str, argument: str, hint: Any) -> ConfigError | None:
    """The fault of a flag for a field of a type; None if it has none."""
    values = flags.FlagValues()
    plain = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    try:
        define_leaf(flag, plain, dataclasses.MISSING, "", values)
        command_line.parse("train", values, [argument], "", "")
        value: Any = values[flag].value
        refuse_unusable_number(flag, value)
        check_value(flag, tuple(value) if isinstance(value, list) else value, hint)
    except ConfigError as error:
        return error
    return None
