"""Pages of the site that are made from the code: flags, fields of `result.json`, exit statuses.

MkDocs calls `on_files` (mkdocs.yml, `hooks`); nothing is written into the tree.
"""

import dataclasses
import importlib
import io
from collections.abc import Iterator
from contextlib import redirect_stdout

from mkdocs.config.defaults import MkDocsConfig  # pyright: ignore[reportMissingImports]
from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

from dawnjax.__main__ import COMMANDS
from dawnjax.config.command_line import HelpRequested
from dawnjax.config.flag_tree import attribute_docs
from dawnjax.errors import ExitStatus
from dawnjax.trials.trial import Trial


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    pages = {"commands": commands(), "result": result(), "exit_statuses": exit_statuses()}
    for name, lines in pages.items():
        text = "\n".join(lines) + "\n"
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


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


def result() -> Iterator[str]:
    """The fields of `result.json`, as the class that writes it documents them."""
    yield "# Fields of result.json\n\nTimes are seconds, fractions 0 to 1.\n"
    yield "| field | type | meaning |\n|---|---|---|"
    texts = attribute_docs(Trial)
    for field in dataclasses.fields(Trial):
        kind = str(field.type).replace("|", "\\|")
        yield f"| `{field.name}` | `{kind}` | {texts[field.name]} |".replace("``", "`")


def exit_statuses() -> Iterator[str]:
    """Meaning of each exit status."""
    yield "# Exit statuses\n\n| status | meaning |\n|---|---|"
    texts = attribute_docs(ExitStatus)
    for status in ExitStatus:
        yield f"| {int(status)} | {texts[status.name]} |"
