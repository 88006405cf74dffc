"""Progress of a run on the screen: a live line, or plain lines where nobody watches."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from rich.console import Console, RenderableType
from rich.text import Text

from dawnjax.call_queue import CallQueue
from dawnjax.closing_table import closing_table, rate_text
from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.page import words
from dawnjax.page.boxes import boxed
from dawnjax.runs.summary import RunResult
from dawnjax.tasks.task import find_metric
from dawnjax.text import escaped

REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 10.0
"""Seconds between lines of progress where the output is no terminal."""


class _Console(Console):
    """A console whose reader may disappear: a run outlives the terminal that started it."""

    def on_broken_pipe(self) -> None:
        """Fall silent; rich would end the process."""
        self.quiet = True

    def show(self, renderable: RenderableType) -> None:
        try:
            # People copy paths and commands: rich must not break them at the terminal's width.
            self.print(renderable, soft_wrap=isinstance(renderable, Text))
        except OSError:
            self.quiet = True

    def show_line(self, text: str) -> None:
        self.show(Text(escaped(text)))


_PHASES = {
    "setup": "starting",
    "compile": "compiling",
    "restore": "looking for a checkpoint",
    "gating": "playing the newest against the best",
    "self_play": "playing against itself",
    "train": "training",
    "eval": "evaluating",
    "checkpoint": "saving",
    "profile": "profiling, outside of the time to accuracy",
    "other": "preparing",
}


class _Lasting:
    """A phase and its duration, refreshed with the screen."""

    def __init__(self, name: str, before: str):
        self._text, self._before = _PHASES.get(name, name), before
        self._started = time.perf_counter()

    def __rich__(self) -> Text:
        seconds = time.perf_counter() - self._started
        return Text(self._before if seconds < 1 and self._before else self.text(seconds))

    def text(self, seconds: float) -> str:
        return f"{self._text}, {seconds:.0f} s"


class Display:
    """Shows a run on standard error; the closing table goes to standard output."""

    def __init__(self, experiment: Experiment, spec: AnySpec, *, enabled: bool):
        self._experiment, self._spec, self._enabled = experiment, spec, enabled
        self._console = _Console(stderr=True, highlight=False)
        self._status = None
        if enabled and self._console.is_terminal:
            self._status = self._console.status("starting")
        self._last_shown = 0.0
        self._best: dict[str, float] = {}
        self._first_seen: tuple[float, int] | None = None
        self._live_line = ""

    @property
    def is_live(self) -> bool:
        """True where a person watches a line that changes."""
        return self._status is not None

    def begin(self, run_dir: Path, mesh: Mesh, resume_command: str) -> None:
        """Show the target, the devices, the run directory and how to resume."""
        device = mesh.devices.flat[0].device_kind
        targets = " and ".join(
            f"{target.metric} {'>=' if target.direction == 'at_least' else '<='} {target.value:g}"
            for target in self._experiment.targets
        )
        self._line(f"{self._experiment.name}: to {targets} on {mesh.devices.size} x {device}")
        self._line(f"in {run_dir}; if it is interrupted, resume with: {resume_command}")
        if self._status is not None:
            self._live(self._status.start)

    def phase(self, name: str) -> None:
        """Show the phase that begins, and its duration from here on."""
        if self._status is not None:
            self._live(self._status.update, _Lasting(name, self._live_line))

    def remember(self, metrics: dict[str, Any]) -> None:
        """Include an evaluation of an earlier attempt in the best that is shown."""
        for target in self._experiment.targets:
            value = metrics.get(target.metric)
            if isinstance(value, int | float):
                best = self._best.get(target.metric, value)
                choose = max if target.direction == "at_least" else min
                self._best[target.metric] = choose(best, value)

    def compiled(self, name: str, seconds: float, cache: str) -> None:
        """Show that a program is ready, if it took over a second."""
        if seconds > 1.0:
            self._line(f"compiled {name} in {seconds:.1f} s (cache {cache})")

    def note(self, message: str) -> None:
        self._line(message)

    def train(
        self,
        step: int,
        epoch: float,
        loss: float,
        queue: CallQueue,
        input_wait_seconds: float,
        run_seconds: float,
    ) -> None:
        now = time.perf_counter()
        interval = REFRESH_SECONDS if self._status is not None else PLAIN_SECONDS
        # The last 20 only: the rate shown is the present one, not the mean of the run.
        recent = list(zip(queue.seen_seconds[-20:], queue.seen_steps[-20:], strict=True))
        seconds = sum(seconds for seconds, _ in recent)
        if not self._enabled or now - self._last_shown < interval or not seconds:
            return
        self._last_shown = now
        steps = sum(count for _, count in recent)
        before, now_seen = (
            self._experiment.epoch_of_step(count, self._spec) for count in (step - steps, step)
        )
        examples = (now_seen - before) * self._spec.num_train_examples
        rate = examples / seconds
        waited = input_wait_seconds / queue.total_seconds
        best = ", ".join(
            f"best {target.metric} {self._text(target.metric, self._best[target.metric])} of "
            f"{target.value:g}"
            for target in self._experiment.targets
            if target.metric in self._best
        )
        experiment = self._experiment
        last = f"/{experiment.num_steps(self._spec)}" if experiment.has_length else ""
        limit = f" of {experiment.max_seconds:g}" if experiment.max_seconds else ""
        parts = [
            f"step {step}{last}",
            f"{run_seconds:.1f}{limit} s",
            best or "not yet evaluated",
            self._time_left(now, step),
            f"loss {loss:.4f}",
            f"epoch {epoch:.2f}",
            rate_text(rate, self._experiment, self._spec),
            f"input wait {100 * waited:.1f}%",
        ]
        if self._status is not None:
            self._live_line = fitting(parts, self._console.width - 2)
            self._live(self._status.update, self._live_line)
        else:
            self._line("  ".join(filter(None, parts)))

    def _time_left(self, now: float, step: int) -> str:
        if self._first_seen is None:
            self._first_seen = (now, step)
        started, first = self._first_seen
        if step == first or not self._experiment.has_length:
            return ""
        left = (now - started) / (step - first) * (self._experiment.num_steps(self._spec) - step)
        return f"at most {words.about(round(left))} left"

    def evaluation(
        self, step: int, epoch: float, metrics: dict[str, Any], reached: bool, run_seconds: float
    ) -> None:
        self.remember(metrics)
        shown = [
            f"{name} {self._text(name, value)}"
            for name, value in metrics.items()
            if isinstance(value, float)
        ]
        parts = [f"{run_seconds:8.2f} s", f"epoch {epoch:6.2f}", f"step {step}"]
        parts += ["target reached"] if reached else []
        # A log file has no width; cutting lines there would lose metrics for good.
        width = self._console.width if self._status is not None else 10**6
        self._line(fitting([*parts, *shown], width))

    def generation(self, number: int, figures: dict[str, float], run_seconds: float) -> None:
        shown = [f"{name} {value:g}" for name, value in figures.items()]
        self._line("  ".join([f"{run_seconds:8.2f} s", f"generation {number}", *shown]))

    def _text(self, name: str, value: float) -> str:
        metric = find_metric(self._experiment.task, name)
        return f"{value:.4f}" if metric is None else metric.text(value)

    def warning(self, message: str) -> None:
        """Show a warning, on every process."""
        self._console.show_line(f"dawnjax: warning: {message}")

    def close(self) -> None:
        if self._status is not None:
            self._live(self._status.stop)

    def closing_table(self, result: RunResult, run_dir: Path) -> None:
        """Show the result, with a note of what each time covers."""
        self.close()
        if not self._enabled:
            return
        console = _Console(file=sys.stdout, highlight=False)
        table = closing_table(result, self._experiment, self._spec)
        console.show(boxed(table, dim=(2,)))
        for warning in result.warnings:
            console.show_line(f"warning: {warning}")
        console.show_line(f"result: {run_dir / 'result.json'}")

    def _live(self, change: Callable[..., None], *text: RenderableType) -> None:
        try:
            change(*text)
        except OSError:
            self._console.quiet = True

    def _line(self, text: str) -> None:
        if self._enabled:
            self._console.show_line(text)


def fitting(parts: Sequence[str], width: int) -> str:
    """The parts that fit into a line, from the first on; never less than the first.

    >>> fitting(["step 3", "", "1.0 s", "loss 0.5"], 14)
    'step 3  1.0 s'
    """
    line = ""
    for part in filter(None, parts):
        longer = f"{line}  {part}" if line else part
        if len(longer) > width and line:
            break
        line = longer
    return line
