"""Columns `config.FIELD` of a report's files: the fields that a flag changed, by entry or run."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dawnjax.analysis.our_run import OurRun
from dawnjax.page.table import Column, Table
from dawnjax.report.labels import KEY, key_of
from dawnjax.trials.group import Entry, Scalar


def with_config(table: Table, entries: Sequence[Entry], runs: Sequence[OurRun]) -> Table:
    """A table whose rows are entries or runs, with the fields that a flag changed in any of them.

    Any other table stays as it is.
    """
    names = {column.name for column in table.columns}
    values: Mapping[Any, Mapping[str, Any]]
    if names.issuperset(KEY):
        keys, values = KEY, {key_of(entry): entry.config for entry in entries}
    elif "run" in names:
        keys, values = ("run",), {(run.name,): run.fields for run in runs}
    else:
        return table
    records = table.records()
    return with_fields(table, [values.get(tuple(row[k] for k in keys), {}) for row in records])


def with_fields(table: Table, rows: Sequence[Mapping[str, Scalar]]) -> Table:
    """A table with a column for each field of its rows: text where a field is text in any row."""
    columns = []
    for field in sorted({name for row in rows for name in row}):
        kinds = {type(row[field]) for row in rows if row.get(field) is not None}
        kind = "number" if kinds and kinds <= {int, float} else "text"
        columns.append(Column(f"config.{field}", field, kind=kind))
    return dataclasses.replace(
        table,
        columns=(*table.columns, *columns),
        rows=tuple(
            (*cells, *(_cell(row.get(column.label), column) for column in columns))
            for cells, row in zip(table.rows, rows, strict=True)
        ),
    )


def fields_of(flags: Iterable[str]) -> dict[str, Scalar]:
    """Fields that an arm's flags set, as `--num_epochs=12` does."""
    settings = (flag.lstrip("-").partition("=") for flag in flags)
    return {name: _value(text) for name, _, text in settings}


def _value(text: str) -> Scalar:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text


def _cell(value: Scalar, column: Column) -> Scalar:
    return value if value is None or column.kind == "number" else str(value)
