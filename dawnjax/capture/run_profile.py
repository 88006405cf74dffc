"""Profiles of one run: windows inside it, and the one after it has ended."""

import contextlib
import functools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from dawnjax.capture.trace import finish_capture, trace_window
from dawnjax.capture.traced_steps import Hooks, profile_run
from dawnjax.config.run_options import ProfileOptions
from dawnjax.errors import RunError
from dawnjax.profile import tables
from dawnjax.profile.communication import COMMUNICATION_FIELDS
from dawnjax.profile.host_profile import HostProfile
from dawnjax.profile.xplane import TraceError
from dawnjax.stepper import Stepper

UTILIZATION_FIELDS = (
    "mfu",
    "hfu",
    "memory_bandwidth_fraction",
    "busy_fraction",
    "tensor_core_fraction",
    "attributed_fraction",
)


class RunProfile:
    """Profiles of a run; the result shows `latest`: after the run, or the last window."""

    def __init__(self, options: ProfileOptions, folder: Path, warn: Any):
        self.folder = folder
        self.latest: HostProfile | None = None
        self._options, self._warn = options, warn
        self._wanted = dict(options.windows())
        self._taken: dict[int, Callable[[], HostProfile]] = {}  # how a window's trace is read
        self._why_none = "" if options.after_run else "profile.after_run=false"

    def stops(self) -> set[int]:
        """Steps after which the loop must stop: where windows begin and end."""
        return {*self._wanted, *self._wanted.values()} - {0}

    @contextlib.contextmanager
    def window(self, stepper: Stepper, stop: int) -> Iterator[None]:
        """Trace the steps of a block, which ends after `stop`, if a window begins with them."""
        step = stepper.step
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
                stack.enter_context(trace_window(folder))
            except TraceError as error:
                self._warn(str(error))
            stepper.is_traced = True
            started = time.perf_counter()
            try:
                yield
            finally:
                stepper.is_traced = False
            seconds = time.perf_counter() - started
        made = stepper.step - step  # fewer if `max_seconds` or a signal ended the run in between
        if made:
            # Without a trace too: all processes must read the same windows.
            self._taken[step] = functools.partial(
                finish_capture,
                stepper.recipe,
                stepper.programs,
                folder,
                steps=(step, step + made),
                step_seconds=seconds / made,
                measured=self._options.measured_peaks,
                in_run=True,
            )

    def after_run(self, stepper: Stepper, step_seconds: float | None, hooks: Hooks) -> None:
        """Read the windows, and take the profile after the run; all processes call it alike.

        The run has its result by now: whatever goes wrong in here is a warning.
        """
        try:
            for read_window in self._taken.values():
                self.latest = read_window()
            if self._options.after_run:
                folder = self._empty("after_run")
                self.latest = profile_run(stepper, self._options, folder, step_seconds, hooks)
            self._say_what_is_missing()
        except Exception as error:
            self._why_none = str(error)
            if not hooks.why_to_stop():  # what was asked for needs no warning
                self._warn(f"the profile was left out: {error}")
        if jax.process_index() and not self._options.every_host:
            self.delete()
        elif self.latest is not None:
            with contextlib.suppress(OSError, RunError):  # a full disk costs the table alone
                tables.write_csv(self.latest)

    def _say_what_is_missing(self) -> None:
        for first in sorted(self._wanted.keys() - self._taken.keys()):
            self._warn(f"profile.steps {first}:{self._wanted[first]} was not traced: not reached")
        if self._taken:
            self._warn(
                f"{len(self._taken)} profile window(s) lie inside the run: what tracing cost is in "
                "its times"
            )
        if self.latest is not None and self.latest.failure:
            self._warn(f"the trace cannot be read: {self.latest.failure}")

    def delete(self) -> bool:
        """Delete this process's files of profiles; returns True if there were any."""
        there_were = self.folder.exists()
        shutil.rmtree(self.folder, ignore_errors=True)
        return there_were

    def host_fields(self, input_wait_fraction: float | None) -> dict[str, Any]:
        """`communication` and `utilization` of this host, as a result holds them."""
        if self.latest is None:
            why = self._why_none or "no step was profiled"
            communication, utilization = (
                {**dict.fromkeys(names), "reasons": dict.fromkeys(names, why)}
                for names in (COMMUNICATION_FIELDS, UTILIZATION_FIELDS)
            )
        else:
            communication = self.latest.communication_json()
            utilization = self.latest.utilization_json()
            utilization["largest_losses"] = tables.loss_json(self.latest.ops)
            utilization["roofline"] = self.latest.roofline_json()
        utilization["input_wait_fraction"] = input_wait_fraction
        return {"communication": communication, "utilization": utilization}

    def straggler(self) -> tuple[dict[str, Any] | None, str]:
        """The host that the other hosts wait for, the same on all hosts, or the reason for none."""
        if self.latest is None:
            return None, ""
        straggler, reason = self.latest.straggler()
        return straggler and straggler.to_json(), reason

    def _empty(self, name: str) -> Path:
        folder = self.folder / name
        # An earlier attempt may have left a trace here, which would be read as this one's.
        shutil.rmtree(folder, ignore_errors=True)
        return folder
