"""A plan as JSON: a row for each system and batch, whatever was asked."""

import dataclasses
from typing import Any

from dawnjax.plan.epochs.interval import Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A system and a global batch; what was not asked for, or has no plan, is null.

    Attributes:
      system: As `--on` named it.
      num_devices: JAX devices; 0 of a system that is not known.
      reason: Why there is no plan; empty where there is one.
      parts: Seconds of a train step by class of op, and exposed communication.
      memory_bytes: Peak bytes that a device needs.
      epochs: To the target.
      epochs_basis: Source of the epochs, or why none knows them.
      epochs_source: Kind of that source.
      budget_seconds: Seconds of a run to the end of its budget.
      price: Row of the list of prices.
      price_basis: Source of the price, or why there is none.
      reasons: Why a figure is null, by its name.
      notes: Cautions for readers of the figures.
      memory: With `--memory`: bytes of each program and its largest buffers; with `--search=mesh`:
        bytes by purpose.
      fits: With `--memory` or `--search=mesh`: `yes`, `no`, or `close` if memory outside the count
        decides.
      largest: With `--memory`: the largest batch that fits.
      largest_reason: Why none is known.
      mesh: With `--search=mesh`: axes and their sizes.
      remat: With `--search=mesh`: what `--model.remat` must be.
    """

    system: str
    num_devices: int
    global_batch: int
    reason: str = ""
    device: str | None = None
    step_seconds: Interval | None = None
    parts: dict[str, float] | None = None
    examples_per_second: Interval | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    evaluation_seconds: float | None = None
    epochs: Interval | None = None
    epochs_basis: str | None = None
    epochs_source: str | None = None
    time_to_accuracy_seconds: Interval | None = None
    cost_usd: Interval | None = None
    budget_seconds: Interval | None = None
    price: dict[str, Any] | None = None
    price_basis: str | None = None
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    memory: dict[str, Any] | None = None
    fits: str | None = None
    largest: dict[str, Any] | None = None
    largest_reason: str = ""
    mesh: dict[str, int] | None = None
    remat: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToldPlan:
    """Plans of an experiment.

    Attributes:
      overrides: Flags that changed the experiment.
      rows: Rows, the best first and rows without a plan last.
      advice: What the rows suggest, in words.
    """

    experiment: str
    overrides: dict[str, Any]
    rows: tuple[Row, ...]
    advice: tuple[str, ...]
