"""The profiles of one run: windows inside it, and the one after it has ended."""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from dawnjax import capture
from dawnjax.config.run_options import ProfileOptions
from dawnjax.profile import figures
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.utilization import CALL_SPAN, INPUT_SPAN
from dawnjax.profile.xplane import TraceError
from dawnjax.programs import Record, TrainPrograms
from dawnjax.train_step import Recipe

_NOTHING = contextlib.nullcontext()

Function = Callable[..., Any]

COMMUNICATION_FIELDS = (
    "seconds_per_step",
    "exposed_seconds_per_step",
    "fraction",
    "exposed_fraction",
    "skew_fraction",
    "bytes_per_step",
    "method",
    "ablation_exposed_fraction",
)
UTILIZATION_FIELDS = (
    "mfu",
    "hfu",
    "memory_bandwidth_fraction",
    "busy_fraction",
    "tensor_core_fraction",
    "attributed_fraction",
)


@dataclasses.dataclass(frozen=True)
class _Window:
    first: int
    last: int
    seconds: float
    folder: Path
    recipe: Recipe
    programs: TrainPrograms


class RunProfile:
    """What a run sees of where its time goes.

    Attributes:
      folder: This process's folder of profiles.
      latest: The profile that the result shows: the one after the run, or the last window.
    """

    def __init__(self, options: ProfileOptions, folder: Path, warn: Any):
        """Args:
        options: What is wanted.
        folder: This process's folder of profiles; made when it is needed.
        warn: Told, as one line, what could not be profiled.
        """
        self.folder = folder
        self.latest: HostProfile | None = None
        self._options, self._warn = options, warn
        self._wanted = dict(options.windows())
        self._taken: list[_Window] = []
        self._tracing = False
        self._why_none = "" if options.after_run else "profile.after_run=false"
        self._is_slow = options.slow_process == jax.process_index() and options.slow_seconds > 0

    def stops(self) -> set[int]:
        """Gives the steps after which the loop must stop: where windows begin and end."""
        return {*self._wanted, *self._wanted.values()} - {0}

    def span(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """Names a stretch of the host's time, `input` or `call`, in a trace that is being taken."""
        if self._is_slow and name == "input":
            time.sleep(self._options.slow_seconds)
        if not self._tracing:
            return _NOTHING
        return jax.profiler.TraceAnnotation(INPUT_SPAN if name == "input" else CALL_SPAN)

    def named(self, get_inputs: Function, call: Function) -> tuple[Function, Function]:
        """Gives the two halves of a step with the spans that a trace shows, if one is being taken.

        Without one they are given back as they are, and cost nothing.
        """
        if not (self._tracing or self._is_slow):
            return get_inputs, call

        def named_inputs(*arguments: Any) -> Any:
            with self.span("input"):
                return get_inputs(*arguments)

        def named_call(*arguments: Any) -> Any:
            with self.span("call"):
                return call(*arguments)

        return named_inputs, named_call

    @contextlib.contextmanager
    def window(
        self, step: int, stop: int, recipe: Recipe, programs: TrainPrograms
    ) -> Iterator[None]:
        """Traces the steps of a block if a window begins with them.

        Args:
          step: Steps done before the block.
          stop: Steps done after it; nothing is in flight then.
          recipe: What the programs were compiled from.
          programs: What the block calls.
        """
        if step not in self._wanted:
            yield
            return
        wanted = self._wanted[step]
        if stop < wanted:
            self._warn(
                f"profile.steps {step}:{wanted} ends at step {stop} already: the run stops there "
                "to evaluate, save or end an epoch"
            )
        folder = self._empty(f"steps_{step}_{stop}")
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(capture.trace_window(folder))
            except TraceError as error:
                self._warn(str(error))
            self._tracing = True
            started = time.perf_counter()
            try:
                yield
            finally:
                self._tracing = False
            seconds = time.perf_counter() - started
        # Without a trace too: all processes must read the same windows.
        self._taken.append(_Window(step, stop, seconds, folder, recipe, programs))

    def after_run(
        self, trainer: capture.Trainer, step_seconds: float | None, record: Record
    ) -> None:
        """Reads the windows, and takes the profile after the run; all processes call it alike.

        Args:
          trainer: Makes the real calls.
          step_seconds: A step's median duration in the run; None if it made none.
          record: Called with each program that is compiled.
        """
        if self._is_slow:
            trainer.delay_seconds = self._options.slow_seconds
        for window in self._taken:
            self.latest = self._read_window(window)
        for first in sorted(self._wanted.keys() - {window.first for window in self._taken}):
            self._warn(f"profile.steps {first}:{self._wanted[first]} was not traced: not reached")
        if self._taken:
            self._warn(
                f"{len(self._taken)} profile window(s) lie inside the run: what tracing cost is in "
                "its times"
            )
        if self._options.after_run:
            try:
                self.latest = capture.profile_run(
                    trainer, self._options, self._empty("after_run"), step_seconds, record
                )
            except capture.StoppedError:
                self.give_up("the run was asked to stop before its profile was taken")
        if self.latest is not None:
            if self.latest.failure:
                self._warn(f"the trace cannot be read: {self.latest.failure}")
            with contextlib.suppress(OSError):  # a full disk costs the tables, not the run
                figures.write_csv(self.latest, self.latest.folder)

    def give_up(self, reason: str) -> None:
        """Notes why there is no profile."""
        self._why_none = reason

    def host_fields(self, input_wait_fraction: float | None) -> dict[str, Any]:
        """Gives `communication` and `utilization` of this host, as a result holds them.

        Args:
          input_wait_fraction: The share of the train steps that waited for input, of the whole run.
        """
        if self.latest is None:
            why = self._why_none or "no step was profiled"
            return {
                "communication": {
                    **dict.fromkeys(COMMUNICATION_FIELDS),
                    "reasons": dict.fromkeys(COMMUNICATION_FIELDS, why),
                },
                "utilization": {
                    **dict.fromkeys(UTILIZATION_FIELDS),
                    "input_wait_fraction": input_wait_fraction,
                    "reasons": dict.fromkeys(UTILIZATION_FIELDS, why),
                },
            }
        used = self.latest.utilization_json()
        return {
            "communication": {
                **self.latest.communication_json(),
                "disagreement": self.latest.disagreement or None,
            },
            "utilization": {
                **used,
                "input_wait_fraction": input_wait_fraction,
                "largest_losses": figures.loss_json(self.latest.ops),
            },
        }

    def straggler(self) -> dict[str, Any] | None:
        """Gives the host that the others wait for, the same on all hosts; None without one."""
        found = None if self.latest is None else self.latest.straggler()
        return None if found is None else {**found.to_json(), "message": found.line()}

    def _read_window(self, window: _Window) -> HostProfile:
        steps = window.last - window.first
        return capture.finish_capture(
            window.recipe,
            window.programs,
            window.folder,
            first_step=window.first,
            num_steps=steps,
            step_seconds=window.seconds / steps,
            window_seconds=window.seconds,
            extra={"in_run": True, "twin_reason": "a window inside the run has no twin"},
            measured=self._options.measured_peaks,
        )

    def _empty(self, name: str) -> Path:
        """Gives an empty folder: one left by an earlier attempt is of that attempt."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # what cannot be written is missed when it is read
            folder.mkdir(parents=True)
        return folder


def disagreements(hosts: list[dict[str, Any]]) -> list[str]:
    """Gives what hosts say of two methods that do not agree."""
    said = [(host.get("communication") or {}).get("disagreement") for host in hosts]
    return [text for text in said if text]
