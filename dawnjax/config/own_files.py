"""Experiments from a user's own file: its classes, and errors that say where in it they arose."""

import contextlib
import dataclasses
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dawnjax.errors import GUIDE, ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import DataError

CHOSEN = ("task", "model", "data", "optimizer", "schedule")
"""Fields of an experiment whose classes a file may define."""

_OWN_FILES: set[str] = set()


def module_of_file(path: Path) -> types.ModuleType:
    """Execute a user's file; ConfigError with the line at which that fails."""
    if not path.is_file():
        raise ConfigError(f"no experiment file {path}")
    spec = importlib.util.spec_from_file_location(f"_experiment_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file; an experiment file ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look annotations up there
    _OWN_FILES.add(str(path))
    try:
        spec.loader.exec_module(module)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # whatever the user's file does wrong, say where
        place = f"{path}:{error.lineno}" if isinstance(error, SyntaxError) else _place(error)
        raise ConfigError(f"{place or path}: {type(error).__name__}: {_line(error)}") from None
    return module


@contextlib.contextmanager
def own_code(what: str) -> Iterator[None]:
    """Run code that may call a class of a user's file; its errors become one ConfigError line."""
    try:
        yield
    except (ConfigError, RunError, DataError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # SystemExit too: `sys.exit(0)` is no end of a run
        if not _OWN_FILES:
            raise  # a fault of this package
        place = _place(error)
        place = f"{place}: " if place else ""
        raise ConfigError(f"{place}{what}: {type(error).__name__}: {_line(error)}") from None


def check_classes(experiment: Any) -> None:
    """Refuse an experiment of a file whose classes lack what a run calls."""
    needed = {
        "model": ("build",),
        "data": ("spec", "load"),
        "optimizer": ("base_learning_rate",),
        "schedule": ("warmup_epochs",),
    }
    for field in CHOSEN:
        config = getattr(experiment, field)
        cls = type(config)
        if cls.__module__.startswith("dawnjax."):
            continue
        if not isinstance(getattr(cls, "TAG", None), str) or not dataclasses.is_dataclass(cls):
            raise ConfigError(
                f"{field} is a {cls.__name__}, a class of the experiment's own: make it a "
                f'dataclass with a TAG = "..." of its own; {GUIDE}'
            )
        if "tag" in (item.name for item in dataclasses.fields(cls)):
            raise ConfigError(f"{field}={cls.TAG}: a field cannot be called tag; rename it")  # pyright: ignore[reportAttributeAccessIssue]
        builds = ("build",) if field in ("optimizer", "schedule") else ()
        missing = [name for name in (*needed.get(field, ()), *builds) if not hasattr(config, name)]
        if missing:
            raise ConfigError(
                f"{field}={cls.TAG}: {cls.__name__} lacks {', '.join(missing)}; {GUIDE}"  # pyright: ignore[reportAttributeAccessIssue]
            )


def classes_of(*experiments: Any) -> dict[str, list[type]]:
    return {field: [type(getattr(e, field)) for e in experiments] for field in CHOSEN}


def _place(error: BaseException) -> str:
    """`FILE:LINE` of the innermost line of a user's file; empty if there is none."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file in _OWN_FILES:
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
