"""Columns of a log: named by the user or recognized by name, and how each was recognized."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dawnjax.config.command_line import closest
from dawnjax.errors import ConfigError
from dawnjax.other_logs.rows import RUN
from dawnjax.other_logs.text_lines import Seconds
from dawnjax.page.words import shortened

UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
"""Units of a clock, in seconds."""

_UNIX = {"unix": 1.0, "unix_ms": 1e-3}
_YEARS = (1e9, 2.1e9)
"""Unix times of 2001 and 2036."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The user's flags for columns; an empty field is recognized by the columns' names.

    Attributes:
      metric: Column of the quality.
      direction: `at_least` or `at_most`: on which side better values lie.
      target: Value that a trial must reach; None where only qualities at a budget are compared.
      step: Column of the steps trained.
      time: Column of the clock, with its unit as `NAME:ms`.
      tokens: Column of the tokens trained, or the number of tokens per step.
      flops: Column of the FLOPs spent.
      seed: Column of the seed.
      trial: Column that separates the trials of one file.
      files: Pattern of the names of the files to read in a folder, such as `*.csv`.
      price_per_hour_usd: Price of the whole system.
    """

    metric: str = ""
    direction: str = ""
    target: float | None = None
    step: str = ""
    time: str = ""
    tokens: str = ""
    flops: str = ""
    seed: str = ""
    trial: str = ""
    files: str = ""
    price_per_hour_usd: float | None = None


BY_NAME = Columns()
"""Every column is recognized by its name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """Columns of a path's logs; an empty name is a quantity that the logs do not tell.

    Attributes:
      seconds: Seconds of one unit of the clock's column.
      is_unix: Whether the clock's column holds moments; a trial's clock then begins at its first.
      token_count: Tokens of one unit of the tokens' column, or of a step without such a column.
      said: How each was recognized, a sentence each.
    """

    metric: str
    direction: str
    step: str = ""
    time: str = ""
    seconds: float = 1.0
    is_unix: bool = False
    epoch: str = ""
    tokens: str = ""
    token_count: float | None = None
    flops: str = ""
    seed: str = ""
    trial: str = ""
    said: tuple[str, ...] = ()


_VALIDATION = {"val", "valid", "validation", "eval", "evaluation", "test", "dev"}
_LESS = {"loss", "perplexity", "ppl", "bpb", "bpc", "bits", "nll", "entropy", "error", "err"}
_LESS |= {"wer", "cer", "rmse", "mse", "mae", "fid"}
_MORE = {"acc", "top1", "top5", "auc", "auroc", "f1", "map", "iou", "miou", "dice", "elo"}
_MORE |= {"precision", "recall", "reward"}
_MORE_BEGIN = re.compile(r"accurac|rouge|bleu")

_STEPS = ("step", "global_step", "train_step", "iteration", "iter", "steps", "num_steps", "_step")
_EPOCHS = ("epoch", "epochs")
_SECONDS = (
    *("seconds", "train_seconds", "training_seconds", "elapsed_seconds", "wall_seconds"),
    *("time_seconds", "total_seconds", "seconds_since_run_start", "elapsed_s", "time_s"),
    *("train_time_s", "wall_time_s", "total_training_time", "_runtime"),
)
"""Clocks in seconds. `total_training_time` is nanochat's; `_runtime` is W&B's since the start."""

_MILLISECONDS = ("train_time_ms", "elapsed_ms", "time_ms", "wall_time_ms")
_CLOCKS = ("train_time", "training_time", "total_time", "elapsed", "elapsed_time", "time")
_MOMENTS = ("wall_time", "_timestamp", "timestamp")
_TOKENS = ("tokens", "tokens_seen", "num_tokens", "total_tokens", "consumed_tokens", "train_tokens")
_MILLIONS = ("total_tokens_m",)
_FLOPS = ("flops", "total_flops", "total_training_flops", "train_flops")
_TRIALS = (RUN, "run_id", "trial", "trial_id", "run_name")


def tell(names: Mapping[str, Any], given: Columns) -> Told:
    """Tell a log's columns.

    Args:
      names: Each column with one of its values.

    Raises:
      ConfigError: A column that the user names is not there, the metric or its direction cannot be
        told, or the clock's unit.
    """
    said: list[str] = []
    for field in ("metric", "step", "flops", "seed", "trial"):
        _require(names, getattr(given, field), field)
    metric = given.metric or _metric(names, said)
    direction = given.direction or _direction(metric, said)
    if _better(metric) not in ("", direction):
        said.append(
            f"{direction} is better, by --direction, although the name {metric} suggests otherwise"
        )
    step = given.step or _first(names, _STEPS)
    clock = _clock(names, given.time, said)
    tokens, count = _tokens(names, given.tokens)
    if not step and not clock.get("time"):
        said.append("no step and no time (--step, --time), so only --at=end can be compared")
    seed, trial = given.seed or _first(names, ("seed",)), given.trial or _first(names, _TRIALS)
    flops = given.flops or _first(names, _FLOPS)
    told = {"step": step, "tokens": tokens, "flops": flops, "seed": seed, "trial": trial}
    others = [f"{what} {name}" for what, name in told.items() if name]
    if count is not None and not tokens:
        others.append(f"{count:,.0f} tokens a step (--tokens)")
    said.append(", ".join(others))
    return Told(
        metric=metric,
        direction=direction,
        epoch=_first(names, _EPOCHS),
        token_count=count,
        said=tuple(filter(None, said)),
        **told,
        **clock,
    )


def _require(names: Mapping[str, Any], name: str, flag: str) -> None:
    if name and name not in names:
        near = closest(name, list(names))
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"--{flag}={name} is not one of the columns {_listed(names)}{hint}")


def _listed(names: Iterable[str]) -> str:
    shown = [shortened(name, 80) for name in sorted(names)]
    count = next((n for n in range(12, 1, -1) if sum(map(len, shown[:n])) < 300), 1)
    more = f" and {len(shown) - count} more" if len(shown) > count else ""
    return (", ".join(shown[:count]) or "none") + more


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower()))


def _better(name: str) -> str:
    """Direction of better values by a metric's name; empty where it does not tell."""
    parts = _words(name)
    if parts & _LESS:
        return "at_most"
    is_more = parts & _MORE or any(map(_MORE_BEGIN.match, parts))
    return "at_least" if is_more else ""


def _metric(names: Mapping[str, Any], said: list[str]) -> str:
    found = [name for name in names if _words(name) & _VALIDATION and _better(name)]
    if len(found) == 1:
        said.append(f"metric {found[0]}, the only validation metric")
        return found[0]
    if found:
        raise ConfigError(f"several metrics; choose with --metric: {_listed(found)}")
    raise ConfigError(
        f"no column is named like a validation metric: {_listed(names)}; give --metric=COLUMN"
    )


def _direction(metric: str, said: list[str]) -> str:
    direction = _better(metric)
    if not direction:
        raise ConfigError(
            f"is a higher or a lower {metric} better? give --direction=at_least or at_most"
        )
    said.append(f"{'lower' if direction == 'at_most' else 'higher'} is better, by its name")
    return direction


def _first(names: Mapping[str, Any], known: Iterable[str]) -> str:
    """First of the known names that a column has, by its whole name or its last part."""
    whole = {name.lower(): name for name in reversed(list(names))}
    ends = {name.lower().rpartition("/")[2]: name for name in reversed(list(names))}
    return next((of[name] for name in known for of in (whole, ends) if name in of), "")


def _clock(names: Mapping[str, Any], given: str, said: list[str]) -> dict[str, Any]:
    name, _, unit = given.partition(":")
    if name not in names and given in names:
        name, unit = given, ""
    _require(names, name, "time")
    if unit and unit not in UNITS and unit not in _UNIX:
        raise ConfigError(f"--time={given}: the unit must be one of {', '.join([*UNITS, *_UNIX])}")
    if unit:
        said.append(f"time {name} in {unit}")
        return _of_clock(name, UNITS.get(unit, _UNIX.get(unit, 1.0)), unit in _UNIX)
    named = [name] if name else [_first(names, known) for known in _KNOWN_CLOCKS]
    for column in filter(None, named):
        if column.lower().rpartition("/")[2] in _SECONDS:
            said.append(f"time {column} in seconds, by its name")
            return _of_clock(column, 1.0)
        if column.lower().rpartition("/")[2] in _MILLISECONDS:
            said.append(f"time {column} in milliseconds, by its name")
            return _of_clock(column, 1e-3)
        value = names[column]
        if isinstance(value, Seconds):
            said.append(f"time {column}, in the log's unit")
            return _of_clock(column, 1.0)
        for scale in (1.0, 1e-3, 1e-6, 1e-9):
            if _YEARS[0] <= _number(value) * scale <= _YEARS[1]:
                said.append(f"time {column}, in seconds from the log's first date")
                return _of_clock(column, scale, is_unix=True)
    if column := next(filter(None, named), ""):
        units = " or ".join(f"--time={column}:{unit}" for unit in UNITS)
        raise ConfigError(f"the unit of the clock {column} is not known; give {units}")
    said.append("no clock")
    return {}


_KNOWN_CLOCKS = (_SECONDS, _MILLISECONDS, _CLOCKS, _MOMENTS)


def _of_clock(name: str, seconds: float, is_unix: bool = False) -> dict[str, Any]:
    return {"time": name, "seconds": seconds, "is_unix": is_unix}


def _tokens(names: Mapping[str, Any], given: str) -> tuple[str, float | None]:
    """Column of the tokens and what one of its units counts; or no column, and tokens a step."""
    if given and given not in names and _number(given) > 0:
        return "", _number(given)
    _require(names, given, "tokens")
    column = given or _first(names, _TOKENS)
    if column:
        return column, 1.0
    millions = _first(names, _MILLIONS)
    return (millions, 1e6) if millions else ("", None)


def _number(value: Any) -> float:
    """A cell's number; NaN if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
