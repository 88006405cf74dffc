"""Games of Go in SGF: the moves of one game from the empty board, checked against the rules.

Source: A. Hollosi, "SGF FF[4]" (red-bean.com/sgf).
"""

import pathlib
import re
from collections.abc import Iterator

from dawnjax.input_pipeline.reading import text_files
from dawnjax.input_pipeline.reading.dataset import DataError

MOST_BYTES = 8 * 2**20

# Possessive (`*+`): a quantifier that could go back would keep some 200 bytes for each letter.
_TOKEN = re.compile(
    r"[;\s]*+(?:([()])|([A-Za-z]++)\s*+((?:\[(?:[^\]\\]++|\\.)*+\]\s*+)++))", re.DOTALL
)
_VALUE = re.compile(r"\[((?:[^\]\\]++|\\.)*+)\]", re.DOTALL)
_SETUP = {
    "AB": "sets up stones",
    "AW": "sets up stones",
    "AE": "sets up stones",
    "PL": "sets who moves",
}


def read_moves(path: pathlib.Path, side: int, most_moves: int) -> list[int]:
    """Points of a game's moves in order, row x side + column, black's first.

    DataError for another game or board, setup stones, variations, a pass, more moves than
    `most_moves`, or a move against the rules: suicide, simple ko and a repeated board are
    forbidden.
    """
    moves: list[int] = []
    game, properties = _Board(side), list(_properties(path))
    if side != 19 and "SZ" not in dict(properties):
        raise DataError(
            f"{path}: has no SZ, so its board is 19 x 19; the board must be {side} x {side}"
        )
    for name, values in properties:
        shown = " ".join(values[0].split())[:20]
        where = f"{path}: {name[:20]}[{shown}]"
        if name == "GM" and shown != "1":
            raise DataError(f"{where}: is not a game of Go (GM[1])")
        if name == "SZ":
            if shown not in (str(side), f"{side}:{side}"):
                raise DataError(f"{where}: the board must be {side} x {side}")
        elif name in _SETUP or (name == "HA" and values != ["0"]):
            reason = _SETUP.get(name, "gives a handicap")
            raise DataError(f"{where}: {reason}; a game must begin with an empty board")
        elif name in ("B", "W"):
            where = f"{path}: move {len(moves) + 1}, {name}[{shown}]"
            if len(moves) == most_moves:
                raise DataError(f"{where}: a game has at most {most_moves} moves")
            if name != "BW"[len(moves) % 2]:
                raise DataError(f"{where}: it is the other player's turn")
            point = _point(values[0], side)
            fault = "a pass cannot be predicted" if point is None else game.play(point)
            if len(values) > 1 or (point is not None and point < 0):
                fault = "no point of the board"
            if fault:
                raise DataError(f"{where}: {fault}")
            assert point is not None
            moves.append(point)
    if not moves:
        raise DataError(f"{path}: holds no move")
    return moves


def _properties(path: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the properties of the one game of a file, with their values."""
    text = text_files.read(path, MOST_BYTES)
    place, opened, is_closed = 0, 0, False
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            cut = "; the file may be cut short" if "]" not in text[place:] else ""
            raise DataError(f"{path}: letter {place} does not begin an SGF property{cut}")
        place = match.end()
        mark, name, values = match.groups()
        if mark == "(":
            opened += 1
            if opened > 1:
                raise DataError(f"{path}: letter {place - 1} begins a variation or a second game")
        is_closed |= mark == ")"
        if name:
            # Up to FF[3] a name may have small letters, which mean nothing: `Black` is `B`.
            capitals = "".join(letter for letter in name if letter.isupper())
            yield capitals or name.upper(), _VALUE.findall(values)
    if not opened or not is_closed:
        raise DataError(f"{path}: the game does not end with ')'; the file is cut short or not SGF")


def _point(value: str, side: int) -> int | None:
    """Point of a move; None for a pass, -1 for no point of the board."""
    if value == "" or (value == "tt" and side <= 19):
        return None
    column, row = (ord(letter) - ord("a") for letter in value) if len(value) == 2 else (-1, -1)
    return row * side + column if 0 <= column < side and 0 <= row < side else -1


class _Board:
    """A board that knows whose turn it is and which boards there were."""

    def __init__(self, side: int):
        self._side = side
        self._stones = [0] * (side * side)
        self._mover, self._seen = 1, {tuple(self._stones)}

    def play(self, point: int) -> str:
        """Play a point for the player to move; the fault of a move that the rules forbid."""
        if point < 0:
            return ""
        if self._stones[point]:
            return "the point is taken"
        stones = list(self._stones)
        stones[point] = self._mover
        for neighbour in self._neighbours(point):
            if stones[neighbour] == -self._mover:
                self._capture(stones, neighbour)
        before = stones[point]
        self._capture(stones, point)
        if stones[point] != before:
            return "the stones would have no liberty"
        if tuple(stones) in self._seen:
            return "the move repeats an earlier board"
        self._stones, self._mover = stones, -self._mover
        self._seen.add(tuple(stones))
        return ""

    def _capture(self, stones: list[int], point: int) -> None:
        """Remove the stones that hang together with one at a point, if they have no liberty."""
        colour, group, found = stones[point], {point}, [point]
        while found:
            for neighbour in self._neighbours(found.pop()):
                if stones[neighbour] == 0:
                    return
                if stones[neighbour] == colour and neighbour not in group:
                    group.add(neighbour)
                    found.append(neighbour)
        for member in group:
            stones[member] = 0

    def _neighbours(self, point: int) -> Iterator[int]:
        row, column = divmod(point, self._side)
        for near_row, near_column in (
            *((row - 1, column), (row + 1, column)),
            *((row, column - 1), (row, column + 1)),
        ):
            if 0 <= near_row < self._side and 0 <= near_column < self._side:
                yield near_row * self._side + near_column
