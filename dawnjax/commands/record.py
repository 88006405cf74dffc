"""`dawnjax record`: whole runs as one program each; their time is no time to accuracy."""

import functools
from pathlib import Path
from typing import cast

from absl import flags

from dawnjax.config.command_line import with_experiment_flag
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError, ExitStatus

_OPTIONS = ("mesh", "compile_cache_dir")
"""The run options that record mode has."""

_DESCRIPTION = """
Trains an experiment's whole schedule as one compiled program, the final evaluation included, for
one seed after another, and writes each seed's accuracy and time. This training time of a run of
fixed length is comparable with the CIFAR-10 speed records; it is not a time to accuracy, and
`dawnjax report` does not take it for one.
"""


def main(argv: list[str]) -> int:
    argv = with_experiment_flag(argv)
    record_flags = flags.FlagValues()
    number = functools.partial(flags.DEFINE_integer, flag_values=record_flags)
    number("trials", 1, "Seeds to run, from --seed on.", 1)
    out_help = "The file to write; record_EXPERIMENT.json if not given."
    flags.DEFINE_string("out", "", out_help, flag_values=record_flags)
    request, positional = parse_request(
        "record", argv, only=_OPTIONS, more=record_flags, description=_DESCRIPTION
    )
    if positional:
        raise ConfigError(f"{positional[0]!r} is no flag; write --name=value")
    trials, out = cast(int, record_flags["trials"].value), cast(str, record_flags["out"].value)
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
    if totals["num_diverged"]:
        return ExitStatus.DIVERGED
    return ExitStatus.DONE if totals["num_reached"] else ExitStatus.BUDGET_SPENT
