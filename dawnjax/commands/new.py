"""`dawnjax new`: a complete file of an own experiment, to begin from."""

import importlib.machinery
import re
import shlex
import sys
from importlib import resources
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.config import command_line, own_sources
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import ConfigError, ExitStatus

_TEMPLATES = {
    ("classification", "nnx"): "classification.py",
    ("classification", "linen"): "classification_linen.py",
    ("regression", "nnx"): "regression.py",
}
"""File in `dawnjax.config.templates` by task and model."""


def main(argv: list[str]) -> int:
    tasks, models = (list(dict.fromkeys(key[place] for key in _TEMPLATES)) for place in (0, 1))
    flag_values = flags.FlagValues()
    text = (
        "classification: a model of your own on the digits that come with DawnJAX; regression: "
        "data, model and task, all your own."
    )
    flags.DEFINE_enum("task", "classification", tasks, text, flag_values=flag_values)
    text = "The library of the model: Flax NNX or Linen."
    flags.DEFINE_enum("model", "nnx", models, text, flag_values=flag_values)
    names = command_line.parse(
        "new",
        flag_values,
        argv,
        "dawnjax new NAME [--task=classification|regression] [--model=nnx|linen]",
        "Writes NAME.py: an experiment in one file, with classes of its own, that trains as it\n"
        "stands in a few seconds. docs/extending.md explains each part.",
    )
    if len(names) != 1:
        raise ConfigError(f"one name is needed, and {len(names)} were given: dawnjax new NAME")
    path = Path(names[0] if names[0].endswith(".py") else f"{names[0]}.py")
    task, model = (str(flag_values[name].value) for name in ("task", "model"))
    _write(path, _text(path.stem, task, model))
    print(f"wrote {path}; train it with\n\n    dawnjax train {shlex.quote(str(path))}")
    return ExitStatus.DONE


def _text(name: str, task: str, model: str) -> str:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", name) is None:
        raise ConfigError(
            f"{name!r} cannot name an experiment: up to 80 letters, digits and '_' are needed, "
            "with a letter first"
        )
    if name in experiment_names():
        raise ConfigError(f"{name!r} is an experiment of this package; choose another name")
    if _is_installed(name):
        raise ConfigError(
            f"{name!r} is an installed module, and the file would hide it; choose another name"
        )
    if (task, model) not in _TEMPLATES:
        raise ConfigError(f"there is no file for --task={task} with --model={model}; leave out one")
    text = (resources.files("dawnjax.config.templates") / _TEMPLATES[task, model]).read_text()
    return re.sub(r'(?m)^    name="\w+"', f'    name="{name}"', text)


def _is_installed(name: str) -> bool:
    if name in sys.stdlib_module_names:
        return True
    spec = importlib.machinery.PathFinder.find_spec(name)
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    return any(own_sources.is_installed(place) for place in places if place)


def _write(path: Path, text: str) -> None:
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} exists already; choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}")
    records.write(path, text)
