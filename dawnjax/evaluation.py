"""Exact evaluation: the whole split, in padded batches whose padding counts nowhere."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dawnjax.cluster import processes
from dawnjax.config.experiment import Target
from dawnjax.feed import BATCHES_AHEAD, Arrays, InputShapes
from dawnjax.input_pipeline.reading.batches import kinds_of
from dawnjax.input_pipeline.reading.prefetch import Prefetch
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand
from dawnjax.machine.mesh import batch_sharding, local_rows, place, place_local
from dawnjax.programs import EvaluationPrograms
from dawnjax.train_step import Recipe, TrainState, evaluated_params
from dawnjax.trials import target as trial_target


class EvaluationFeed:
    """The evaluation split, the same batches each time; `resident` is empty on the host."""

    def __init__(
        self, shapes: InputShapes, mesh: Mesh, examples: Mapping[str, np.ndarray | RowsOnDemand]
    ):
        """Upload the split, or keep it to be read at each evaluation."""
        self._sharding = batch_sharding(mesh, 0)
        self._examples = examples
        self._rows = shapes.eval_batch_size
        count, kinds = shapes.spec.num_eval_examples, kinds_of(examples)
        parts = [np.arange(count)] if kinds is None else map(np.flatnonzero, (~kinds, kinds))
        self._batches = [
            part[start : start + self._rows]
            for part in parts
            for start in range(0, len(part), self._rows)
        ]
        self.resident = shapes.placed(mesh, examples)
        self._local = local_rows(self._sharding, self._rows)
        self._placed = [self._place(rows) for rows in self._batches] if self.resident else None

    def __iter__(self):
        if self._placed is not None:
            yield from self._placed
        else:
            placed = (self._place(rows) for rows in self._batches)
            with Prefetch(placed, BATCHES_AHEAD // 2) as batches:
                yield from batches

    def _place(self, rows: np.ndarray) -> Arrays:
        mask = np.arange(self._rows) < len(rows)
        # Padding reads an example that is there; the mask keeps it out of every metric.
        missing = (0, self._rows - len(rows))
        index = np.pad(rows, missing, constant_values=rows[0]).astype(np.int32)
        arrays = {"index": place(index, self._sharding), "mask": place(mask, self._sharding)}
        if not self.resident:
            for name, examples in self._examples.items():
                part = np.ascontiguousarray(examples[index[self._local]])
                arrays[name] = place_local(part, self._sharding, (self._rows, *part.shape[1:]))
        return arrays


class InterruptedEvaluation(Exception):
    """An evaluation was left before its end."""


def evaluate(
    recipe: Recipe,
    programs: EvaluationPrograms,
    state: TrainState,
    feed: EvaluationFeed,
    in_flight: int,
    on_call: Callable[[], object] = lambda: None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> dict[str, float | str]:
    """Measure the whole evaluation split; the state is not changed.

    Accuracies are fractions from 0 to 1, BLEU is from 0 to 100, the mean loss is in nats. Texts say
    how a metric was computed. Process 0 computes the metrics, and all processes get its values.

    Raises:
      InterruptedEvaluation: `is_interrupted` said so between two batches.
    """
    params = evaluated_params(recipe.experiment, state)
    totals = programs.zero_totals()
    for count, inputs in enumerate(feed, start=1):
        totals = programs.add_batch(params, state.batch_stats, feed.resident, inputs, totals)
        if count % in_flight == 0:
            jax.block_until_ready(totals)  # the bound on calls in flight
            if is_interrupted():
                raise InterruptedEvaluation
        on_call()
    on_host = jax.device_get(totals)
    # Counted on the devices: a wrong mask or sharding would otherwise pass as a plausible accuracy.
    if on_host["examples"] != recipe.spec.num_eval_examples:
        raise RuntimeError(
            f"evaluation counted {on_host['examples']} of {recipe.spec.num_eval_examples} examples"
        )
    return processes.from_first(lambda: recipe.metrics_of(on_host))


def reaches(targets: tuple[Target, ...], metrics: dict[str, Any]) -> bool:
    """True if metrics reach every target: compared as float32, and equal is reached."""
    return all(
        trial_target.reaches(metrics[target.metric], target.value, target.direction)
        for target in targets
    )
