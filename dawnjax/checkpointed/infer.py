"""A run's model asked one example at a time: its latency and cost, or answers to own inputs."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from dawnjax import records
from dawnjax.checkpointed import latency
from dawnjax.checkpointed.earlier_run import EarlierRun, restore
from dawnjax.config.own_files import own_code
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.evaluation import reaches
from dawnjax.input_pipeline.reading.dataset import declared
from dawnjax.machine.hosts import processor_name, visible_cores
from dawnjax.runs.kept_pictures import MOST_PICTURES_OF_A_RUN
from dawnjax.session import alone
from dawnjax.tasks.task import Task, find_metric
from dawnjax.text import escaped
from dawnjax.train_step import platform_of

SCHEMA_VERSION = 1


MOST_PICTURES = 50
"""Limit of `--draw`: the first answers."""

KEPT_SIDE, JPEG_QUALITY = 640, 60
"""Of pictures kept for reports: most pixels a side, and quality; noise takes 190 KiB."""


def infer_run(
    run: EarlierRun, options: RunOptions, num_examples: int, warm_up: int, draw: str = ""
) -> tuple[dict[str, Any], str]:
    """Answer examples with the newest checkpoint on one device; writes latencies.

    Returns the record and its text. `draw` is a folder for pictures of the first answers; empty
    draws none.
    """
    experiment = run.experiment
    mesh = alone(experiment, run.spec, options, num_devices=1).mesh
    recipe, restored = restore(run, mesh, options, "infer")
    in_split = run.spec.num_eval_examples
    examples = {**experiment.data.load("eval")}
    answering = latency.make_answering(recipe, restored.state, examples)
    if draw and answering.shown is None:
        raise ConfigError(
            f"--draw={draw}: nothing draws the answers of task={experiment.task.TAG} on these data"
        )
    # A machine with other work gives long latencies: the record shows its load before and after.
    load_before = os.getloadavg()[0]
    seconds, answers, positions = latency.measure(answering, in_split, num_examples, warm_up)
    load_after = os.getloadavg()[0]
    latencies = latency.statistics(seconds)
    mean = sum(seconds) / len(seconds)
    price = options.price_per_hour_usd
    cost = latency.cost_usd(mean, price)
    with own_code("the task's quality"):
        quality = answering.quality(answers, positions)
        # A user's own may have NumPy's numbers, which are not JSON.
        quality = {n: v if isinstance(v, str) else float(v) for n, v in quality.items()}
    whole_split = len(answers) == in_split
    has_all = all(target.metric in quality for target in experiment.targets)
    reasons = _reasons(latencies, cost, num_examples)
    if not any(find_metric(experiment.task, name) for name in quality):
        reasons["quality"] = (
            f"quality() of task={experiment.task.TAG} gives none of its metrics; `dawnjax "
            "evaluate` measures them"
        )
    if not whole_split:
        reasons["reached"] = f"{len(answers)} of {in_split} examples were answered"
    elif not has_all:
        reasons["reached"] = "not all metrics of the target are measured here"
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        **run.described(restored.step),
        "data": declared(experiment.data, run.spec),
        "model": experiment.model.TAG,
        "device": {
            "kind": mesh.devices.flat[0].device_kind,
            "platform": platform_of(mesh),
            "used": 1,
            "present": jax.device_count(),
            "processor": processor_name(),
            "cores": visible_cores(),
            "load_before": load_before,
            "load_after": load_after,
        },
        "timed": answering.timed,
        "examples": num_examples,
        "warm_up_examples": warm_up,
        "latency_seconds": latencies,
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
    records.write_json(file, record, durable=True)
    text = f"{escaped(_shown(record, experiment.task))}\nwritten: {file}"
    if draw and answering.shown is not None:
        folder = records.path_of(draw)
        _draw(folder, file.with_suffix(""), answering.shown, answers, positions)
        shown = min(len(answers), MOST_PICTURES_OF_A_RUN)
        drawn = f"{min(len(answers), MOST_PICTURES)} of {len(answers)} answers in {folder}"
        text += f"\ndrawn: {drawn}; a report of the run shows the first {shown}"
    return {**record, "file": str(file)}, text


def predict_run(
    run: EarlierRun, files: Sequence[Path], options: RunOptions
) -> Iterator[dict[str, Any]]:
    """Answer the inputs in files with the newest checkpoint, one after the other."""
    with own_code("the task's inputs"):
        # Before the checkpoint: files of another kind are answered at once.
        inputs = run.experiment.task.read_inputs(files, run.setting)
    mesh = alone(run.experiment, run.spec, options, num_devices=1).mesh
    recipe, restored = restore(run, mesh, options, "predict")
    setting = dataclasses.replace(recipe.setting, spec=inputs.spec)
    asked = dataclasses.replace(recipe, setting=setting)
    answering = latency.make_answering(asked, restored.state, inputs.examples)
    for position, given in enumerate(inputs.given):
        answer = answering.answer(answering.example(position))
        with own_code("the task's inputs"):
            stated = inputs.stated(answer, position)
        yield {**given, "answer": stated}


def _draw(folder: Path, kept: Path, shown: Any, answers: list[Any], positions: list[int]) -> None:
    """Write a picture of each of the first answers, and `answers.json` with all of them.

    The folder `kept` gets small ones of the very first.
    """
    import cv2  # loaded by the data sets that it draws, and by few others

    stated = []
    for place, (answer, position) in enumerate(zip(answers, positions, strict=True)):
        picture, values = shown(answer, position)
        stated.append({"example": position, "answer": values})
        if place < MOST_PICTURES:
            content = cv2.imencode(".png", picture[:, :, ::-1])[1].tobytes()
            records.write(folder / f"{position:06}.png", content)
        if place < MOST_PICTURES_OF_A_RUN:
            records.write(kept / f"{position:06}.jpg", _small(picture[:, :, ::-1]))
    records.write_json(folder / "answers.json", stated)


def _small(picture: Any) -> bytes:
    """A JPEG that a report takes, of a picture with blue first."""
    import cv2

    height, width = picture.shape[:2]
    factor = min(1.0, KEPT_SIDE / max(height, width))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes()


def _reasons(
    latencies: dict[str, float | None], cost: float | None, num_examples: int
) -> dict[str, str]:
    reasons = {}
    if cost is None:
        reasons["cost_of_10000_usd"] = "no price: give --price_per_hour_usd"
    for percentile, least in latency.LEAST_EXAMPLES.items():
        if latencies[percentile] is None:
            reasons[f"latency_seconds.{percentile}"] = (
                f"it needs {least} examples or more, and {num_examples} counted"
            )
    return reasons


def _shown(record: dict[str, Any], task: Task) -> str:
    device, latencies = record["device"], record["latency_seconds"]
    millis = {
        name: f"- ({record['reasons'][f'latency_seconds.{name}']})"
        if value is None
        else f"{1000 * value:.3f} ms"
        for name, value in latencies.items()
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
        f"of {record['distinct_examples']:,} of {record['split_examples']:,} examples: "
        + (quality or record["reasons"]["quality"]),
    ]
    return "\n".join(lines)
