"""A user's own file: its classes and texts, and errors that say where in it they arose.

The file's folder comes first on Python's path, as with `python FILE`. The text of the file and of
the modules that it loads from there is part of the experiment.
"""

import contextlib
import dataclasses
import importlib.util
import os
import sys
import sysconfig
import types
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import dawnjax
from dawnjax import records
from dawnjax.errors import GUIDE, ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.runs.directory import hash_of

CHOSEN = ("task", "model", "data", "optimizer", "schedule")
"""Fields of an experiment whose classes a file may define."""


@dataclasses.dataclass(frozen=True)
class OwnFile:
    """A user's file and the modules that it loaded from its folder.

    Attributes:
      given: Its path as the user wrote it.
      texts: Text of the file, and then of each module, by their paths from its folder.
    """

    given: Path
    texts: dict[str, str]

    def code(self) -> dict[str, str]:
        """Hash of each text, which binds a run to it."""
        return {name: hash_of(text) for name, text in self.texts.items()}

    def to_json(self) -> dict[str, Any]:
        main, *modules = (
            {"name": name, "sha256": hash_of(text), "text": text}
            for name, text in self.texts.items()
        )
        main["path"] = os.path.abspath(self.given)
        return {**main, "modules": modules} if modules else main


_INSTALLED = tuple(
    os.path.join(path, "")
    for path in (os.path.dirname(dawnjax.__file__), sysconfig.get_path("stdlib"))
)

_files: dict[str, OwnFile] = {}
"""File of each module that a file is or has loaded, by the module's name."""

_newest: list[str] = []
"""Modules that the newest file is and has loaded."""

_folders: dict[str, Path] = {}
"""Folder of each file as the user wrote it, by its absolute path; the newest is the last."""


def module_of_file(path: Path) -> types.ModuleType:
    """Execute a user's file; ConfigError with the line at which that fails."""
    from dawnjax.machine import jax_settings  # loads JAX, as the file does

    if not path.is_file():
        raise ConfigError(f"no experiment file {path}")
    if path.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file; an experiment file ends in .py")
    jax_settings.pin()
    try:
        with jax_settings.watched():
            return _execute(path)
    except (ConfigError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # whatever the user's file does wrong, say where
        raise ConfigError(f"{place_of(error) or path}: {_told(error)}") from None


def _execute(path: Path) -> types.ModuleType:
    # Modules of another file, or of an earlier text of this one, are other programs.
    for other in _newest:
        sys.modules.pop(other, None)
    for folder in _folders.keys() & {*sys.path}:
        sys.path.remove(folder)
    file, name = os.path.abspath(path), _module_name(path)
    folder = os.path.dirname(file)
    _folders.pop(folder, None)
    _folders[folder] = path.parent
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # a module may have been written a moment ago
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = {*sys.modules}
    sys.modules[name] = module  # dataclasses look annotations up there
    # Python would take a compiled copy for a text of the same size and second.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
        _newest[:] = {name} | {other for other, _ in _loaded(folder)} - before
    _files.update(dict.fromkeys(_newest, _own_file(path)))
    return module


def _module_name(path: Path) -> str:
    return f"_experiment_{path.stem}"


def _own_file(path: Path) -> OwnFile:
    file = os.path.abspath(path)
    folder = os.path.dirname(file)
    others = {other for _, other in _loaded(folder)} - {file}
    try:
        texts = {
            os.path.relpath(name, folder): importlib.util.decode_source(records.read_plain(name))
            for name in (file, *sorted(others))
        }
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"cannot read the experiment's file {path}: {error}") from None
    return OwnFile(path, texts)


def _loaded(folder: str) -> Iterator[tuple[str, str]]:
    """Names and files of the loaded modules below a folder, but for installed ones."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name != "__main__" and file.endswith(".py") and _is_below(file, folder):
            yield name, os.path.abspath(file)


def _is_below(file: str, folder: str) -> bool:
    return os.path.abspath(file).startswith(os.path.join(folder, "")) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or bool(
        {"site-packages", "dist-packages"} & {*Path(file).parts}
    )


def modules_not_in(names: Collection[str]) -> list[str]:
    """Modules beside the newest file that are not among these paths from its folder."""
    folder = next(reversed(_folders), "")
    loaded = {os.path.relpath(file, folder) for _, file in _loaded(folder)} if folder else set()
    return sorted(loaded - set(names))


def source_of(experiment: Any, path: Path | None) -> OwnFile | None:
    """A user's file that an experiment came from, or that has its classes; None if there is none.

    `path` is the file that was executed, if one was.
    """
    name = "" if path is None else _module_name(path)
    return _files[name] if name in _files else file_of(experiment)


def file_of(experiment: Any) -> OwnFile | None:
    """A user's file with the class of a field of the experiment; None if all are this package's.

    ConfigError for a class of a notebook: no run could be bound to the text of its cells.
    """
    classes = [type(getattr(experiment, field)) for field in CHOSEN]
    for cls in classes:
        name = cls.__module__
        if name in _files:
            return _files[name]
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and not _is_installed(file):
            return _own_file(Path(file))
        if name == "__main__":
            raise ConfigError(
                f"{cls.__name__} is defined in a notebook: write it to a file, for example with "
                "%%writefile, and import it"
            )
    return None


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
                f"{field} is a {cls.__name__}, a class in the experiment's file: make it a "
                f'dataclass with its own TAG = "..."; {GUIDE}'
            )
        if "tag" in (item.name for item in dataclasses.fields(cls)):
            raise ConfigError(f"{field}={cls.TAG}: no field may be called tag; rename it")  # pyright: ignore[reportAttributeAccessIssue]
        builds = ("build",) if field in ("optimizer", "schedule") else ()
        missing = [name for name in (*needed.get(field, ()), *builds) if not hasattr(config, name)]
        if missing:
            raise ConfigError(
                f"{field}={cls.TAG}: {cls.__name__} lacks {', '.join(missing)}; {GUIDE}"  # pyright: ignore[reportAttributeAccessIssue]
            )


def place_of(error: BaseException) -> str:
    """`FILE:LINE` of the innermost line of a user's file; empty if there is none."""
    if isinstance(error, SyntaxError) and (place := _shown(error.filename or "")):
        return f"{place}:{error.lineno}"
    trace, place = error.__traceback__, ""
    while trace is not None:
        if file := _shown(trace.tb_frame.f_code.co_filename):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    before = error.__cause__ or error.__context__
    return place or ("" if before is None else place_of(before))


def _shown(file: str) -> str:
    """Path of a user's file or module as the user would write it; empty for other code."""
    for folder, given in reversed(_folders.items()):
        if _is_below(file, folder):
            return str(given / os.path.relpath(file, folder))
    return ""


def line_of(error: BaseException) -> str:
    """One line on an error that code of a user's file raised, with its place; empty for others."""
    place = place_of(error)
    return f"{place}: {_told(error)}" if place else ""


def line_or_text(error: BaseException) -> str:
    """`line_of` an error, or its text where no code of a user's file raised it."""
    return line_of(error) or _told(error)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
