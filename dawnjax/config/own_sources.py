"""Texts of a user's file and of the modules beside it: executed as read, hashed, kept with a run.

The file's folder comes first among those that Python imports from, as with `python FILE`. What the
file imports from there, or from any folder that is no installation, is part of the experiment.
"""

import ast
import dataclasses
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import sysconfig
import tokenize
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dawnjax
from dawnjax import records
from dawnjax.config.config_json import identity_of
from dawnjax.errors import ConfigError
from dawnjax.runs.directory import hash_of, texts_of

MOST_BYTES = 10**6
"""Of the texts of a file and its modules, which every run keeps."""

CONSTANTS = ("EXPERIMENT", "TINY", "STUDY", "TECHNIQUES")
"""Constants whose values a run records: their text is no code of a file's classes."""


@dataclasses.dataclass(frozen=True)
class OwnFile:
    """A user's file as it was executed.

    Attributes:
      given: Its path as the user wrote it.
      texts: Text of the file, and then of each module that it imports, by their paths from its
        folder.
    """

    given: Path
    texts: dict[str, str]

    def code(self) -> dict[str, str]:
        return code_of(self.texts) or {}

    def to_json(self) -> dict[str, Any]:
        """Texts with their hashes, for a run's record; ConfigError if they are too long."""
        num_bytes = sum(len(text.encode()) for text in self.texts.values())
        if num_bytes > MOST_BYTES:
            modules = f" with its {len(self.texts) - 1} modules" if len(self.texts) > 1 else ""
            raise ConfigError(
                f"the experiment file {self.given}{modules} has {num_bytes:,} bytes; a run keeps "
                f"the text of one of at most {MOST_BYTES:,}: move what is large to a file that it "
                "reads"
            )
        main, *modules = (
            {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "text": text}
            for name, text in self.texts.items()
        )
        return {**main, "modules": modules} if modules else main


_executed: dict[str, str] = {}
"""Text of each module that was executed from it, by its absolute path."""

_shown: dict[str, Path] = {}
"""Folder of each user's file as the user wrote it, by its absolute path."""

_folder = ""
"""Folder of the file that was executed last, which stands in Python's path."""

_is_executing = False


class _Loader(importlib.machinery.SourceFileLoader):
    """Executes a module from its text alone.

    Python takes a compiled copy whose source has the same size and second, which may be another
    program than the text that is kept.
    """

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        _executed[path] = ""  # a text that does not compile is the user's too
        data = records.read_plain(path)
        code = self.source_to_code(data, path)
        _executed[path] = _decoded(data)
        return code


class _Finder:
    """Finds what Python finds, and has a user's modules executed by `_Loader`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            origin = os.path.abspath(spec.origin or "")
            is_beside = bool(_folder) and Path(origin).is_relative_to(_folder)
            if (is_beside or _is_executing) and not is_installed(origin):
                spec.loader = _Loader(name, origin)
        return spec


def execute(path: Path, name: str) -> tuple[types.ModuleType, list[str], OwnFile]:
    """Execute a user's file anew, with the modules that it imports; raises what it raises.

    Returns the module, the names of it and of the others, and their texts.
    """
    global _folder, _is_executing
    file = os.path.abspath(path)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), _Finder)
    # Modules of another file, or of an earlier text of this one, are other programs.
    for other, _ in _loaded():
        del sys.modules[other]
    if _folder in sys.path:
        sys.path.remove(_folder)
    _folder = os.path.dirname(file)
    _shown[_folder] = path.parent
    sys.path.insert(0, _folder)
    importlib.invalidate_caches()  # a module may have been written a moment ago
    loader = _Loader(name, file)
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look annotations up there
    _is_executing = True
    try:
        loader.exec_module(module)
    finally:
        _is_executing = False
    loaded = dict(_loaded())
    return module, list(loaded), _own_file(path, _executed[file], sorted({*loaded.values()}))


def code_of(texts: Mapping[str, str]) -> dict[str, str] | None:
    """Hash of what each text computes, by name, the first that of the file; None for no Python.

    Comments, docstrings and layout do not count, nor do `CONSTANTS` of the file.
    """
    try:
        return {
            name: _code_hash(text, () if number else CONSTANTS)
            for number, (name, text) in enumerate(texts.items())
        }
    except (SyntaxError, ValueError, RecursionError):
        return None


def record_faults(record: Mapping[str, Any]) -> list[str]:
    """Parts of a run's `experiment.json` that contradict each other: identity, hashes, texts."""
    faults = []
    if identity_of(record["identity_fields"]) != record["identity"]:
        faults.append(
            "experiment.json: the hash of identity_fields is not its identity; one was changed"
        )
    texts = texts_of(record.get("source"))
    changed = [
        f"source.modules.{number - 1}" if number else "source"
        for number, item in enumerate(texts.values())
        if hash_of(item["text"]) != item["sha256"]
    ]
    faults += [
        f"experiment.json: {at}.text has not the hash {at}.sha256; it was changed" for at in changed
    ]
    code = record["identity_fields"].get("code")
    kept = {name: item["text"] for name, item in texts.items()}
    if code is not None and not changed and code != code_of(kept):
        faults.append("experiment.json: the kept texts are not the code of identity_fields.code")
    return faults


def from_disk(file: str) -> OwnFile:
    """A file that Python imported in the ordinary way, with the modules beside it."""
    return _own_file(Path(file), _read(Path(file)), [])


def modules_not_in(names: Collection[str]) -> list[str]:
    """Modules of the newest file that are not among these paths from its folder."""
    loaded = {os.path.relpath(file, _folder) for _, file in _loaded()}
    return sorted(loaded - set(names))


def is_own(file: str) -> bool:
    """True if a file of code is a user's, executed here."""
    return file in _executed


def shown(file: str) -> str:
    """Path of a user's file or module as the user would write it."""
    for folder in (os.path.dirname(file), _folder):
        if folder in _shown:
            return str(_shown[folder] / os.path.relpath(file, folder))
    return file


def _own_file(path: Path, text: str, loaded: list[str]) -> OwnFile:
    file = os.path.abspath(path)
    folder = os.path.dirname(file)
    texts = {file: text}
    waiting = [file, *(module for module in loaded if module != file)]
    # Also what no line has imported yet: a function may import when it is called.
    for module in waiting:
        if module not in texts:
            texts[module] = _executed[module] if module in _executed else _read(Path(module))
        waiting += [m for m in _imported(texts[module], module, folder) if m not in waiting]
    names = [file, *sorted(texts.keys() - {file})]
    return OwnFile(path, {os.path.relpath(name, folder): texts[name] for name in names})


def _loaded() -> Iterator[tuple[str, str]]:
    """Names and files of the modules that `_Loader` executed."""
    for name, module in list(sys.modules.items()):
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        if isinstance(loader, _Loader):
            yield name, str(loader.path)


def _imported(text: str, file: str, folder: str) -> Iterator[str]:
    """Files below a folder that the text of a file in it imports, in functions too."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        start = folder
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                start = str(Path(file).parents[node.level - 1])
            names = [f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names]
        for name in names:
            parts = name.split(".")
            # A package's own file comes with each module of it.
            for end in range(1, len(parts) + 1 if parts[0] != "dawnjax" else 0):
                place = os.path.join(start, *parts[:end])
                for found in (f"{place}.py", os.path.join(place, "__init__.py")):
                    if os.path.isfile(found) and not is_installed(found):
                        yield found


def is_installed(file: str) -> bool:
    """True for code of this package, of Python and of installed ones."""
    is_package = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return bool(is_package) or file.startswith(_installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = [p for name, p in sysconfig.get_paths().items() if name.endswith(("stdlib", "lib"))]
    return tuple(os.path.join(path, "") for path in [os.path.dirname(dawnjax.__file__), *paths])


def _read(path: Path) -> str:
    try:
        return _decoded(records.read_plain(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the experiment's file {path}: {error}") from None


def _decoded(data: bytes) -> str:
    # By Python's own rule for encodings, so that the kept text is the one that ran.
    return data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])


def _code_hash(text: str, without: Sequence[str]) -> str:
    """Hash of a text's syntax tree, the same for each version of Python that reads it alike."""
    digest = hashlib.sha256()
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not _assigns(node, without)]
    # No recursion: a long sum is nested as deep as it has terms.
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.AST):
            # Later versions have more fields, which are empty where an earlier one has none.
            fields = {n: v for n, v in ast.iter_fields(node) if v is not None and v != []}
            if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None:
                fields["body"] = node.body[1:]
            digest.update(f"{type(node).__name__}{list(fields)}".encode())
            waiting += reversed(fields.values())
        elif isinstance(node, list):
            digest.update(f"[{len(node)}".encode())
            waiting += reversed(node)
        else:
            digest.update(f"{node!r};".encode())
    return digest.hexdigest()[:16]


_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _assigns(node: ast.stmt, names: Sequence[str]) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id in names for target in targets)
