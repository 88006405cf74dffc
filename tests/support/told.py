"""What a command answers with `--json`; run as a program, it writes the schemas of docs/schemas."""

import importlib
import json
from pathlib import Path
from typing import Any

from dawnjax.__main__ import COMMANDS, main
from dawnjax.commands import answer

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def schema_text(command: str) -> str:
    module = importlib.import_module(f"dawnjax.commands.{COMMANDS[command][0]}")
    return json.dumps(answer.schema(command, module.RESULT), indent=1) + "\n"


def result_in(output: str) -> Any:
    """The record in a command's standard output."""
    return json.loads(output)["result"]


def told(capsys: Any, *argv: str, status: int = 0) -> Any:
    """Run a command with `--json`; returns its record."""
    capsys.readouterr()
    assert main([*argv, "--json"]) == status
    return result_in(capsys.readouterr().out)


if __name__ == "__main__":
    for name in COMMANDS:
        (SCHEMAS / f"{name}.json").write_text(schema_text(name))
