"""`dawnjax infer`: latency and cost of a run's model, one example at a time."""

import datetime
import os
import platform
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax.config import command_line
from dawnjax.config.flag_tree import FlagTree
from dawnjax.config.run_options import MeshShape, RunOptions
from dawnjax.earlier_run import EarlierRun, add_run_flags, read_run, restore
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.input_pipeline.dataset import declared
from dawnjax.runs.directory import write_json
from dawnjax.tasks.task import Task
from dawnjax.text import escaped

SCHEMA_VERSION = 1

_USAGE = "dawnjax infer RUN_DIR [--examples=N] [--price_per_hour_usd=PRICE] [--FLAG=VALUE...]"
_DESCRIPTION = """
Restores the newest checkpoint that verifies on one device and answers examples of the evaluation
split one at a time, each when the one before is answered. Shows the mean, median and 99th
percentile of the latency, from the example on the host to its answer on the host, and what 10,000
of them cost at a price. Writes RUN_DIR/inference/<PLATFORM>-step<STEP>.json, which `dawnjax export
--format=dawnbench_inference` makes an entry of DAWNBench; with fewer examples than the split has,
<PLATFORM>-step<STEP>-<N>of<M>.json.
"""
_OPTIONS = ("checkpoint", "compile_cache_dir", "price_per_hour_usd")


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit status."""
    flag_values = flags.FlagValues()
    add_run_flags(flag_values)
    flags.DEFINE_integer(
        "examples",
        1000,
        "Examples that count; beyond the split's they come again.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "warm_up", 20, "Examples before them.", lower_bound=0, flag_values=flag_values
    )
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS)
    options.define(flag_values)
    paths = command_line.parse("infer", flag_values, argv, _USAGE, _DESCRIPTION)
    if len(paths) != 1:
        raise ConfigError(f"one run directory is needed, {len(paths)} given")
    run_options = options.value(flag_values)
    run_options.validate()
    data_dir, file = (str(flag_values[name].value or "") for name in ("data_dir", "experiment"))
    run = read_run(Path(paths[0]), data_dir, file)
    count, warm_up = (int(flag_values[name].value) for name in ("examples", "warm_up"))  # pyright: ignore[reportArgumentType]
    return _infer(run, run_options, count, warm_up)


def _infer(run: EarlierRun, options: RunOptions, num_examples: int, warm_up: int) -> int:
    # Imported here: wrong use is answered before JAX is loaded to compute.
    import jax

    from dawnjax import inference
    from dawnjax.evaluation import reaches
    from dawnjax.machine import compilation
    from dawnjax.machine.mesh import all_devices, make_mesh
    from dawnjax.runs import versions
    from dawnjax.train_step import platform_of

    experiment = run.experiment
    compilation.configure(options.compile_cache_dir)
    device = all_devices()[0]
    mesh = make_mesh(MeshShape(), [device])
    recipe, restored = restore(run, mesh, options, "infer")
    in_split = run.spec.num_eval_examples
    examples = {**experiment.data.load("eval")}
    answering = inference.make_answering(recipe, restored.state, examples)
    load_before = os.getloadavg()[0]
    seconds, answers, positions = inference.measure(answering, in_split, num_examples, warm_up)
    load_after = os.getloadavg()[0]
    latency = inference.latency(seconds)
    mean = sum(seconds) / len(seconds)
    price = options.price_per_hour_usd
    cost = inference.cost_usd(mean, price)
    quality = answering.quality(answers, positions)
    whole_split = len(answers) == in_split
    has_all = all(target.metric in quality for target in experiment.targets)
    reasons = {}
    if cost is None:
        reasons["cost_of_10000_usd"] = "no price: give --price_per_hour_usd"
    if not (whole_split and has_all):
        reasons["reached"] = (
            "not all metrics of the target are measured here"
            if whole_split
            else f"{len(answers)} of {in_split} examples were answered"
        )
    for percentile, least in inference.LEAST_EXAMPLES.items():
        if latency[percentile] is None:
            reasons[f"latency_seconds.{percentile}"] = (
                f"it needs {least} examples or more, and {num_examples} counted"
            )
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.record["run_id"],
        "experiment": experiment.name,
        "identity": run.record["identity"],
        "seed": run.record["seed"],
        "step": restored.step,
        "data": declared(experiment.data, run.spec),
        "model": experiment.model.TAG,
        "weights": experiment.evaluation.weights,
        "compute_dtype": experiment.compute_dtype,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": versions.installed(),
        "device": {
            "kind": device.device_kind,
            "platform": platform_of(mesh),
            "used": 1,
            "present": jax.device_count(),
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "load_before": load_before,
            "load_after": load_after,
        },
        "timed": answering.timed,
        "examples": num_examples,
        "warm_up_examples": warm_up,
        "latency_seconds": latency,
        "examples_per_second": 1 / mean,
        "price_per_hour_usd": price,
        "cost_of_10000_usd": cost,
        "distinct_examples": len(answers),
        "split_examples": in_split,
        "quality_of": f"{len(answers)} of {in_split} examples",
        "quality": quality,
        "metrics": [metric.to_json() for metric in experiment.task.metrics],
        "reached": reaches(experiment.targets, quality) if whole_split and has_all else None,
        "reasons": reasons,
    }
    name = f"{platform_of(mesh)}-step{restored.step}"
    if not whole_split:  # what is of all examples stays
        name += f"-{len(answers)}of{in_split}"
    file = run.directory.path / "inference" / f"{name}.json"
    write_json(file, record)
    print(escaped(_shown(record, experiment.task)))
    print(f"written: {file}")
    return ExitStatus.DONE


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _shown(record: dict[str, Any], task: Task) -> str:
    device, latency = record["device"], record["latency_seconds"]
    millis = {
        name: f"- ({record['reasons'][f'latency_seconds.{name}']})"
        if value is None
        else f"{1000 * value:.3f} ms"
        for name, value in latency.items()
    }
    cost = record["cost_of_10000_usd"]
    quality = ", ".join(
        f"{metric.name} {metric.text(record['quality'][metric.name])}"
        for metric in task.metrics
        if isinstance(record["quality"].get(metric.name), float)
    )
    lines = [
        f"{record['experiment']}, seed {record['seed']}, step {record['step']}, "
        f"{record['compute_dtype']}, on 1 of {device['present']} {device['kind']} devices "
        f"({device['processor']}, {device['cores']} cores, load {device['load_before']:.1f} to "
        f"{device['load_after']:.1f})",
        f"timed: {record['timed']}",
        f"latency of {record['examples']:,} examples after {record['warm_up_examples']:,}: mean "
        f"{millis['mean']}, p50 {millis['p50']}, p99 {millis['p99']}; "
        f"{record['examples_per_second']:,.1f} a second, one at a time",
        "cost of 10,000: "
        + (record["reasons"]["cost_of_10000_usd"] if cost is None else f"{cost:.6g} USD"),
        f"of {record['distinct_examples']:,} of {record['split_examples']:,} examples: {quality}",
    ]
    return "\n".join(lines)
