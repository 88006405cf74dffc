"""Request of a command line that runs an experiment: a typed flag for each leaf field.

Parsing has two phases: first the experiment and its variants, then the flags that they have.
"""

import dataclasses
import typing
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax.config import command_line
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment import Experiment
from dawnjax.config.experiment_modules import (
    differences,
    experiment_names,
    is_file,
    load_experiment,
    with_own_claims,
)
from dawnjax.config.flag_tree import FlagTree
from dawnjax.config.own_files import file_of, own_code
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.limits import check_fields
from dawnjax.text import without_secrets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Experiment, options and seed that a command line asks for; `experiment` has the overrides.

    Attributes:
      overrides: The given flags, with their values as JSON. Where a file's experiment has a
        built-in one's name, also the fields in which the two differ.
    """

    experiment: Experiment
    overrides: dict[str, Any]
    seed: int
    options: RunOptions
    experiment_file: Path | None = None


def parse_request(
    command: str,
    argv: list[str],
    *,
    only: tuple[str, ...] | None = None,
    more: flags.FlagValues | None = None,
    description: str | None = None,
) -> tuple[Request, list[str]]:
    """Read a command line that runs an experiment; returns the request and positional arguments.

    Args:
      only: Run options that the command has; None for all.
      more: Flags of the command's own; their values are set in it.
      description: Purpose of the command, for its help; None takes `train`'s.
    """
    early = flags.FlagValues()  # the experiment decides which other flags there are
    _define_trial(early)
    command_line.known(early, argv)
    name, is_tiny = early["experiment"].value, bool(early["tiny"].value)
    flag_values = flags.FlagValues() if more is None else more
    _define_trial(flag_values)
    options = FlagTree(RunOptions, RunOptions(), argv, only=only)
    options.define(flag_values)
    recipe, experiment = None, None
    if name is not None:
        experiment = load_experiment(name, is_tiny=is_tiny)
        try:
            recipe = FlagTree(Experiment, experiment, argv)
            recipe.define(flag_values)
        # A user's file is untyped Python: absl finds a wrong default only here.
        except (TypeError, AttributeError, flags.Error) as error:
            text = " ".join(str(error).split())
            raise ConfigError(f"{name}: a field of EXPERIMENT has the wrong type: {text}") from None
    fields = "" if name else "\n\n--experiment=NAME --help shows the experiment's own flags too."
    usage = f"dawnjax {command} --experiment=NAME [--FLAG=VALUE...]"
    positional = command_line.parse(
        command, flag_values, argv, usage, (description or _DESCRIPTION) + fields
    )
    if recipe is None or experiment is None or name is None:
        raise ConfigError(f"--experiment is missing; known: {', '.join(experiment_names())}")
    with own_code("the experiment's fields"):
        changed: Experiment = recipe.value(flag_values)
    if not is_tiny:  # what a tiny variant says of its target speaks of its two steps
        changed = with_own_claims(changed, [experiment])
    overrides = differences(changed, is_tiny=is_tiny) if is_file(name) else {}
    overrides |= {
        flag: to_json(flag_values[flag].value)
        for flag in recipe.flag_names()
        if flag_values[flag].present
    }
    run_options = options.value(flag_values)
    check_fields(changed)
    check_fields(run_options)
    request = Request(
        experiment=changed,
        overrides=without_secrets(overrides),
        seed=typing.cast(int, flag_values["seed"].value),
        options=run_options,
        experiment_file=Path(name) if is_file(name) else None,
    )
    return request, positional


def request_of(
    experiment: str | Experiment, *, seed: int, run_dir: str, options: RunOptions | None
) -> Request:
    """Request made by Python, without a command line."""
    name = experiment if isinstance(experiment, str) else experiment.name
    if isinstance(experiment, str):
        value = load_experiment(experiment)
    else:
        others = [load_experiment(other) for other in experiment_names()]
        value = with_own_claims(experiment, others)
        file_of(value)  # refuses a notebook's classes before anything is built
    # `True` is an int in Python, and would train seed 1.
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ConfigError(f"seed={seed!r} must be a whole number from 0 to 2**31 - 1")
    run_options = dataclasses.replace(options or RunOptions(), run_dir=run_dir)
    check_fields(value)
    check_fields(run_options)
    return Request(
        experiment=value,
        overrides=without_secrets(differences(value, is_tiny=value.name.endswith("_tiny"))),
        seed=seed,
        options=run_options,
        experiment_file=Path(name) if isinstance(experiment, str) and is_file(name) else None,
    )


_DESCRIPTION = (
    "Trains one trial of an experiment to its target quality and reports how long it took."
)


def _define_trial(flag_values: flags.FlagValues) -> None:
    named = "The experiment: a name from `dawnjax list`, or a path to a .py file."
    flags.DEFINE_string("experiment", None, named, flag_values=flag_values)
    seed = "The trial's seed for initial parameters, order and augmentation."
    flags.DEFINE_integer("seed", 0, seed, 0, 2**31 - 1, flag_values=flag_values)
    tiny = "Train the tiny variant: two steps on made-up data, to test a machine."
    flags.DEFINE_boolean("tiny", False, tiny, flag_values=flag_values)
