"""Inference one example at a time: from an example on the host to its answer on the host.

What is timed is all that a caller waits for: the input's way to the device, the compiled program,
and the answer's way back; of a sentence also its encoding into tokens and the text of the
translation. A photograph is decoded before. The program is compiled, and has run, before the first
example that counts.
"""

import dataclasses
import gc
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dawnjax.evaluation import Arrays
from dawnjax.input_pipeline.dataset import DatasetSpec, TextSpec
from dawnjax.input_pipeline.parallel_text import ParallelText
from dawnjax.machine.mesh import place, replicated
from dawnjax.programs import compile_program
from dawnjax.tasks import bleu
from dawnjax.tasks.translation import TranslationRecipe
from dawnjax.train_step import Recipe, TrainState, evaluated_params

COSTED_EXAMPLES = 10_000
"""What a cost is given for. Source: DAWNBench's inference tables, cost of 10,000 images."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A model that answers one example at a time.

    Attributes:
      example: From a position to the example on the host, which is not timed.
      answer: From that to its answer on the host, which is.
      num_examples: Examples that there are.
      quality: From answers and the positions of their examples to their metrics, which tell that
        what was timed is the model that was evaluated.
      timed: What is timed, in words.
    """

    example: Callable[[int], Any]
    answer: Callable[[Any], Any]
    num_examples: int
    quality: Callable[[list[Any], list[int]], dict[str, Any]]
    timed: str


def make_task(recipe: Recipe, state: TrainState, examples: dict[str, Any]) -> Task:
    """Compiles a model for one example, and gives it as a task.

    Args:
      recipe: The model on a mesh of one device.
      state: Its state.
      examples: The evaluation split.
    """
    if isinstance(recipe, TranslationRecipe):
        return _translation(recipe, state, examples)
    return _classification(recipe, state, examples)


def _classification(recipe: Recipe, state: TrainState, examples: dict[str, Any]) -> Task:
    spec: DatasetSpec = recipe.spec
    whole = replicated(recipe.mesh)
    num_answers = min(5, spec.num_classes)
    params = evaluated_params(recipe.experiment, state)

    def classify(params: Arrays, batch_stats: Arrays, image: jax.Array) -> jax.Array:
        logits = recipe.evaluated_logits(params, batch_stats, image)
        return jax.lax.top_k(logits[0], num_answers)[1]

    shape = jax.ShapeDtypeStruct((1, *spec.image_shape), jnp.uint8, sharding=whole)
    arguments = (params, state.batch_stats, shape)
    program = compile_program("infer", classify, arguments, whole, (), lambda *_: None)
    images, labels = examples["image"], np.asarray(examples["label"])

    def example(index: int) -> np.ndarray:
        return np.ascontiguousarray(images[np.array([index])])

    def answer(image: np.ndarray) -> np.ndarray:
        return np.asarray(program(params, state.batch_stats, place(image, whole)))

    def quality(answers: list[np.ndarray], positions: list[int]) -> dict[str, Any]:
        hits = np.stack(answers) == labels[positions][:, None]
        found = {"top_1_accuracy": float(hits[:, 0].mean())}
        if spec.num_classes > 5:
            found["top_5_accuracy"] = float(hits.any(axis=1).mean())
        return found

    timed = (
        "from uint8 pixels of the dataset's shape on the host to the likeliest classes on the host"
    )
    return Task(example, answer, spec.num_eval_examples, quality, timed)


def _translation(recipe: TranslationRecipe, state: TrainState, examples: dict[str, Any]) -> Task:
    spec: TextSpec = recipe.spec
    data = recipe.experiment.data
    assert isinstance(data, ParallelText)
    whole = replicated(recipe.mesh)
    params = evaluated_params(recipe.experiment, state)
    shape = jax.ShapeDtypeStruct((1, spec.eval_source_length), jnp.int32, sharding=whole)

    def translate(params: Arrays, source: jax.Array) -> jax.Array:
        return recipe.translate(params, source).tokens

    program = compile_program("infer", translate, (params, shape), whole, (), lambda *_: None)
    words = data.vocabulary()
    sentences = words.decode(np.asarray(examples["source"]))
    references = data.references()

    def answer(sentence: str) -> str:
        tokens = words.encode([sentence])[0]
        source = np.zeros((1, spec.eval_source_length), np.int32)
        source[0, : len(tokens)] = tokens[: spec.eval_source_length]
        return words.decode(np.asarray(program(params, place(source, whole))))[0]

    def quality(answers: list[str], positions: list[int]) -> dict[str, Any]:
        wanted = [references[position] for position in positions]
        score, signature = bleu.corpus_bleu(answers, wanted)
        return {"bleu": score, "bleu_signature": signature}

    timed = (
        "from the text of a sentence to the text of its translation, both on the host; sources "
        f"padded to {spec.eval_source_length} tokens"
    )
    return Task(sentences.__getitem__, answer, spec.num_eval_examples, quality, timed)


def measure(
    task: Task, num_examples: int, warm_up: int
) -> tuple[list[float], list[Any], list[int]]:
    """Answers examples one after the other, each when the one before is answered.

    They come in a random order, always the same: a split may be sorted by length, and its first
    examples would be the quick ones.

    Args:
      task: The task.
      num_examples: How many count; beyond those that there are, they come again.
      warm_up: Examples before them that do not.

    Returns:
      The seconds of each, and of those that there are, each once, the answers and positions.
    """
    order = np.random.default_rng(0).permutation(task.num_examples).tolist()
    seconds, answers = [], []
    gc.collect()
    for count in range(-warm_up, num_examples):
        example = task.example(order[count % task.num_examples])
        started = time.perf_counter()
        found = task.answer(example)
        ended = time.perf_counter()
        if count >= 0:
            seconds.append(ended - started)
            if count < task.num_examples:
                answers.append(found)
    return seconds, answers, order[: len(answers)]


LEAST_EXAMPLES = {"p50": 2, "p99": 100}
"""Fewer would give the longest of all as the percentile."""


def latency(seconds: list[float]) -> dict[str, float | None]:
    """Gives mean, median, 99th percentile and extremes of latencies, in seconds.

    The percentiles are those of the sample, a latency that occurred: half, or 99 of 100, were no
    longer. Those that need more examples are None.
    """
    found = np.quantile(seconds, [0.5, 0.99], method="inverted_cdf").tolist()
    percentiles = {
        name: value if len(seconds) >= least else None
        for (name, least), value in zip(LEAST_EXAMPLES.items(), found, strict=True)
    }
    return {
        "mean": float(np.mean(seconds)),
        **percentiles,
        "min": min(seconds),
        "max": max(seconds),
    }


def cost_usd(mean_seconds: float, price_per_hour_usd: float | None) -> float | None:
    """Gives what `COSTED_EXAMPLES` cost, one after the other on one machine; None if unpriced."""
    if price_per_hour_usd is None:
        return None
    return mean_seconds * COSTED_EXAMPLES * price_per_hour_usd / 3600
