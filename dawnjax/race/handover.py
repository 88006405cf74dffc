"""Handover of the training data: what starts the judge's clock.

A run inside the sandbox knows the shapes of its data and compiles for them, but the examples are
not there. When it asks for them, they appear in its folder, and the clock starts. Thus nothing that
it does before can train on them. Examples to evaluate never appear: their place has ones.
"""

import dataclasses
import importlib
import math
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.input_pipeline.reading.dataset import Split

DESCRIPTION = "data.json"

_CHUNK_BYTES = 2**26


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """Shape and NumPy's dtype of an array."""

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Described:
    """Data before they are there: the class and the fields of their specification, the arrays."""

    spec_class: str
    spec: dict[str, Any]
    train: dict[str, Array]
    eval: dict[str, Array]


class Handover:
    """Training examples of a track, to be handed to one run after another.

    `closed` holds them where no run looks; `prepare` writes them there once.

    Attributes:
      array: The array with the classes or tokens.
      names: What runs now see in place of each class or token of the data.
    """

    def __init__(self, closed: Path, described: Described, learnt: "Learnt"):
        self._closed, self._described, self._learnt = closed, described, learnt
        self.array, self.names = learnt.array, np.arange(len(learnt.groups))

    @classmethod
    def prepare(cls, data: Any, spec: Any, closed: Path) -> "Handover":
        """Write the training split of a dataset as plain arrays, and describe both splits."""
        arrays = data.load("train")
        closed.mkdir(parents=True)
        for name, array in arrays.items():
            _write(closed / f"{name}.bin", array)
        kind = type(spec)
        described = Described(
            spec_class=f"{kind.__module__}:{kind.__qualname__}",
            spec=records.plain(spec),
            train={
                name: Array(shape=tuple(map(int, array.shape)), dtype=np.dtype(array.dtype).str)
                for name, array in arrays.items()
            },
            eval={
                name: Array(shape=(spec.num_eval_examples, *shape), dtype=np.dtype(dtype).str)
                for name, (shape, dtype) in spec.example_shapes("eval").items()
            },
        )
        return cls(closed, described, learnt_of(spec))

    def describe(self, folder: Path) -> None:
        """Make a run's folder of data, with their description alone."""
        folder.mkdir(parents=True)
        records.write_json(folder / DESCRIPTION, records.plain(self._described))

    def shuffle(self) -> None:
        """Give the examples an order and their classes or tokens names that nobody knows.

        All runs of one round see the same. A run that ignores its seed and fixes a lucky one sees
        other batches than the batches that made it lucky. A run that remembers instead of learning
        knows no round's names: it is at chance.
        """
        random = np.random.default_rng(secrets.randbits(128))
        order = random.permutation(next(iter(self._described.train.values())).shape[0])
        renamed = self._learnt.renamed(random)
        new = self._closed.with_name(secrets.token_hex(8))
        for name, described in self._described.train.items():
            file, more = f"{name}.bin", renamed if name == self._learnt.array else None
            _write(new / file, _read(self._closed / file, described), order, more)
        shutil.rmtree(self._closed)  # runs before keep theirs
        self._closed, self.names = new, renamed[self.names]

    def hand_over(self, folder: Path) -> None:
        """Put the examples into a run's folder: a new name of each file, which takes no time."""
        for name in self._described.train:
            try:
                os.link(self._closed / f"{name}.bin", folder / f"{name}.bin")
            except OSError as error:
                raise RunError(f"cannot hand the data over in {folder}: {error.strerror}") from None


@dataclasses.dataclass(frozen=True)
class Learnt:
    """What a task learns to name: the array that holds it, and the group of each name.

    Names are exchanged within their groups alone.
    """

    array: str
    groups: np.ndarray

    def renamed(self, random: np.random.Generator) -> np.ndarray:
        """New name of each old one, drawn anew."""
        names = np.arange(len(self.groups))
        for group in np.unique(self.groups):
            members = np.flatnonzero(self.groups == group)
            names[members] = random.permutation(members)
        return names


def learnt_of(spec: Any) -> Learnt:
    """Classes of images, or tokens of a text, by the specification of their data.

    Tokens keep the number of bytes that they stand for, of which a metric may be; the separator of
    documents stays, because a model knows it.
    """
    if hasattr(spec, "num_classes"):
        return Learnt("label", np.zeros(spec.num_classes, np.int64))
    groups = np.array(spec.bytes_of_token or [0] * spec.vocabulary_size)
    groups[spec.separator] = -1
    return Learnt("tokens", groups)


def _write(
    path: Path, array: Any, order: np.ndarray | None = None, names: np.ndarray | None = None
) -> None:
    """Write an array's rows, in an order and with other names where they are given."""
    rows = max(1, _CHUNK_BYTES // max(1, array.dtype.itemsize * math.prod(array.shape[1:])))
    try:
        fd = records.open_append(path)
        try:
            for start in range(0, len(array), rows):
                span = slice(start, start + rows)
                chosen = array[span] if order is None else array[order[span]]
                chosen = chosen if names is None else names[chosen].astype(array.dtype)
                part = memoryview(np.asarray(chosen).tobytes())
                while part:
                    part = part[os.write(fd, part) :]
        finally:
            os.close(fd)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None


def withheld(data: Any, folder: Path, wait: Callable[[], None]) -> Any:
    """A dataset that is described in a folder, and whose examples come after `wait`.

    Its class derives from the class of `data` and has equal fields: a run takes it for the same.
    """
    described = records.read_json(folder / DESCRIPTION, Described)
    module, _, name = described.spec_class.partition(":")
    spec = records.convert(described.spec, getattr(importlib.import_module(module), name))

    def load(self: Any, split: Split) -> Mapping[str, np.ndarray]:
        if split == "eval":
            return {name: np.ones(a.shape, a.dtype) for name, a in described.eval.items()}
        wait()
        return {name: _read(folder / f"{name}.bin", a) for name, a in described.train.items()}

    cls = type(data)
    members = {"__module__": cls.__module__, "spec": lambda self: spec, "load": load}
    fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(cls)}
    return type(cls.__name__, (cls,), members)(**fields)


def _read(path: Path, array: Array) -> np.ndarray:
    with records.open_plain(path) as file:
        return np.memmap(file, array.dtype, "r", 0, array.shape)
