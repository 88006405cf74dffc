"""`dawnjax list`: the experiments, their needs and their observations."""

import dataclasses
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console

from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment import Experiment, Observation, Target
from dawnjax.config.experiment_modules import experiment_names, load_experiment
from dawnjax.config.observations import observations_of
from dawnjax.page.boxes import boxed
from dawnjax.page.table import Table, of_words
from dawnjax.tasks.task import find_metric

COLUMNS = 80
"""Where the output is not a terminal, whose width is not known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    """An experiment.

    Attributes:
      task: Tag of what is learnt and how that is scored.
      model: Tag of the architecture.
      data: Tag of the data set.
      comes_with_package: Whether the data need nothing of the user's.
      data_dir: Where a run looks for the data; empty for `--data.data_dir`, null without a folder.
      targets: What one evaluation must reach, all together.
      target_note: How the target was chosen, if that could flatter a result.
      observations: Results of trials, and their hardware.
      fields: All fields, by the names of their flags.
    """

    name: str
    task: str
    model: str
    data: str
    comes_with_package: bool
    data_dir: str | None
    targets: tuple[Target, ...]
    target_note: str
    observations: tuple[Observation, ...]
    fields: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The experiments."""

    experiments: tuple[Listed, ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    names = command_line.parse(
        "list",
        flag_values,
        argv,
        "dawnjax list [EXPERIMENT|FILE.py...]",
        "Lists the experiments: task, target, model, data, and results by hardware.",
    )
    experiments = [load_experiment(name) for name in names or experiment_names()]
    return Answer(
        result=Result(experiments=tuple(map(_listed, experiments))),
        text=_text(experiments),
        next=[shlex.join(["dawnjax", "train", name]) for name in names[:1]],
    )


def _listed(experiment: Experiment) -> Listed:
    directory = getattr(experiment.data, "data_dir", None)
    return Listed(
        name=experiment.name,
        task=experiment.task.TAG,
        model=experiment.model.TAG,
        data=experiment.data.TAG,
        comes_with_package=directory is None,
        data_dir=directory,
        targets=experiment.targets,
        target_note=experiment.target_note,
        observations=tuple(observations_of(experiment)),
        fields=to_json(experiment),
    )


def _text(experiments: list[Experiment]) -> str:
    if sys.stdout.isatty():
        console = Console(highlight=False)
        with console.capture() as captured:
            console.print(boxed(_table(experiments), lines=True))
        return captured.get().rstrip("\n")
    wrap = textwrap.TextWrapper(
        COLUMNS,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = []
    for experiment in experiments:
        lines.append(experiment.name)
        lines += (wrap.fill(f"{title}: {text}") for title, text in _facts(experiment))
    return "\n".join(lines)


def _table(experiments: list[Experiment]) -> Table:
    rows = []
    for experiment in experiments:
        facts = _facts(experiment)
        rows.append((experiment.name, "\n".join(f"{title}: {text}" for title, text in facts)))
    heads = ["experiment", "what it is, and its results by hardware"]
    return of_words(heads, rows, texts=(0, 1))


def _facts(experiment: Experiment) -> list[tuple[str, str]]:
    targets = " and ".join(
        f"{target.metric} {'>=' if target.direction == 'at_least' else '<='} {target.value:g}"
        for target in experiment.targets
    )
    seen = [("seen", _observation(seen, experiment)) for seen in observations_of(experiment)]
    return [
        ("task", experiment.task.TAG),
        ("target", targets + (f" ({experiment.target_note})" if experiment.target_note else "")),
        ("model", experiment.model.TAG),
        ("data", _data(experiment)),
        *(seen or [("seen", "not yet measured")]),
    ]


def _data(experiment: Experiment) -> str:
    directory = getattr(experiment.data, "data_dir", None)
    if directory is None:
        return f"{experiment.data.TAG} (comes with DawnJAX)"
    place = Path(directory) if directory else "--data.data_dir"
    return f"{experiment.data.TAG} (from {place}; see dawnjax prepare --help)"


def _observation(observation: Observation, experiment: Experiment) -> str:
    metric = find_metric(experiment.task, experiment.targets[0].metric)
    quality = f"{observation.quality:g}" if metric is None else metric.text(observation.quality)
    mean = observation.mean_time_to_accuracy_seconds
    of = "" if observation.reached == observation.trials else " of those"
    digits = 1 if mean is not None and mean < 100 else 0
    time = "never reached" if mean is None else f"mean TTA{of} {mean:,.{digits}f} s"
    return (
        f"{observation.hardware}, {observation.date}: {observation.reached} of "
        f"{observation.trials} reached, {time}, final quality {quality}"
    )
