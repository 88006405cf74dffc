"""`dawnjax list`: the experiments, what they need and what was seen of them."""

import json
from pathlib import Path

from absl import flags
from rich.console import Console
from rich.table import Table

from dawnjax.commands import command_line
from dawnjax.config_json import to_json
from dawnjax.errors import ExitStatus
from dawnjax.experiment import Experiment, Observation
from dawnjax.experiment_flags import experiment_names, load_experiment


def main(argv: list[str]) -> int:
    """Runs the command; gives its exit status."""
    flag_values = flags.FlagValues()
    flags.DEFINE_boolean("json", False, "Print JSON, one object a line.", flag_values=flag_values)
    names = command_line.parse(
        "list",
        flag_values,
        argv,
        "dawnjax list [NAME|FILE.py...] [--json]",
        "Lists the experiments: target, model, data, and what trials of them gave where.",
    )
    experiments = [load_experiment(name) for name in names or experiment_names()]
    if flag_values["json"].value:
        for experiment in experiments:
            print(json.dumps(to_json(experiment)))
        return ExitStatus.DONE
    Console(highlight=False).print(_table(experiments))
    return ExitStatus.DONE


def _table(experiments: list[Experiment]) -> Table:
    table = Table()
    for title in ("experiment", "target", "model", "data", "seen"):
        table.add_column(title)
    for experiment in experiments:
        targets = " and ".join(
            f"{target.metric} {'>=' if target.direction == 'at_least' else '<='} {target.value:g}"
            for target in experiment.targets
        )
        table.add_row(
            experiment.name,
            targets + (f" ({experiment.target_note})" if experiment.target_note else ""),
            experiment.model.TAG,
            _data(experiment),
            "\n".join(map(_observation, experiment.observations)) or "not yet measured",
        )
    return table


def _data(experiment: Experiment) -> str:
    directory = getattr(experiment.data, "data_dir", None)
    if directory is None:
        return f"{experiment.data.TAG} (comes with DawnJAX)"
    place = Path(directory) if directory else "--data.data_dir"
    return f"{experiment.data.TAG} (from {place}; see dawnjax prepare --help)"


def _observation(observation: Observation) -> str:
    mean = observation.mean_time_to_accuracy_seconds
    time = "never reached" if mean is None else f"mean TTA {mean:.3g} s"
    return (
        f"{observation.hardware}, {observation.date}: {observation.reached} of "
        f"{observation.trials} reached, {time}, final quality {observation.quality:.4f}"
    )
