"""Board games of pgx with a fixed network to play against, from a folder of exported weights."""

import dataclasses
import hashlib
import pathlib
from typing import Any, ClassVar

import numpy as np

from dawnjax import records
from dawnjax.errors import install
from dawnjax.input_pipeline.datasets.pgx_games import GameSpec, PgxGame
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    Declaration,
    MissingDataError,
    directory_of,
)

FILE = "model.safetensors"
MOST_BYTES = 2**28
"""Of the weights, which a compiled evaluation holds as constants."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PgxOpponent(PgxGame):
    """A game of pgx, and the weights of a network that plays it.

    Attributes:
      data_dir: Folder of the weights, as `dawnjax export --format=safetensors` writes it. Empty
        takes `opponent` in the directory that the environment variable DAWNJAX_DATA names, or in
        `./data`.
      made_up: Take an untrained network in place of the file, for a test.
    """

    TAG: ClassVar[str] = "pgx_opponent"
    data_dir: str = ""
    made_up: bool = False

    def spec(self) -> GameSpec:
        """As of the game; the weights count in the fingerprint."""
        content = b"" if self.made_up else self._content()
        spec = super().spec()  # which takes seconds to load the rules
        config = repr(dataclasses.replace(self, data_dir="")).encode()
        digest = hashlib.sha256(config + hashlib.sha256(content).digest()).hexdigest()[:16]
        name = f"{self.game.replace('_', ' ')}, played by the model, and against a fixed network"
        return dataclasses.replace(spec, fingerprint=digest, declaration=Declaration(name=name))

    def opponent(self) -> dict[str, np.ndarray]:
        """Arrays of the network by their names in a checkpoint; none if it is made up."""
        if self.made_up:
            return {}
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load
        except ImportError:
            raise DataError(f"{FILE}: reading it needs {install('weights')}") from None
        try:
            return load(self._content())
        except (SafetensorError, ValueError, KeyError) as error:
            raise DataError(f"{self._path}: {' '.join(str(error).split())[:200]}") from None

    @property
    def _path(self) -> pathlib.Path:
        return directory_of("opponent", self.data_dir) / FILE

    def _content(self) -> bytes:
        try:
            return records.read_plain(self._path, MOST_BYTES)
        except FileNotFoundError:
            raise MissingDataError(
                f"{self._path}: no such file; the fixed network is a checkpoint of yours: dawnjax "
                "export --format=safetensors RUN_DIR --out=DIR, then --data.data_dir=DIR"
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"{self._path}: {reason}") from None


def nested(arrays: dict[str, np.ndarray], part: str) -> dict[str, Any]:
    """Tree of the arrays named `part/...`."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        first, *path = name.split("/")
        if first == part and path:
            inner = tree
            for step in path[:-1]:
                inner = inner.setdefault(step, {})
            inner[path[-1]] = array
    return tree
