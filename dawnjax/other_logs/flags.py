"""Flags that name the columns of other programs' logs, for every command that reads results."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from dawnjax.errors import ConfigError
from dawnjax.other_logs.columns import BY_NAME, Columns

_HELP = {
    "metric": "Column of the quality; for DawnJAX's runs, one of their metrics.",
    "step": "Column of the steps trained.",
    "time": "Column of the clock with its unit (ms, s, min, h, unix, unix_ms): train_time:ms.",
    "tokens": "Column of the tokens trained, or the number of tokens per step.",
    "flops": "Column of the FLOPs spent.",
    "seed": "Column of the seed.",
    "trial": "Column that separates the trials of one file.",
    "files": "Pattern of the files to read in a folder, such as '*.csv'.",
}


def define(flag_values: flags.FlagValues) -> None:
    """Define a flag for each field of `Columns`."""
    text = functools.partial(flags.DEFINE_string, default="", flag_values=flag_values)
    for name, words in _HELP.items():
        text(name, help=f"Other programs' logs: {words[0].lower()}{words[1:]}")
    choice = "Other programs' logs: the direction of better values."
    directions = ["at_least", "at_most"]
    flags.DEFINE_enum("direction", None, directions, choice, flag_values=flag_values)
    number = functools.partial(flags.DEFINE_float, default=None, flag_values=flag_values)
    number("target", help="Other programs' logs: the value that a trial must reach.")
    number("price_per_hour_usd", help="Other programs' logs: the price of the whole system.")


def columns(flag_values: flags.FlagValues) -> Columns:
    """The columns that the flags name.

    Raises:
      ConfigError: A number is not finite, or a price is negative.
    """
    names = [field.name for field in dataclasses.fields(Columns)]
    given = {name: flag_values[name].value for name in names}
    for name in ("target", "price_per_hour_usd"):
        value = given[name]
        if value is not None and not abs(value) < 1e300:
            raise ConfigError(f"--{name}={value} must be a finite number")
    if (given["price_per_hour_usd"] or 0.0) < 0:
        raise ConfigError(f"--price_per_hour_usd={given['price_per_hour_usd']} must be 0 or more")
    return Columns(**{name: value for name, value in given.items() if value is not None})


def refuse_unused(given: Columns, paths: Sequence[Path]) -> None:
    """Refuse flags where no path holds a log that they describe: `--target` would change nothing.

    Raises:
      ConfigError: Names the first of them. `--metric` is also for runs of DawnJAX.
    """
    # Imported here so that --help does without it.
    from dawnjax.other_logs.reading import is_other_log

    names = [field.name for field in dataclasses.fields(Columns) if field.name != "metric"]
    unused = [name for name in names if getattr(given, name) != getattr(BY_NAME, name)]
    # What is said of a path that is not there comes first.
    are_there = bool(paths) and all(path.exists() for path in paths)
    if unused and are_there and not any(map(is_other_log, paths)):
        raise ConfigError(
            f"--{unused[0]} describes logs of other programs, and no path holds one: runs and "
            "entries keep what they were made with"
        )
