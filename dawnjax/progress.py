"""Progress of a run on the screen: a live line, or plain lines where nobody watches."""

import contextlib
import itertools
import sys
import time
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from rich.console import Console, RenderableType
from rich.progress import Progress, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from dawnjax.call_queue import CallQueue
from dawnjax.closing_table import closing_table, rate_text
from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.page import words
from dawnjax.page.boxes import boxed
from dawnjax.tasks.task import find_metric
from dawnjax.text import escaped
from dawnjax.trials.trial import Trial

REFRESH_SECONDS = 0.25
PLAIN_SECONDS = 10.0
"""Seconds between lines of progress where the output is not a terminal."""


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


class TimeToLastStep(TimeRemainingColumn):
    """Time that the steps left take; nothing in other phases, whose end is not known."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        if task.fields["phase"] != "train" or task.finished or left is None:
            return Text("")
        return super().render(task) + Text(" to the last step")


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


FEWEST_EVALUATIONS = 8
"""To a run's length. With fewer, a time to accuracy holds over an eighth of the run as waiting."""


def coarse_evaluation(experiment: Experiment, spec: AnySpec) -> str:
    """A warning where evaluations lie too far apart for a time to accuracy; empty without."""
    if not experiment.has_length or experiment.name.endswith("_tiny"):
        return ""
    steps, last = experiment.evaluation_steps(spec), experiment.num_steps(spec)
    gap = max((after - before for before, after in itertools.pairwise(steps)), default=last)
    finest = max(1, last // FEWEST_EVALUATIONS)
    # A step more: ends of epochs are rounded to steps.
    if gap <= finest + 1:
        return ""
    if experiment.evaluation.every_steps:
        flag = f"every_steps={finest}"
    else:
        flag = f"every_epochs={experiment.length_in_epochs(spec) / FEWEST_EVALUATIONS:.3g}"
    return (
        f"evaluations are up to {gap} of the run's {last} steps apart: its time to accuracy may be "
        f"too long by {gap / last:.0%} of the run; --evaluation.{flag} gives "
        f"{FEWEST_EVALUATIONS} of them"
    )


def late_evaluation(experiment: Experiment, step: int, run_seconds: float) -> str:
    """The same of a run that ends by the clock alone, once its first evaluation shows the pace."""
    limit = experiment.max_seconds
    if experiment.has_length or run_seconds <= limit / FEWEST_EVALUATIONS:
        return ""
    finest = max(1, int(step * limit / FEWEST_EVALUATIONS / run_seconds))
    return (
        f"the first evaluation came after {run_seconds:.3g} of {limit:g} s: with so few, a time to "
        f"accuracy may be too long by {min(1.0, run_seconds / limit):.0%} of the run; "
        f"--evaluation.every_steps={finest} gives about {FEWEST_EVALUATIONS} of them"
    )


class Display:
    """Shows a run on standard error; the closing table goes to standard output."""

    def __init__(self, experiment: Experiment, spec: AnySpec, *, enabled: bool):
        self._experiment, self._spec, self._enabled = experiment, spec, enabled
        self._console = _Console(stderr=True, highlight=False)
        self._live: Progress | None = None
        if enabled and self._console.is_terminal:
            text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
            columns = (SpinnerColumn(), text, TimeToLastStep())
            self._live = Progress(*columns, console=self._console, transient=True)
            self._line_of_run = self._live.add_task("starting", total=None, phase="setup")
        self._last_shown = 0.0
        self._best: dict[str, float] = {}

    @property
    def is_live(self) -> bool:
        """True where a person watches a line that changes."""
        return self._live is not None

    def begin(self, run_dir: Path, mesh: Mesh, resume_command: str) -> None:
        device = mesh.devices.flat[0].device_kind
        targets = " and ".join(
            f"{target.metric} {'>=' if target.direction == 'at_least' else '<='} {target.value:g}"
            for target in self._experiment.targets
        )
        self.note(f"{self._experiment.name}: to {targets} on {mesh.devices.size} x {device}")
        self.note(f"in {run_dir}; if it is interrupted, resume with: {resume_command}")
        if self._enabled and (line := coarse_evaluation(self._experiment, self._spec)):
            self.warning(line)
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.start()

    def phase(self, name: str) -> None:
        self._update(description=_PHASES.get(name, name), phase=name)

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
            self.note(f"compiled the program {name} in {seconds:.1f} s (cache {cache})")

    def note(self, message: str) -> None:
        if self._enabled:
            self._console.show_line(message)

    def train(
        self,
        step: int,
        epoch: float,
        loss: float,
        queue: CallQueue,
        input_wait_seconds: float,
        run_seconds: float,
        cost_usd: float | None = None,
    ) -> None:
        now = time.perf_counter()
        interval = PLAIN_SECONDS if self._live is None else REFRESH_SECONDS
        # The last 20 only: the rate shown is the present one, not the mean of the run.
        seconds, steps = sum(queue.seen_seconds[-20:]), sum(queue.seen_steps[-20:])
        if not self._enabled or now - self._last_shown < interval or not seconds:
            return
        self._last_shown = now
        experiment, spec = self._experiment, self._spec
        before, now_seen = (experiment.epoch_of_step(n, spec) for n in (step - steps, step))
        rate = (now_seen - before) * spec.num_train_examples / seconds
        total = experiment.num_steps(spec) if experiment.has_length else None
        limit = f" of {experiment.max_seconds:g}" if experiment.max_seconds else ""
        best = (
            f"best {name} {self._text(name, value)} of {target.value:g}"
            for target in experiment.targets
            for name, value in self._best.items()
            if name == target.metric
        )
        parts = [
            f"step {step}" + (f"/{total}" if total else ""),
            f"{run_seconds:.1f}{limit} s",
            *([] if cost_usd is None else [words.usd(cost_usd)]),
            ", ".join(best) or "not yet evaluated",
            f"loss {loss:.4f}",
            f"epoch {epoch:.2f}",
            rate_text(rate, experiment, spec),
            f"input wait {100 * input_wait_seconds / queue.total_seconds:.1f}%",
        ]
        if self._live is None:
            self.note("  ".join(parts))
        self._update(description="  ".join(parts), completed=step, total=total)

    def evaluation(
        self,
        step: int,
        epoch: float,
        metrics: dict[str, Any],
        reached: bool,
        run_seconds: float,
        cost_usd: float | None = None,
    ) -> None:
        is_first = not self._best
        self.remember(metrics)
        parts = [f"{run_seconds:8.2f} s", f"epoch {epoch:6.2f}", f"step {step}"]
        parts[1:1] = [] if cost_usd is None else [words.usd(cost_usd)]
        parts += ["target reached"] if reached else []
        parts += [f"{n} {self._text(n, v)}" for n, v in metrics.items() if isinstance(v, float)]
        self.note("  ".join(parts))
        if (
            self._enabled
            and is_first
            and (line := late_evaluation(self._experiment, step, run_seconds))
        ):
            self.warning(line)

    def generation(self, number: int, figures: dict[str, float], run_seconds: float) -> None:
        shown = [f"{name} {value:g}" for name, value in figures.items()]
        self.note("  ".join([f"{run_seconds:8.2f} s", f"generation {number}", *shown]))

    def _text(self, name: str, value: float) -> str:
        metric = find_metric(self._experiment.task, name)
        return f"{value:.4f}" if metric is None else metric.text(value)

    def warning(self, message: str) -> None:
        self._console.show_line(f"dawnjax: warning: {message}")

    def close(self) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()

    def closing_table(self, result: Trial, run_dir: Path) -> None:
        """Show the result, with a note of what each time covers."""
        self.close()
        if not self._enabled:
            return
        console = _Console(file=sys.stdout, highlight=False)
        table = closing_table(result, self._experiment, self._spec)
        console.show(boxed(table, dim=(2,)))
        for warning in words.counted(result.warnings):
            console.show_line(f"warning: {warning}")
        console.show_line(f"result: {run_dir / 'result.json'}")

    def _update(self, **fields: Any) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.update(self._line_of_run, **fields)
