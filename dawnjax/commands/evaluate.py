"""`dawnjax evaluate`: a run's checkpoint, measured on the whole evaluation split."""

import dataclasses
import json
import sys
from pathlib import Path

from absl import flags

from dawnjax.commands import command_line
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.experiment import Experiment, RunOptions, from_json
from dawnjax.experiment_flags import FlagTree
from dawnjax.run_directory import RunDirectory, read_record

_OPTIONS = ("mesh", "data_placement", "processes", "checkpoint", "compile_cache_dir")
"""The run options that an evaluation has."""


def main(argv: list[str]) -> int:
    """Runs the command; gives its exit status."""
    flag_values = flags.FlagValues()
    flags.DEFINE_string(
        "data_dir", "", "Where the data lies, if not where the run had it.", flag_values=flag_values
    )
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS)
    options.define(flag_values)
    try:
        paths = command_line.parse("evaluate", flag_values, argv)
    except command_line.HelpRequested:
        text = command_line.help_text(
            "dawnjax evaluate RUN_DIR [--FLAG=VALUE...]",
            "Restores the newest checkpoint that verifies and measures the whole evaluation\n"
            "split. Prints one line of JSON: the step and the metrics.",
            flag_values,
        )
        raise command_line.HelpRequested(text) from None
    if len(paths) != 1:
        raise ConfigError(f"one run directory is needed, {len(paths)} given")
    directory = RunDirectory(Path(paths[0]))
    record = read_record(directory)
    if record is None:
        raise ConfigError(f"{directory.path} is no run directory: it has no experiment.json")
    experiment = from_json(Experiment, record["experiment"])
    data_dir = flag_values["data_dir"].value
    if data_dir and not hasattr(experiment.data, "data_dir"):
        raise ConfigError(f"--data_dir: {experiment.data.TAG} is read from no directory")
    if data_dir:
        experiment = dataclasses.replace(
            experiment, data=dataclasses.replace(experiment.data, data_dir=data_dir)
        )
    return _evaluate(directory, experiment, record["identity"], options.value(flag_values))


def _evaluate(
    directory: RunDirectory, experiment: Experiment, identity: str, options: RunOptions
) -> int:
    # Imported here: wrong use is answered before JAX is loaded to compute.
    import jax

    from dawnjax import compilation, processes
    from dawnjax.checkpoint import Checkpoints
    from dawnjax.evaluation import EvaluationFeed, evaluate, reaches
    from dawnjax.feed import input_shapes
    from dawnjax.mesh import make_mesh
    from dawnjax.programs import compile_evaluation, state_shapes
    from dawnjax.stages import span_of_last
    from dawnjax.train import IN_FLIGHT
    from dawnjax.train_step import make_recipe, platform_of

    spec = experiment.data.spec()
    if experiment.identity(spec) != identity:
        raise ConfigError(
            f"{directory.path} was trained on other data or by another version of the experiment"
        )
    compilation.configure(options.compile_cache_dir)
    processes.join(options.processes)
    mesh = make_mesh(options.mesh, jax.devices())
    recipe = make_recipe(experiment, spec, mesh)
    checkpoints = Checkpoints(
        options.checkpoint.directory or str(directory.checkpoints),
        keep=1,
        warn=lambda message: print(f"dawnjax evaluate: warning: {message}", file=sys.stderr),
    )
    restored = checkpoints.restore_newest(state_shapes(recipe))
    if restored is None:
        raise RunError(f"{directory.path} has no checkpoint")
    # As the run itself evaluated it, where its image size changes on the way.
    span = span_of_last(experiment.spans(spec), restored.step)
    recipe = make_recipe(experiment, spec, mesh, span.index)
    shapes = input_shapes(recipe.experiment, spec, options, mesh)
    programs = compile_evaluation(recipe, shapes, lambda *_: None)
    feed = EvaluationFeed(shapes, mesh, experiment.data.load("eval"))
    in_flight = IN_FLIGHT[platform_of(mesh)]
    metrics = evaluate(recipe, programs, restored.state, feed, in_flight)
    checkpoints.close()
    if jax.process_index() == 0:
        row = {
            "step": restored.step,
            "examples": spec.num_eval_examples,
            **metrics,
            "reached": reaches(experiment.targets, metrics),
        }
        print(json.dumps(row))
    return ExitStatus.DONE
