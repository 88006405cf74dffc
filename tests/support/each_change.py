"""Rows of a promise's table: a few for each change, the whole table every night."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def rows(names: Iterable[Any], each_change: Collection[Any]) -> list[Any]:
    """Parameters of a test, of which those outside `each_change` are `long`.

    Raises:
      ValueError: a name of `each_change` is not a row of the table.
    """
    names = list(names)
    if unknown := set(each_change) - set(names):
        raise ValueError(f"no rows {sorted(unknown)}")
    return [
        pytest.param(name, marks=() if name in each_change else pytest.mark.long) for name in names
    ]
