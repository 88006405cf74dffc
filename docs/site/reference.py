"""Parts of the site that are made from the code: commands, the Python API, fields.

MkDocs calls `on_files` and `on_page_markdown` (mkdocs.yml, `hooks`); nothing is written into the
tree.
"""

import dataclasses
import importlib
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

from mkdocs.config.defaults import MkDocsConfig  # pyright: ignore[reportMissingImports]
from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

from dawnjax.__main__ import COMMANDS
from dawnjax.config.command_line import HelpRequested
from dawnjax.config.flag_tree import attribute_docs
from dawnjax.trials.trial import Trial

FIELDS = "<!-- fields of result.json -->"

API = (
    "dawnjax.api",
    "dawnjax.analysis.loading",
    "dawnjax.statistics.verdict",
    "dawnjax.config.experiment",
    "dawnjax.tasks.task",
    "dawnjax.tasks.metric",
    "dawnjax.input_pipeline.datasets.arrays",
)
"""Modules that a user's own code calls or fills in."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    for name, lines in (("commands", commands()), ("python", python())):
        text = "\n".join(lines) + "\n"
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the table of the fields into the page that asks for it."""
    return markdown.replace(FIELDS, "\n".join(fields())) if FIELDS in markdown else markdown


def commands() -> Iterator[str]:
    """The help of every command, with the fields of `digits` for `train`."""
    yield "# Commands and flags\n\nThe output of `dawnjax COMMAND --help`."
    for name, (module, summary) in COMMANDS.items():
        experiment = ["--experiment=digits"] if name == "train" else []
        command = importlib.import_module(f"dawnjax.commands.{module}")
        yield f"\n## {name}\n\n{summary[0].upper()}{summary[1:]}.\n"
        yield f"```text\n{help_of(command, experiment)}\n```"


def help_of(command: object, arguments: list[str]) -> str:
    """Text that a command's `--help` prints."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            command.main([*arguments, "--help"])  # pyright: ignore[reportAttributeAccessIssue]
    except HelpRequested as text:
        return str(text)
    return printed.getvalue()


def python() -> Iterator[str]:
    """Directives by which mkdocstrings lists the modules of `API`."""
    yield "# Python API\n"
    yield "`import dawnjax` gives `run`, `load_run` and `load_losses`, of the first module.\n"
    for module in API:
        yield f"::: {module}\n"


def fields() -> Iterator[str]:
    """The fields of `result.json`, as the class that writes it documents them."""
    yield "| field | type | meaning |\n|---|---|---|"
    texts = attribute_docs(Trial)
    for field in dataclasses.fields(Trial):
        kind = str(field.type).replace("|", "\\|")
        yield f"| `{field.name}` | `{kind}` | {texts[field.name]} |".replace("``", "`")
