"""`dawnjax infer`: latency and cost of a run's model, one example at a time."""

import dataclasses
import functools
import shlex
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.checkpointed.earlier_run import add_run_flags, run_at
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.config.flag_tree import FlagTree
from dawnjax.config.run_options import RunOptions
from dawnjax.official.export_dawnbench import has_table

_USAGE = (
    "dawnjax infer RUN_DIR [--examples=N] [--price_per_hour_usd=PRICE] [--draw=DIR] "
    "[--FLAG=VALUE...]"
)
_DESCRIPTION = """
Restores the newest checkpoint on one device and answers examples of the evaluation split one at a
time. Shows the mean, median and 99th percentile of the latency, from example to answer on the host,
and the cost of 10,000 answers at a price. Writes RUN_DIR/inference/<PLATFORM>-step<STEP>.json, or
<PLATFORM>-step<STEP>-<N>of<M>.json for a part of the split. `dawnjax export
--format=dawnbench_inference` makes a DAWNBench entry from it.
"""
_OPTIONS = ("checkpoint", "compile_cache_dir", "price_per_hour_usd")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
    """Seconds from an example on the host to its answer there; null with too few examples."""

    mean: float | None
    p50: float | None
    p99: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Latency and cost of a model, one example at a time.

    Attributes:
      timed: What the latency includes.
      examples: Examples that count.
      distinct_examples: Different examples among them.
      split_examples: Examples of the evaluation split.
      cost_of_10000_usd: Cost of answering 10,000 at the price.
      quality: Metrics over the examples, by name.
      reached: Whether they reach every target; null unless the whole split was answered.
      reasons: Why a field is null, by its name.
      file: The record that was written, with all facts.
    """

    run_id: str
    experiment: str
    seed: int
    step: int
    compute_dtype: str
    timed: str
    examples: int
    distinct_examples: int
    split_examples: int
    latency_seconds: Latency
    examples_per_second: float
    price_per_hour_usd: float | None
    cost_of_10000_usd: float | None
    quality: dict[str, Any]
    reached: bool | None
    reasons: dict[str, str]
    file: str


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    add_run_flags(flag_values)
    number = functools.partial(flags.DEFINE_integer, flag_values=flag_values)
    number("examples", 1000, "Examples to time; a smaller split repeats.", 1)
    number("warm_up", 20, "Untimed examples before the timed ones.", 0)
    text = "Folder for pictures of the first answers, and answers.json with all answers."
    flags.DEFINE_string("draw", None, text, flag_values=flag_values)
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS)
    options.define(flag_values)
    paths = command_line.parse("infer", flag_values, argv, _USAGE, _DESCRIPTION)
    path = command_line.one(paths, "run directory")
    run_options = options.value(flag_values)
    run_options.validate()
    run = run_at(path, flag_values)
    count, warm_up = (int(flag_values[name].value) for name in ("examples", "warm_up"))  # pyright: ignore[reportArgumentType]
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.checkpointed.infer import infer_run

    draw = str(flag_values["draw"].value or "")
    record, text = infer_run(run, run_options, count, warm_up, draw)
    if record["reached"] and has_table(record["data"]):
        export = ["dawnjax", "export", "--format=dawnbench_inference", record["file"]]
        text += f"\nto submit: {shlex.join([*export, '--submitter=NAME', '--out=entry'])}"
    return Answer(result=records.convert(record, Result, others=True), text=text)
