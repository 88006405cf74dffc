"""Definition of a task whose training examples come from the parameters, made on the devices.

An epoch is a generation. Before its steps the loop calls the task's programs, phase by phase, which
change `TrainState.made`; the steps draw their examples from there. So `made` holds all that later
examples depend on, such as a replay window: a checkpoint has it, and a run that resumes makes the
same examples.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from etils import epy

from dawnjax.tasks.task import Setting, Task

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import pure_model

CALLS, FIGURES = "calls", "figures"
"""Parts of `made` that the loop reads: int32, the calls so far; counts of the newest generation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratingTask(Task):
    """A task that makes its examples; its data have counts and shapes, and no training arrays.

    It also defines `drawn`. `made` is a nested dict of arrays, whole on every device.
    """

    makes_examples: ClassVar[bool] = True

    @abc.abstractmethod
    def calls(self) -> tuple[tuple[str, int], ...]:
        """Phases of a generation in order, each with the calls that it takes.

        The first generation has the last of them alone.
        """

    @abc.abstractmethod
    def start(
        self, params: pure_model.Tree, batch_stats: pure_model.Tree, setting: Setting
    ) -> pure_model.Tree:
        """Parts of `made` before the first generation; `FIGURES` is a dict of numbers."""

    @abc.abstractmethod
    def make(
        self,
        phase: str,
        model: pure_model.PureModel,
        params: pure_model.Tree,
        batch_stats: pure_model.Tree,
        made: pure_model.Tree,
        root_key: jax.Array,
        setting: Setting,
    ) -> pure_model.Tree:
        """`made` after one more call of a phase; what is drawn follows from its number of calls."""

    def figures(self, counts: Mapping[str, Any], setting: Setting) -> dict[str, float]:
        """Figures of a generation for the log, from `made[FIGURES]` on the host."""
        return {name: float(count) for name, count in counts.items()}

    def generation_flops(self, setting: Setting) -> float:
        """Model FLOPs that make the examples of a generation, matches apart; 0 if not known."""
        return 0.0

    @property
    def calls_of_generation(self) -> int:
        return sum(count for _, count in self.calls())

    def nothing_made(
        self, params: pure_model.Tree, batch_stats: pure_model.Tree, setting: Setting
    ) -> pure_model.Tree:
        first = self.calls_of_generation - self.calls()[-1][1]
        return {CALLS: jnp.int32(first), **self.start(params, batch_stats, setting)}
