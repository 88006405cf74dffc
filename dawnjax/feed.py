"""Global batches on the devices, from datasets; the one place where they are made.

A dataset that fits stays on every device as uint8, and a step is fed positions of examples. A
larger one stays on the host; each process feeds the rows of its own devices, read ahead by a
thread. A batch depends on the seed and the step alone, not on the number of processes.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import jax
import numpy as np
from jax.sharding import Mesh

from dawnjax.config.experiment import Experiment
from dawnjax.config.run_options import RunOptions
from dawnjax.input_pipeline.reading.batches import BatchIndices, ExampleOrder, host_batch, kinds_of
from dawnjax.input_pipeline.reading.dataset import AnySpec, Split, num_bytes
from dawnjax.input_pipeline.reading.prefetch import Prefetch
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand
from dawnjax.machine.mesh import (
    batch_sharding,
    batch_shards,
    local_rows,
    place,
    place_local,
    replicated,
)
from dawnjax.runs.stages import Span, span_of_next
from dawnjax.tasks.task import Arrays

Shapes = dict[str, jax.ShapeDtypeStruct]
Placement = Literal["device", "host"]

LARGEST_RESIDENT_BYTES = 2**30
"""Largest dataset kept on each device: 1 GiB, a sixteenth of a TPU v5e's memory."""

BATCHES_AHEAD = 4
"""Batches of the host's data that wait on a device for their step: half of them are sent ahead, the
others belong to calls that are queued."""


@dataclasses.dataclass(frozen=True)
class InputShapes:
    """Inputs of a run's programs, as shapes; `eval_batch_size` includes padding."""

    experiment: Experiment
    spec: AnySpec
    placement: Placement
    eval_batch_size: int

    @property
    def train_resident(self) -> Shapes:
        return self._resident("train", self.spec.num_train_examples)

    @property
    def eval_resident(self) -> Shapes:
        return self._resident("eval", self.spec.num_eval_examples)

    def train_inputs(self, steps_per_call: int) -> Shapes:
        """Inputs of one call: arrays [steps, batch, ...]."""
        rows = (steps_per_call, self.experiment.global_batch_size)
        return self._inputs("train", rows, epoch=np.int32)

    @property
    def eval_inputs(self) -> Shapes:
        """Inputs of one evaluation call: arrays [batch, ...]."""
        return self._inputs("eval", (self.eval_batch_size,), mask=np.bool_)

    @property
    def initialization_rows(self) -> np.ndarray:
        """Positions of the examples that initialize the model: int64 [n], ascending.

        They are spread over the split, which may be sorted by class.
        """
        num_examples = self.spec.num_train_examples
        count = min(getattr(self.experiment.model, "num_initialization_examples", 0), num_examples)
        return np.arange(count) * num_examples // max(1, count)

    @property
    def initialization_examples(self) -> Shapes:
        """Shapes of the arrays at `initialization_rows`."""
        return self._examples("train", self.initialization_rows.shape)

    def placed(self, mesh: Mesh, examples: Mapping[str, np.ndarray | RowsOnDemand]) -> Arrays:
        """A split on every device; empty if it stays on the host."""
        if self.placement == "host":
            return {}
        whole = replicated(mesh)
        return {name: place(np.asarray(array), whole) for name, array in examples.items()}

    def _resident(self, split: Split, num_examples: int) -> Shapes:
        return self._examples(split, (num_examples,)) if self.placement == "device" else {}

    def _inputs(self, split: Split, rows: tuple[int, ...], **more: type) -> Shapes:
        dtypes = {"index": np.int32, **more}
        inputs = {name: jax.ShapeDtypeStruct(rows, dtype) for name, dtype in dtypes.items()}
        return inputs if self.placement == "device" else {**inputs, **self._examples(split, rows)}

    def _examples(self, split: Split, rows: tuple[int, ...]) -> Shapes:
        return {
            name: jax.ShapeDtypeStruct((*rows, *shape), np.dtype(dtype))
            for name, (shape, dtype) in self.spec.example_shapes(split).items()
        }


def input_shapes(
    experiment: Experiment, spec: AnySpec, options: RunOptions, mesh: Mesh
) -> InputShapes:
    """Choose where the dataset lies, and return the shapes that follow."""
    placement = options.data_placement
    if placement == "auto":
        is_small = num_bytes(spec) <= LARGEST_RESIDENT_BYTES
        placement = "device" if is_small and not getattr(spec, "is_drawn", False) else "host"
    shards = batch_shards(mesh)
    rows = min(experiment.evaluation.global_batch_size, spec.num_eval_examples)
    return InputShapes(experiment, spec, placement, -(-rows // shards) * shards)


class TrainFeed:
    """The training split, call by call.

    Attributes:
      resident: The split on the device; empty if it stays on the host.
      wait_seconds: Time that the devices were without work because an input was not there. What the
        host waited while they still worked is not in it, nor is the transfer of an input.
    """

    def __init__(
        self,
        shapes: InputShapes,
        mesh: Mesh,
        examples: Mapping[str, np.ndarray | RowsOnDemand],
        seed: int,
        steps_per_call: int,
        spans: Sequence[Span] = (),
    ):
        """Upload the split, or prepare to read it: arrays or rows on demand, [n, ...]."""
        self._order = ExampleOrder(
            seed=seed, num_train_examples=shapes.spec.num_train_examples, kinds=kinds_of(examples)
        )
        self._spans = spans or shapes.experiment.spans(shapes.spec)
        self._steps_per_call = steps_per_call
        self._sharding = batch_sharding(mesh, 1)
        self._examples = examples
        self._prefetch: Prefetch[Arrays] | None = None
        self.wait_seconds = 0.0
        self.resident = shapes.placed(mesh, examples)
        rows = batch_sharding(mesh, 0)
        # Stages may differ in batch size, and with it in the rows of this process.
        sizes = {span.global_batch_size for span in self._spans} if not self.resident else ()
        self._local = {size: local_rows(rows, size) for size in sizes}

    def stay_in(self, span: Span) -> None:
        """Feed all later calls as in this stage, though its last step has passed."""
        self._spans = (span,)

    def start(self, calls: Iterable[tuple[int, int]]) -> None:
        """Begin to feed the given calls, each `(steps done before it, steps in it)`, in order."""
        self.close()
        if not self.resident:
            self._prefetch = Prefetch((self._read(*call) for call in calls), BATCHES_AHEAD // 2)

    def inputs(
        self, first_step: int, num_steps: int, is_busy: Callable[[], bool] = lambda: False
    ) -> Arrays:
        """Inputs of the next call: arrays [steps_per_call, global batch, ...].

        `is_busy` says whether the devices still work on earlier calls.
        """
        if self._prefetch is not None:
            before = self._prefetch.wait_seconds
            arrays = self._prefetch.get(is_busy)
            self.wait_seconds += self._prefetch.wait_seconds - before
            return arrays
        started = time.perf_counter()
        indices, _ = self._indices(first_step, num_steps)
        local = {"index": self._whole_call(indices.index), "epoch": self._whole_call(indices.epoch)}
        arrays = place(local, self._sharding)
        if not is_busy():
            self.wait_seconds += time.perf_counter() - started
        return arrays

    def close(self) -> None:
        if self._prefetch is not None:
            self._prefetch.close()
            self._prefetch = None

    def _read(self, first_step: int, num_steps: int) -> Arrays:
        arrays = {}
        indices, batch_size = self._indices(first_step, num_steps)
        local = host_batch(self._examples, indices, self._local[batch_size])
        for name, rows in local.items():
            shape = (self._steps_per_call, batch_size, *rows.shape[2:])
            arrays[name] = place_local(self._whole_call(rows), self._sharding, shape)
        return arrays

    def _indices(self, first_step: int, num_steps: int) -> tuple[BatchIndices, int]:
        span = span_of_next(self._spans, first_step)
        size = span.global_batch_size
        return self._order.batches(span.examples_before(first_step), num_steps, size), size

    def _whole_call(self, rows: np.ndarray) -> np.ndarray:
        missing = self._steps_per_call - len(rows)
        # The program is compiled for full calls; rows of padding are fed and never used.
        return rows if not missing else np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
