"""Inference one example at a time: from an example on the host to its answer on the host.

The time is all that a caller waits for: the input's way to the device, the compiled program, and
the answer's way back; for a sentence also its encoding and the text of the translation. A
photograph is decoded before. The program is compiled, and has run, before the first timed example.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from dawnjax.config.own_files import own_code
from dawnjax.machine.mesh import place, replicated
from dawnjax.programs import compile_program
from dawnjax.tasks.task import Answering, Arrays
from dawnjax.train_step import Recipe, TrainState, evaluated_params

COSTED_EXAMPLES = 10_000
"""Examples that a cost is for. Source: DAWNBench's inference tables, cost of 10,000 images."""


def make_answering(recipe: Recipe, state: TrainState, examples: dict[str, Any]) -> Answering:
    """Compile a model for one example at a time, on a mesh of one device."""
    whole = replicated(recipe.mesh)
    params = evaluated_params(recipe.experiment, state)

    def compiled(
        function: Callable[[Any, Arrays], Any], inputs: Mapping[str, np.ndarray]
    ) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
        def call(params: Arrays, batch_stats: Arrays, inputs: Arrays) -> Any:
            with own_code("the task's answer"):
                return function(recipe.model.bind(params, batch_stats), inputs)

        shapes = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=whole)
            for name, array in inputs.items()
        }
        arguments = (params, state.batch_stats, shapes)
        program = compile_program("infer", call, arguments, whole, (), lambda *_: None)
        # The answer on the host ends the time: a call alone returns before the device is done.
        return lambda inputs: jax.device_get(
            program(params, state.batch_stats, place(dict(inputs), whole))
        )

    return recipe.experiment.task.answering(compiled, examples, recipe.setting)


def measure(
    answering: Answering, in_split: int, num_examples: int, warm_up: int
) -> tuple[list[float], list[Any], list[int]]:
    """Answer examples one after the other; returns seconds of each, answers and positions.

    The order is random, always the same: a split may be sorted by length, and its first examples
    would be the quick ones. Past the end of the split it repeats.
    """
    order = np.random.default_rng(0).permutation(in_split).tolist()
    seconds, answers = [], []
    # Garbage of the compilation would be collected inside a timed example.
    gc.collect()
    for count in range(-warm_up, num_examples):
        example = answering.example(order[count % in_split])
        started = time.perf_counter()
        answer = answering.answer(example)
        ended = time.perf_counter()
        if count >= 0:
            seconds.append(ended - started)
            if count < in_split:
                answers.append(answer)
    return seconds, answers, order[: len(answers)]


LEAST_EXAMPLES = {"p50": 2, "p99": 100}
"""With fewer examples, the longest of all would pass as the percentile."""


def statistics(seconds: list[float]) -> dict[str, float | None]:
    """Mean, median, 99th percentile and extremes of latencies, in seconds.

    A percentile is a latency that occurred; it is None with fewer than `LEAST_EXAMPLES`.
    """
    quantiles = np.quantile(seconds, [0.5, 0.99], method="inverted_cdf").tolist()
    percentiles = {
        name: value if len(seconds) >= least else None
        for (name, least), value in zip(LEAST_EXAMPLES.items(), quantiles, strict=True)
    }
    return {
        "mean": float(np.mean(seconds)),
        **percentiles,
        "min": min(seconds),
        "max": max(seconds),
    }


def cost_usd(mean_seconds: float, price_per_hour_usd: float | None) -> float | None:
    """Cost of `COSTED_EXAMPLES`, one after another on one machine; None without a price."""
    if price_per_hour_usd is None:
        return None
    return mean_seconds * COSTED_EXAMPLES * price_per_hour_usd / 3600
