"""The judge's ledger of tries: a record falls to luck in 1 % of cases, however many entries try.

`verdicts/tries.jsonl` has a line for each verification that began, before its first run: an entry
that ends an unlucky one by an error, or comes again under another name, has still tried. The k-th
try at a standing record is held to the level 1 % / (k (k + 1)); the levels of all tries sum to 1 %.
"""

import dataclasses
import os
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError

TRIES = "tries.jsonl"

LEVEL = 0.01
"""Chance that any of the entries as fast as a standing record is found faster, or slower."""

_MOST_BYTES = 2**24
_MOST_LINE_BYTES = 2**12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Try:
    """A verification that began.

    Attributes:
      rival: The standing record by name and recipe, or the baseline.
      recipe: Hash of what was tried.
    """

    track: str
    rival: str
    name: str
    recipe: str
    date: str


def level_of(number: int) -> float:
    """Level of the test of a try, numbered from 1."""
    return LEVEL / (number * (number + 1))


def begin(folder: Path, tried: Try) -> int:
    """Write a try down; returns its number among those at the same rival, from 1.

    Raises:
      ConfigError: The ledger is damaged or cannot be written.
    """
    file = folder / TRIES
    try:
        earlier = [
            records.decode(line, Try)
            for line in records.lines(file, _MOST_BYTES, _MOST_LINE_BYTES)
            if line.strip()
        ]
    except FileNotFoundError:
        earlier = []
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no ledger of tries ({error}); restore it") from None
    same = [it for it in earlier if (it.track, it.rival) == (tried.track, tried.rival)]
    try:
        fd = records.open_append(file)
        try:
            os.write(fd, (records.json_text(records.plain(tried)) + "\n").encode())
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    return len(same) + 1
