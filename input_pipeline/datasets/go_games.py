"""Go with games of others, whose moves an evaluation predicts: rules of pgx, and SGF files."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets.pgx_games import GameSpec, PgxGame
from dawnjax.input_pipeline.reading import sgf
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    Declaration,
    MissingDataError,
    Shapes,
    Split,
    directory_of,
)
from dawnjax.limits import NonNegative, OneOrMore

MOST_FILES = 1000

_MOVES_OF_REFERENCE = (30, 62, 42, 47)
"""Source: mlcommons/training v0.5, `reinforcement/tensorflow/minigo/benchmark_sgf`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MovesSpec(GameSpec):
    """Counts and shapes of a game whose moves are predicted.

    A position to evaluate is `moves`, int16 [most_moves], of which the first `number`, int32, lead
    to it and the next is the one to predict.
    """

    most_moves: int

    def example_shapes(self, split: Split) -> Shapes:
        if split == "train":
            return {}
        return {"moves": ((self.most_moves,), "int16"), "number": ((), "int32")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GoGames(PgxGame):
    """Go on the board of some SGF files.

    Attributes:
      data_dir: Directory of the files, `*.sgf`. Empty takes `go9x9` in the directory that the
        environment variable DAWNJAX_DATA names, or in `./data`.
      made_up_moves: Moves of one made-up game in place of files, for a test; 0 reads the files.
      passes: How often each position is evaluated; random symmetries of the board may differ.
      num_eval_games: Not used: every position of the files is evaluated.
    """

    TAG: ClassVar[str] = "go_games"
    game: str = "go_9x9"
    data_dir: str = ""
    made_up_moves: NonNegative[int] = 0
    passes: OneOrMore[int] = 2
    num_eval_games: OneOrMore[int] = 1

    def spec(self) -> MovesSpec:
        games, digest = self._games()
        return self._spec_of([len(moves) for moves in games], digest)

    def published_spec(self) -> MovesSpec:
        """Counts of the four games of the reference, which are on 9 x 9."""
        if self.side != 9:
            return self.spec()
        return self._spec_of(_MOVES_OF_REFERENCE, "published")

    def _spec_of(self, lengths: Sequence[int], digest: str) -> MovesSpec:
        spec = super().spec()
        positions = sum(lengths)
        fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
        fields |= {
            "num_eval_examples": self.passes * positions,
            "fingerprint": digest,
            "declaration": Declaration(
                name=f"{self.game}, and {positions} moves of other players' games"
            ),
        }
        return MovesSpec(**fields, most_moves=max(lengths))

    def load(self, split: Split) -> dict[str, np.ndarray]:
        if split == "train":
            return {}
        games, _ = self._games()
        most = max(len(moves) for moves in games)
        padded = [np.pad(np.array(moves, np.int16), (0, most - len(moves))) for moves in games]
        rows = [(game, number) for game, moves in enumerate(games) for number in range(len(moves))]
        game, number = np.tile(np.array(rows, np.int32), (self.passes, 1)).T
        return {"moves": np.stack(padded)[game], "number": np.ascontiguousarray(number)}

    def _games(self) -> tuple[list[list[int]], str]:
        """Moves of each file, and a fingerprint of them and of this config."""
        side = self.side
        if not side:
            raise ValueError(f"data.game={self.game!r} must be go_NxN: SGF files hold games of Go")
        most = self.max_moves or 2 * side * side
        if self.made_up_moves > side:
            raise ValueError(f"data.made_up_moves={self.made_up_moves} must be {side} or less")
        if self.made_up_moves:
            games = [list(range(self.made_up_moves))]  # along the upper edge, in turn
        else:
            files = _files(directory_of("go9x9", self.data_dir))
            games = [sgf.read_moves(path, side, most) for path in files]
        config = dataclasses.replace(self, data_dir="")
        return games, hashlib.sha256(repr((config, games)).encode()).hexdigest()[:16]


def _files(directory: pathlib.Path) -> list[pathlib.Path]:
    if not directory.is_dir():
        raise MissingDataError(
            f"{directory}: no such directory; give --data.data_dir, a directory of SGF files"
        )
    files = sorted(path for path in directory.iterdir() if path.suffix == ".sgf")
    if not 1 <= len(files) <= MOST_FILES:
        raise DataError(f"{directory}: has {len(files)} files *.sgf; wanted 1 to {MOST_FILES}")
    return files
