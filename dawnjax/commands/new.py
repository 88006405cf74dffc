"""`dawnjax new`: a complete file for your own experiment."""

import dataclasses
import re
import shlex
import sys
from importlib import resources
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import ConfigError
from dawnjax.runs.directory import names_a_file

_KINDS = ("classification", "regression")
"""Files in `dawnjax.config.templates`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The file that was written."""

    file: str


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    text = (
        "classification: your own model on the digits that come with DawnJAX; regression: your "
        "own data, model and task."
    )
    flags.DEFINE_enum("kind", "classification", _KINDS, text, flag_values=flag_values)
    names = command_line.parse(
        "new",
        flag_values,
        argv,
        f"dawnjax new NAME [--kind={'|'.join(_KINDS)}]",
        "Writes NAME.py: a complete experiment in one file, which trains in a few seconds.\n"
        "docs/extending.md explains each part.",
    )
    name = command_line.one(names, "name")
    template = resources.files("dawnjax.config.templates") / f"{flag_values['kind'].value}.py"
    path = write_new(Path(name), template.read_text())
    train = shlex.join(["dawnjax", "train", str(path)])
    text = f"wrote {path}; train it with\n\n    {train}"
    return Answer(result=Result(file=str(path)), text=text, next=[train])


def write_new(path: Path, template: str) -> Path:
    """Write an experiment's file under its name; `ConfigError` if that cannot be."""
    path = path.with_suffix(".py")
    if path.exists():
        raise ConfigError(f"{path} exists already; choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}")
    name = path.stem
    if not names_a_file(name) or not name.isidentifier():
        raise ConfigError(f"{name!r} cannot name an experiment: use letters, digits and '_'")
    if name in experiment_names() or name in sys.stdlib_module_names:
        raise ConfigError(
            f"{name!r} is already an experiment or a Python module; choose another name"
        )
    records.write(path, re.sub(r'(?m)^    name="\w+"', f'    name="{name}"', template))
    return path
