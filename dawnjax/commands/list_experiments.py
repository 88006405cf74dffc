"""`dawnjax list`: the experiments, their needs and their observations."""

import sys
import textwrap
from pathlib import Path

from absl import flags
from rich.console import Console

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment import Experiment, Observation
from dawnjax.config.experiment_modules import experiment_names, load_experiment
from dawnjax.config.observations import observations_of
from dawnjax.errors import ExitStatus
from dawnjax.page.boxes import boxed
from dawnjax.page.table import Table, of_words
from dawnjax.tasks.task import find_metric

COLUMNS = 80
"""Where the output is no terminal, whose width is not known."""


def main(argv: list[str]) -> int:
    flag_values = flags.FlagValues()
    flags.DEFINE_boolean("json", False, "Print JSON, one object a line.", flag_values=flag_values)
    names = command_line.parse(
        "list",
        flag_values,
        argv,
        "dawnjax list [NAME|FILE.py...] [--json]",
        "Lists the experiments: task, target, model, data, and what trials of them gave where.",
    )
    experiments = [load_experiment(name) for name in names or experiment_names()]
    if flag_values["json"].value:
        for experiment in experiments:
            seen = [records.plain(one) for one in observations_of(experiment)]
            print(records.json_text({**to_json(experiment), "observations": seen}))
        return ExitStatus.DONE
    if sys.stdout.isatty():
        Console(highlight=False).print(boxed(_table(experiments), lines=True))
        return ExitStatus.DONE
    wrap = textwrap.TextWrapper(
        COLUMNS,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for experiment in experiments:
        print(experiment.name)
        for title, text in _facts(experiment):
            print(wrap.fill(f"{title}: {text}"))
    return ExitStatus.DONE


def _table(experiments: list[Experiment]) -> Table:
    rows = []
    for experiment in experiments:
        facts = _facts(experiment)
        rows.append((experiment.name, "\n".join(f"{title}: {text}" for title, text in facts)))
    heads = ["experiment", "what it is, and what trials of it gave where"]
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
