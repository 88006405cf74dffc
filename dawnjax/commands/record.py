"""`dawnjax record`: whole runs as one program each; their time is not a time to accuracy."""

import dataclasses
import functools
from pathlib import Path
from typing import cast

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.config.command_line import with_experiment_flag
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError, ExitStatus

_OPTIONS = ("mesh", "compile_cache_dir")
"""The run options that record mode has."""

_DESCRIPTION = """
Trains an experiment's whole schedule, final evaluation included, as one compiled program, for one
seed after another, and writes each seed's accuracy and time. The time compares with the CIFAR-10
speed records. It is not a time to accuracy, and `dawnjax report` refuses it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seed:
    """The run of one seed.

    Attributes:
      time_seconds: Training time in record mode, which is not a time to accuracy.
      reached: Whether its one evaluation reached the target.
      metrics: What that evaluation measured, by name.
    """

    seed: int
    time_seconds: float
    reached: bool
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Runs in record mode, each a whole schedule as one program.

    Attributes:
      file: The record that was written, with all facts.
      metric: The target's metric.
      mean_quality: Its mean over the seeds.
      mean_time_seconds: Mean training time in record mode, which is not a time to accuracy.
      num_reached: Seeds that reached the target.
      num_diverged: Seeds with a loss that is not finite.
    """

    experiment: str
    file: str
    num_steps: int
    num_devices: int
    device_kind: str
    compile_seconds: float
    metric: str
    mean_quality: float
    mean_time_seconds: float
    num_reached: int
    num_diverged: int
    seeds: tuple[Seed, ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    argv = with_experiment_flag(argv)
    record_flags = flags.FlagValues()
    number = functools.partial(flags.DEFINE_integer, flag_values=record_flags)
    number("seeds", 1, "Number of seeds to run, from --seed on.", 1)
    out_help = "The file to write (default: record_EXPERIMENT.json)."
    flags.DEFINE_string("out", "", out_help, flag_values=record_flags)
    request, positional = parse_request(
        "record", argv, only=_OPTIONS, more=record_flags, description=_DESCRIPTION
    )
    if positional:
        raise ConfigError(f"{positional[0]!r} is not a flag; write --name=value")
    trials, out = cast(int, record_flags["seeds"].value), cast(str, record_flags["out"].value)
    path = Path(out or f"record_{request.experiment.name}.json")
    if path.is_dir():
        raise ConfigError(f"--out={path} is a directory; name a file")
    # Imported here: a wrong flag is answered before JAX is loaded to train.
    from dawnjax import record_mode

    runs, facts = record_mode.prepare(request)
    print(
        f"{facts['num_steps']} steps on {facts['num_devices']} x {facts['device_kind']}; compiled "
        f"in {runs.compile_seconds:.2f} s (cache {runs.cache}), set up in "
        f"{runs.setup_seconds:.2f} s",
        flush=True,
    )
    results, name = [], facts["metric"]
    metric = next(metric for metric in request.experiment.task.metrics if metric.name == name)
    for seed in range(request.seed, request.seed + trials):
        result = runs.run(seed)
        results.append(result)
        record_mode.write(path, facts, results)
        quality = metric.text(result.metrics[name])
        print(f"seed {seed:4}  {result.time_seconds:8.4f} s  {name} {quality}", flush=True)
    totals = record_mode.summary(results, name, runs.compile_seconds)
    print(
        f"{trials} seeds, training time in record mode (not a time to accuracy): mean "
        f"{totals['time_mean_seconds']:.4f} s, with compilation "
        f"{totals['time_with_compilation_seconds']:.2f} s; mean {name} "
        f"{metric.text(totals[f'{name}_mean'])}, target reached by {totals['num_reached']}\n{path}"
    )
    status, reasons = ExitStatus.DONE, []
    if totals["num_diverged"]:
        status, reasons = ExitStatus.DIVERGED, [f"{totals['num_diverged']} seeds diverged"]
    elif not totals["num_reached"]:
        status, reasons = ExitStatus.BUDGET_SPENT, ["no seed reached the target"]
    result = Result(
        experiment=request.experiment.name,
        file=str(path),
        num_steps=facts["num_steps"],
        num_devices=facts["num_devices"],
        device_kind=facts["device_kind"],
        compile_seconds=runs.compile_seconds,
        metric=name,
        mean_quality=totals[f"{name}_mean"],
        mean_time_seconds=totals["time_mean_seconds"],
        num_reached=totals["num_reached"],
        num_diverged=totals["num_diverged"],
        seeds=records.convert(records.plain(results), tuple[Seed, ...], others=True),
    )
    return Answer(result=result, status=status, reasons=reasons)
