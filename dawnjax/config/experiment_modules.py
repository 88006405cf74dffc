"""Experiments by name, or from a file that defines `EXPERIMENT`.

The run code finds experiments here alone, and imports none.
"""

import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dawnjax.config import command_line, own_files
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment import Experiment
from dawnjax.config.flag_tree import LEAF_TYPES
from dawnjax.config.techniques import Technique
from dawnjax.config.tiny import tiny_of
from dawnjax.errors import ConfigError
from dawnjax.runs.directory import check_name, flatten


def experiment_names() -> list[str]:
    package = importlib.import_module("dawnjax.experiments")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def load_experiment(name: str, *, is_tiny: bool = False) -> Experiment:
    """Load an experiment by its name, or from a Python file that defines `EXPERIMENT`.

    `is_tiny` takes its tiny variant: the module's `TINY`, or else the one that its model's `tiny()`
    gives. ConfigError if there is none, with the nearest name.
    """
    module = _module_of(name)
    experiment = getattr(module, "EXPERIMENT", None)
    if not isinstance(experiment, Experiment):
        raise ConfigError(f"{name} does not define EXPERIMENT = Experiment(...)")
    if is_tiny:
        tiny = getattr(module, "TINY", None)
        experiment = tiny if isinstance(tiny, Experiment) else tiny_of(experiment)
    if not is_file(name):
        return experiment
    own_files.check_classes(experiment)
    _refuse_other_values(name, experiment)
    check_name(f"{name}: name", str(experiment.name))
    # `dataclasses.replace` on a built-in experiment copies what it says of its target.
    return with_own_claims(experiment, [load_experiment(other) for other in experiment_names()])


def load_techniques(name: str) -> tuple[Technique, ...]:
    """Techniques that an experiment's module declares; none where it declares none."""
    techniques = getattr(_module_of(name), "TECHNIQUES", ())
    if not isinstance(techniques, tuple) or not all(isinstance(t, Technique) for t in techniques):
        raise ConfigError(f"{name}: TECHNIQUES must be a tuple of Technique(name, without)")
    return techniques


def _module_of(name: str) -> types.ModuleType:
    if is_file(name):
        return own_files.module_of_file(Path(name))
    if name in experiment_names():
        return importlib.import_module(f"dawnjax.experiments.{name}")
    near = command_line.closest(name, experiment_names())
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(experiment_names())}"
    raise ConfigError(
        f"no experiment {name!r}; {hint} (or give a path to a .py file that defines EXPERIMENT)"
    )


def _refuse_other_values(file: str, experiment: Experiment) -> None:
    try:
        fields = flatten(to_json(experiment))
    except (TypeError, NameError) as error:  # an annotation that is none
        raise ConfigError(f"{file}: a field of EXPERIMENT: {error}; {LEAF_TYPES}") from None
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, bool | int | float | str | None):
                kind = type(item).__name__
                raise ConfigError(f"{file}: {name} holds a value of type {kind}; {LEAF_TYPES}")


def classes_of_file(name: str) -> dict[str, list[type]]:
    """Classes that the experiments of a file chose, by field; executes the file."""
    module = own_files.module_of_file(Path(name))
    experiments = [getattr(module, constant, None) for constant in ("EXPERIMENT", "TINY")]
    experiments = [item for item in experiments if isinstance(item, Experiment)]
    if not experiments:
        raise ConfigError(f"{name} does not define EXPERIMENT = Experiment(...)")
    return {field: [type(getattr(e, field)) for e in experiments] for field in own_files.CHOSEN}


def is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def with_own_claims(experiment: Experiment, others: Sequence[Experiment]) -> Experiment:
    """Drop from a changed experiment the claims about its source.

    Observations hold for one recipe; the reason for a target holds for the target and its data.
    """

    def targets(one: Experiment) -> Any:
        return one.targets, one.data.TAG, getattr(one.data, "kept_classes", ())

    recipe = experiment.recipe_fields()
    sources = [other for other in others if other.observations == experiment.observations]
    if sources and all(other.recipe_fields() != recipe for other in sources):
        experiment = dataclasses.replace(experiment, observations=())
    sources = [other for other in others if other.target_note == experiment.target_note]
    if sources and all(targets(other) != targets(experiment) for other in sources):
        experiment = dataclasses.replace(experiment, target_note="")
    return experiment


def differences(experiment: Experiment, *, is_tiny: bool) -> dict[str, Any]:
    """Fields in which a file's experiment differs from the built-in one of its name."""
    name = experiment.name.removesuffix("_tiny") if is_tiny else experiment.name
    if name not in experiment_names():
        return {}
    fields = flatten(experiment.recipe_fields())
    changed = changed_fields(load_experiment(name, is_tiny=is_tiny), experiment)
    return {field.removesuffix(".tag"): fields.get(field) for field in changed}


def changed_fields(before: Experiment, after: Experiment) -> list[str]:
    old, new = flatten(before.recipe_fields()), flatten(after.recipe_fields())
    return [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
