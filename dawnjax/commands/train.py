"""`dawnjax train`: one trial of an experiment, to its target."""

from dawnjax.config.command_line import with_experiment_flag
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.runs.clock import RunClock


def main(argv: list[str]) -> int:
    clock = RunClock()
    argv = with_experiment_flag(argv)
    request, positional = parse_request("train", argv)
    if positional:
        raise ConfigError(f"{positional[0]!r} is no flag; write --name=value")
    # Imported here: a wrong flag is answered before JAX is loaded to train.
    from dawnjax.train import train_to_target

    status = train_to_target(request, clock, argv)
    if status == ExitStatus.BUDGET_SPENT and request.experiment.name.endswith("_tiny"):
        # Two steps are no try at a target: what was asked is whether all of it runs.
        return ExitStatus.DONE
    return status
