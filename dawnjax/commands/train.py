"""`dawnjax train`: one trial of an experiment, to its target."""

import shlex
from pathlib import Path

from dawnjax.commands.answer import Answer
from dawnjax.commands.told_run import ToldRun, told_run
from dawnjax.config.command_line import with_experiment_flag
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.runs.clock import RunClock

RESULT = ToldRun

_REASONS = {
    ExitStatus.BUDGET_SPENT: "the budget is spent and the target not reached",
    ExitStatus.DIVERGED: "the loss was not finite",
    ExitStatus.INTERRUPTED: "interrupted; the same command resumes",
}


def main(argv: list[str]) -> Answer:
    clock = RunClock()
    argv = with_experiment_flag(argv)
    request, positional = parse_request("train", argv)
    if positional:
        raise ConfigError(f"{positional[0]!r} is not a flag; write --name=value")
    # Imported here: a wrong flag is answered before JAX is loaded to train.
    from dawnjax import api
    from dawnjax.cluster import processes
    from dawnjax.train import train_to_target

    status, run_dir = train_to_target(request, clock, argv)
    if status == ExitStatus.BUDGET_SPENT and request.experiment.name.endswith("_tiny"):
        # Two steps are no try at a target: what was asked is whether all of it runs.
        status = ExitStatus.DONE
    if not processes.is_first():
        return Answer(status=status)
    new_dir = [] if request.options.run_dir else [f"--run_dir={run_dir}"]
    return Answer(
        result=told_run(api.load_run(run_dir), run_dir),
        status=status,
        reasons=[_REASONS[status]] if status in _REASONS else (),
        next=_next(status, argv + new_dir, run_dir),
    )


def _next(status: ExitStatus, argv: list[str], run_dir: Path) -> list[str]:
    from dawnjax.profile.captured import CAPTURE_FILE

    if status == ExitStatus.INTERRUPTED:
        return [shlex.join(["dawnjax", "train", *argv])]
    commands = [["report", str(run_dir), f"--out={run_dir / 'page'}"]]
    if any(run_dir.glob(f"profile/process_*/*/{CAPTURE_FILE}")):
        commands.insert(0, ["profile", str(run_dir)])
    if status == ExitStatus.DONE:
        commands.insert(0, ["evaluate", str(run_dir)])
    return [shlex.join(["dawnjax", *command]) for command in commands]
