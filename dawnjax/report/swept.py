"""Columns `config.FIELD` of a report's files: the fields that a flag changed, by entry or run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dawnjax.analysis.our_run import OurRun
from dawnjax.page.table import Column, Table
from dawnjax.report.labels import KEY, key_of
from dawnjax.results.entries import Entry


def with_config(table: Table, entries: Sequence[Entry], runs: Sequence[OurRun]) -> Table:
    """A table whose rows are entries or runs, with the fields that a flag changed in any of them.

    Any other table stays as it is. Text stands where a field is text in some row.
    """
    names = {column.name for column in table.columns}
    values: Mapping[Any, Mapping[str, Any]]
    if names.issuperset(KEY):
        keys, values = KEY, {key_of(entry): entry.config for entry in entries}
    elif "run" in names:
        keys, values = ("run",), {(run.name,): run.fields for run in runs}
    else:
        return table
    rows = [values.get(tuple(record[name] for name in keys), {}) for record in table.records()]
    fields = sorted({name for row in rows for name in row})
    columns = []
    for field in fields:
        kinds = {type(row[field]) for row in rows if row.get(field) is not None}
        columns.append((field, "number" if kinds and kinds <= {int, float} else "text"))
    return dataclasses.replace(
        table,
        columns=(
            *table.columns,
            *(Column(f"config.{field}", field, kind=kind) for field, kind in columns),
        ),
        rows=tuple(
            (*cells, *(_cell(row.get(field), kind) for field, kind in columns))
            for cells, row in zip(table.rows, rows, strict=True)
        ),
    )


def _cell(value: Any, kind: str) -> Any:
    return value if value is None or kind == "number" else str(value)
