"""Handover of the data: what starts the judge's clock.

A run inside the sandbox knows the shapes of its data and compiles for them, but does not have the
examples. When it asks for them, they appear in its folder, and the clock starts, so it cannot train
on them earlier. A recipe's evaluation examples never appear: arrays of ones replace them. A program
gets the inputs to answer with the examples, and never the true classes.

Examples of a round have a drawn order, and classes or tokens drawn names (`renamed`). So a run that
replaces its seed by a chosen one sees other batches than in the rounds that chose it, and weights
from earlier rounds are useless.
"""

import dataclasses
import importlib
import io
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import Split
from dawnjax.input_pipeline.reading.renamed import new_names, renamed

DESCRIPTION = "data.json"


class Handover:
    """Examples of a track, to be handed to one run after another.

    `folder` keeps them out of the runs' sight. `new_round` comes before the first run.
    """

    def __init__(self, data: Any, spec: Any, folder: Path):
        self._data, self._spec, self._folder = data, spec, folder
        self._round, self._names_seed = folder, 0
        self._rows = {"train": spec.num_train_examples, "eval": spec.num_eval_examples}
        self._described = {
            "spec_class": f"{type(spec).__module__}:{type(spec).__qualname__}",
            "spec": records.plain(spec),
            "train": self._arrays("train"),
            "eval": self._arrays("eval"),
        }

    def _arrays(self, split: Split) -> dict[str, Any]:
        """Shape and NumPy's dtype of each array."""
        return {
            name: {"shape": [self._rows[split], *shape], "dtype": np.dtype(dtype).str}
            for name, (shape, dtype) in self._spec.example_shapes(split).items()
        }

    @property
    def num_classes(self) -> int:
        return int(self._spec.num_classes)

    def describe(self, folder: Path) -> None:
        """Make a run's data folder, with only the description."""
        folder.mkdir(parents=True)
        records.write_json(folder / DESCRIPTION, self._described)

    def new_round(self) -> int:
        """Draw the order and names of a round; returns their seed."""
        seed, last = secrets.randbits(62), self._round
        self._round, self._names_seed = self._folder / secrets.token_hex(8), seed
        renamed_array, names = new_names(self._spec, seed)
        for split in ("train", "eval"):
            for name, array in self._data.load(split).items():
                is_renamed = name == renamed_array
                if split == "train" or not is_renamed:
                    rows, file = np.asarray(array[self._order(split)]), io.BytesIO()
                    np.save(file, renamed(rows, names) if is_renamed else rows)
                    records.write(self._round / f"{split}_{name}.npy", file.getvalue())
        if last != self._folder:
            shutil.rmtree(last)  # runs before keep theirs
        return seed

    def _order(self, split: Split) -> np.ndarray:
        random = np.random.default_rng([self._names_seed, split == "eval"])
        return random.permutation(self._rows[split])

    def true_classes(self) -> np.ndarray:
        """Classes of the round's inputs to answer, in their order and under their names."""
        name, names = new_names(self._spec, self._names_seed)
        return renamed(np.asarray(self._data.load("eval")[name]), names)[self._order("eval")]

    def hand_over(self, folder: Path, *, with_inputs: bool = False) -> None:
        """Put the examples into a run's folder: a new name of each file, which takes no time.

        `with_inputs` adds the inputs to answer.
        """
        for path in self._round.glob("*.npy" if with_inputs else "train_*.npy"):
            os.link(path, folder / path.name)


def withheld(data: Any, folder: Path, wait: Callable[[], None]) -> Any:
    """A dataset described in a folder; its examples come after `wait`.

    It is of a class below that of `data`, with equal fields, so that a run takes it for the same.
    """
    described = records.load_json(records.read_plain(folder / DESCRIPTION))
    module, _, name = described["spec_class"].partition(":")
    spec = records.convert(described["spec"], getattr(importlib.import_module(module), name))

    def load(self: Any, split: Split) -> Mapping[str, np.ndarray]:
        if split == "eval":
            return {name: np.ones(**it) for name, it in described["eval"].items()}
        wait()
        files = {name: folder / f"train_{name}.npy" for name in described["train"]}
        return {name: np.load(file, mmap_mode="r") for name, file in files.items()}

    cls = type(data)
    members = {"__module__": cls.__module__, "spec": lambda self: spec, "load": load}
    fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(cls)}
    return type(cls.__name__, (cls,), members)(**fields)
