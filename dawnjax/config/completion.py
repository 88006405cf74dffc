"""Commands, experiments and flags that a shell completes, by argcomplete."""

import argparse
import importlib
import os
import re
from collections.abc import Mapping

from dawnjax.config import command_line
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import ConfigError


def answer(commands: Mapping[str, tuple[str, str]]) -> None:
    """Print what can follow the line that the shell has, and end the process.

    Args:
      commands: Module in `dawnjax.commands` and summary of each command.
    """
    import argcomplete  # pyright: ignore[reportMissingImports]

    parser = argparse.ArgumentParser("dawnjax", add_help=False)
    parser.add_argument("command", choices=commands)
    _, *typed = os.environ.get("COMP_LINE", "").split() or [""]
    if typed and typed[0] in commands:
        # A file of the user's is not executed for a completion.
        named = [word.removeprefix("--experiment=") for word in typed[1:]]
        names = experiment_names()
        parser.add_argument("experiment", nargs="*", choices=names)
        module = importlib.import_module(f"dawnjax.commands.{commands[typed[0]][0]}")
        for flag, kind in _flags(module, [name for name in named if name in names][:1]):
            values = names if flag == "experiment" else kind.split("|") if "|" in kind else None
            takes = {"action": "store_true"} if kind == "bool" else {"choices": values}
            parser.add_argument(f"--{flag}", **takes)  # pyright: ignore[reportArgumentType]
    argcomplete.autocomplete(parser)


def _flags(module: object, experiment: list[str]) -> list[tuple[str, str]]:
    """Names and types of a command's flags, as its `--help` lists them."""
    arguments = [f"--experiment={name}" for name in experiment]
    try:
        module.main([*arguments, "--help"])  # pyright: ignore[reportAttributeAccessIssue]
    except (command_line.HelpRequested, ConfigError) as text:
        return re.findall(r"^  --(\S+)  <([^>]*)>", str(text), re.MULTILINE)
    return []  # `launch` prints the help of what it starts
