"""Record of an attempt's steps and evaluations: in its log, on the screen, as scalars."""

import time
from collections.abc import Sequence
from typing import Any

from dawnjax.call_queue import CallQueue
from dawnjax.evaluation import reaches
from dawnjax.progress import Display
from dawnjax.run_record import OpenRun
from dawnjax.runs.directory import flatten
from dawnjax.runs.log import LOSSES
from dawnjax.runs.loss_curve import StepLoss
from dawnjax.runs.scalars import ScalarWriter
from dawnjax.runs.trackers import Trackers
from dawnjax.text import without_secrets
from dawnjax.trials.trial import Trial

LIVE_RECORD_SECONDS = 1.0
RECORD_SECONDS = 10.0
"""Seconds between records while training: one takes half a millisecond of the thread that feeds the
devices. A person at a terminal wants to see progress more often."""


COST = "cost/usd"
"""Scalar of the run's cost so far, for an axis of the trackers' charts."""


class Journal:
    """Writer of an attempt's log, which the result is made from, and of what people see.

    Attributes:
      step: Steps done, as far as they are recorded.
      first_step: Steps that this attempt began after.
      record_at: When to record ended steps next, by `time.perf_counter`.
    """

    def __init__(self, run: OpenRun, display: Display, *, is_first: bool, num_hosts: int = 1):
        self._log, self._clock, self._display = run.log, run.clock, display
        self._experiment, self._spec = run.request.experiment, run.spec
        self.step = self.first_step = 0
        self._untold: list[str] = []
        self._recorded_steps = 0
        self._stage, self._diverged = -1, False
        self._earlier_seconds, self._clock_before = 0.0, run.earlier.clock_seconds or 0.0
        # The run's cost is of all its machines.
        price = run.request.options.price_per_hour_usd
        self._usd_per_hour = None if price is None else price * num_hosts
        self._earlier_usd = run.earlier.cost_usd
        self._record_seconds = LIVE_RECORD_SECONDS if display.is_live else RECORD_SECONDS
        self.record_at = time.perf_counter() + self._record_seconds
        options, self._is_first = run.request.options, is_first
        board = run.directory.tensorboard if is_first and options.tensorboard else None
        self._scalars = ScalarWriter(board, self.warn)
        self._trackers = Trackers(
            options.tracker if is_first else (),
            run.record["run_id"],
            run.directory.path,
            without_secrets(flatten(self._experiment.recipe_fields())),
            self.warn,
        )
        self._summary: dict[str, Any] = {}

    def warn(self, message: str) -> None:
        """Log a warning for the reader of the result, and show it."""
        if self._is_first:
            self._log.append("warning", message=message)
            self._display.warning(message)
        else:
            self._untold.append(message)

    def untold(self) -> list[str]:
        """Warnings of this process since the last call, for the log of process 0."""
        messages, self._untold = self._untold, []
        return messages

    def start_clock(self, earlier_seconds: float | None) -> None:
        """Continue the run's clock after earlier attempts, or log `run_start` (None)."""
        # A tracker's login takes seconds of the network; it must not fall on the clock.
        self._trackers.wait_until_open()
        if earlier_seconds is None:
            xla_options = list(self._experiment.xla_options)
            self._log.append("run_start", durable=True, xla_options=xla_options)
            self._earlier_seconds = -self._clock.now()
        else:
            self._scalars.restart(self.step)
            self._earlier_seconds = earlier_seconds

    def run_seconds(self) -> float:
        """Seconds on the run's clock, earlier attempts included."""
        return self._earlier_seconds + self._clock.now()

    def cost_usd(self) -> float | None:
        """Cost of the run's clock so far, each attempt at its own price; None without one."""
        if self._usd_per_hour is None or self._earlier_usd is None:
            return None
        seconds = self.run_seconds() - self._clock_before
        return self._earlier_usd + self._usd_per_hour * seconds / 3600

    def enter_stage(self, index: int) -> None:
        """Log the stage of the next steps, where the run has several and this is a new one."""
        if self._experiment.stages.boundary_epochs and index != self._stage:
            self._stage = index
            self._log.append("stage", index=index)

    def record_steps(self, queue: CallQueue, input_wait_seconds: float) -> bool:
        """Record the steps since the last record; returns False once a loss was NaN or infinite."""
        latest = queue.latest()
        steps = queue.steps_done - self._recorded_steps
        if latest is None or steps == 0:
            return not self._diverged
        self._recorded_steps = queue.steps_done
        kept = queue.take_losses()
        if kept and self._is_first:
            self._record_losses(kept)
        losses, first_nonfinite_step = latest
        loss = float(losses.mean())
        self.step = step = self.first_step + queue.steps_done
        epoch = self._experiment.epoch_of_step(step, self._spec)
        self._log.append(
            "train",
            step=step,
            epoch=round(epoch, 6),
            loss=loss,
            steps=steps,
            input_wait_seconds=round(input_wait_seconds, 6),
        )
        cost = self.cost_usd()
        seconds = self.run_seconds()
        self._display.train(step, epoch, loss, queue, input_wait_seconds, seconds, cost)
        if cost is not None:
            self._write_scalars(step, {COST: cost})
        self.record_at = time.perf_counter() + self._record_seconds
        if first_nonfinite_step and not self._diverged:
            self._diverged = True
            self._log.append("diverged", step=first_nonfinite_step)
        return not self._diverged

    def _record_losses(self, kept: Sequence[StepLoss]) -> None:
        steps, losses, norms = (list(column) for column in zip(*kept, strict=True))
        more: dict[str, Any] = {} if norms[0] is None else {"gradient_norms": norms}
        self._log.append(LOSSES, at_steps=steps, losses=losses, **more)
        for step, loss, norm in kept:
            scalars = {"train/loss": loss}
            if norm is not None:
                scalars["train/grad_norm"] = norm
            self._write_scalars(step, scalars)

    def record_generation(self, step: int, number: int, figures: dict[str, float]) -> None:
        """Record that the examples of a generation are made, before its first step."""
        self._log.append("generation", step=step, number=number, figures=figures)
        self._display.generation(number, figures, self.run_seconds())
        self._write_scalars(step, {f"generation/{name}": v for name, v in figures.items()})

    def record_evaluation(self, step: int, metrics: dict[str, Any]) -> bool:
        """Record an evaluation that ends now; returns True if it reached the target."""
        reached = reaches(self._experiment.targets, metrics)
        epoch = self._experiment.epoch_of_step(step, self._spec)
        # Read before the sync to disk, which follows the moment in the log: the screen would show
        # a later time to accuracy than the result.
        run_seconds, cost = self.run_seconds(), self.cost_usd()
        self._log.append(
            "evaluation",
            step=step,
            epoch=round(epoch, 6),
            metrics=metrics,
            reached=reached,
            # The deciding evaluation is synced to disk: losing it would lose the time to accuracy.
            durable=reached,
        )
        self._display.evaluation(step, epoch, metrics, reached, run_seconds, cost)
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        scalars = {f"eval/{name}": value for name, value in numbers.items()}
        self._write_scalars(step, scalars | ({} if cost is None else {COST: cost}))
        return reached

    def summarize(self, result: Trial) -> None:
        """Keep the figures of the result that the trackers get at the end."""
        names = ("status", "time_to_accuracy_seconds", "total_seconds_to_accuracy")
        names += ("epochs_to_target", "examples_per_second", "goodput", "cost_usd")
        values = {name: getattr(result, name) for name in names}
        self._summary = {name: value for name, value in values.items() if value is not None}

    def _write_scalars(self, step: int, scalars: dict[str, float]) -> None:
        self._scalars.write(step, scalars)
        self._trackers.write(step, scalars)

    def flush(self) -> None:
        """Write what waits for TensorBoard's file, before the result: it may end in a warning."""
        self._scalars.flush()

    def close(self) -> None:
        self._scalars.close()
        self._trackers.close(self._summary)
