"""Experiments from a user's own file: its classes, and errors that say where in it they arose."""

import contextlib
import dataclasses
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dawnjax.config import notebook_code, own_sources
from dawnjax.config.own_sources import OwnFile
from dawnjax.errors import GUIDE, ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import DataError

CHOSEN = ("task", "model", "data", "optimizer", "schedule")
"""Fields of an experiment whose classes a file may define."""

_files: dict[str, OwnFile] = {}
"""File of each module that a user's file is or imports, by the module's name."""


def module_of_file(path: Path) -> types.ModuleType:
    """Execute a user's file; ConfigError with the line at which that fails."""
    from dawnjax.machine import jax_settings  # loads JAX, as the file does

    if not path.is_file():
        raise ConfigError(f"no experiment file {path}")
    if path.suffix != ".py":
        raise ConfigError(f"{path} is no Python file; an experiment file ends in .py")
    jax_settings.pin()
    try:
        with jax_settings.watched():
            module, names, file = own_sources.execute(path, _module_name(path))
    except (ConfigError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # whatever the user's file does wrong, say where
        raise ConfigError(f"{place_of(error) or path}: {_told(error)}") from None
    _files.update(dict.fromkeys(names, file))
    return module


def _module_name(path: Path) -> str:
    return f"_experiment_{path.stem}"


def source_of(experiment: Any, path: Path | None) -> OwnFile | None:
    """A user's file that an experiment came from, or that has its classes; None if there is none.

    `path` is the file that was executed, if one was.
    """
    name = "" if path is None else _module_name(path)
    return _files[name] if name in _files else file_of(experiment)


def file_of(experiment: Any) -> OwnFile | None:
    """A user's file with the class of a field of the experiment; None if all are this package's.

    Classes of a notebook's cells are as good as a file.
    """
    classes = [type(getattr(experiment, field)) for field in CHOSEN]
    for cls in classes:
        name = cls.__module__
        if name in _files:
            return _files[name]
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and not name.startswith("dawnjax.") and not own_sources.is_installed(file):
            return own_sources.from_disk(file)
    in_cells = [cls for cls in classes if cls.__module__ == "__main__"]
    return notebook_code.own_file(in_cells) if in_cells else None


@contextlib.contextmanager
def own_code(what: str) -> Iterator[None]:
    """Run code that may call a class of a user's file; its errors become one ConfigError line."""
    try:
        yield
    except (ConfigError, RunError, DataError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # SystemExit too: `sys.exit(0)` is no end of a run
        place = place_of(error)
        if not place and (not _files or not isinstance(error, Exception)):
            raise  # a fault of this package
        place = f"{place}: " if place else ""
        raise ConfigError(f"{place}{what}: {_told(error)}") from None


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


def place_of(error: BaseException) -> str:
    """`FILE:LINE` of the innermost line of a user's file; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename and own_sources.is_own(error.filename):
        return f"{own_sources.shown(error.filename)}:{error.lineno}"
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if own_sources.is_own(file):
            place = f"{own_sources.shown(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    before = error.__cause__ or error.__context__
    return place or ("" if before is None else place_of(before))


def line_of(error: BaseException) -> str:
    """One line on an error that code of a user's file raised, with its place; empty for others."""
    place = place_of(error)
    return f"{place}: {_told(error)}" if place else ""


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
