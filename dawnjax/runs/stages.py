"""Stages of a run: stretches of steps that differ in image size, random rectangles or batch.

Progressive resizing trains on small images first; a growing batch is the same mechanism. All
arithmetic between steps, examples and epochs is here, once, in whole numbers. It needs no JAX.
"""

import bisect
import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stages:
    """Changes in the course of a run; none by default.

    The first stage is as the experiment says. Each boundary begins another, in which the batch has
    the size given here, and the task's own stages say what else changes. Each stage has a program
    of its own, compiled before the clock starts.

    Attributes:
      boundary_epochs: Where stages begin, in epochs of the run, ascending: each at the first step
        from there on. Empty means one stage, whatever the other fields hold.
      global_batch_size: `global_batch_size` from each boundary on; empty if it stays. A learning
        rate with a `reference_batch_size` follows it.

    Source: a batch that grows: Smith et al. 2018, "Don't Decay the Learning Rate, Increase the
    Batch Size" (arXiv 1711.00489).
    """

    boundary_epochs: tuple[float, ...] = ()
    global_batch_size: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Span:
    """Steps of one stage, from `first_step` (done before it) to `last_step` (done at its end)."""

    index: int
    first_step: int
    last_step: int
    first_example: int
    global_batch_size: int

    def examples_before(self, step: int) -> int:
        return self.first_example + (step - self.first_step) * self.global_batch_size

    @property
    def step_shift(self) -> float:
        """Steps to add to a step for its place in a run of this batch size alone."""
        return self.first_example / self.global_batch_size - self.first_step


def make_spans(
    boundary_epochs: Sequence[float],
    batch_sizes: Sequence[int],
    num_epochs: float,
    num_train_examples: int,
) -> tuple[Span, ...]:
    """Divide a run into the spans of its stages.

    The last step may reach a little past `num_epochs`. `boundary_epochs` has one entry fewer than
    `batch_sizes`.
    """
    spans: list[Span] = []
    step = examples = 0
    ends = (*boundary_epochs, num_epochs)
    for index, (end, batch) in enumerate(zip(ends, batch_sizes, strict=True)):
        steps = _steps(end * num_train_examples - examples, batch)
        spans.append(Span(index, step, step + steps, examples, batch))
        step, examples = step + steps, examples + steps * batch
    return tuple(spans)


def examples_before(spans: Sequence[Span], step: int) -> int:
    return span_of_next(spans, step).examples_before(step)


def step_of_epoch(spans: Sequence[Span], epoch: float, num_train_examples: int) -> int:
    """First step after which `epoch` epochs were seen, at most the run's last."""
    wanted = epoch * num_train_examples
    for span in spans:
        step = span.first_step + _steps(wanted - span.first_example, span.global_batch_size)
        if step <= span.last_step:
            return max(step, span.first_step)
    return spans[-1].last_step


def span_of_last(spans: Sequence[Span], step: int) -> Span:
    """Stage of the last of the first `step` steps."""
    return spans[_index(spans, step - 1)]


def span_of_next(spans: Sequence[Span], step: int) -> Span:
    """Stage of the step after `step` steps; the last stage at the run's end."""
    return spans[_index(spans, step)]


def _index(spans: Sequence[Span], step: int) -> int:
    return max(0, bisect.bisect_right([span.first_step for span in spans], step) - 1)


def _steps(num_examples: float, batch_size: int) -> int:
    # A quotient a rounding above a whole number would be a step too many.
    return math.ceil(round(num_examples / batch_size, 6))
