"""The profile of a run, taken after it has ended."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import jax

from dawnjax.capture.traced_steps import Hooks, profile_run
from dawnjax.config.run_options import ProfileOptions
from dawnjax.errors import RunError
from dawnjax.profile import tables
from dawnjax.profile.communication import COMMUNICATION_FIELDS
from dawnjax.profile.host_profile import HostProfile
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
    """The profile of a run; `latest` is None until it is taken."""

    def __init__(self, options: ProfileOptions, folder: Path, warn: Any):
        self.folder = folder
        self.latest: HostProfile | None = None
        self._options, self._warn = options, warn
        self._why_none = "" if options.after_run else "profile.after_run=false"

    def after_run(self, stepper: Stepper, step_seconds: float | None, hooks: Hooks) -> None:
        """Take the profile; all processes call it alike.

        The run has its result by now: whatever goes wrong in here is a warning.
        """
        try:
            if self._options.after_run:
                # An earlier attempt may have left a trace, which would be read as this one's. All
                # processes meet before they write theirs.
                self.delete()
                folder = self.folder / "after_run"
                self.latest = profile_run(stepper, self._options, folder, step_seconds, hooks)
                if self.latest.failure:
                    self._warn(f"the trace cannot be read: {self.latest.failure}")
        except Exception as error:
            self._why_none = str(error)
            if not hooks.why_to_stop():  # what was asked for needs no warning
                self._warn(f"the profile was left out: {error}")
        if jax.process_index():
            shutil.rmtree(
                self.folder, ignore_errors=True
            )  # process 0 alone keeps more than its trace
        elif self.latest is not None:
            with contextlib.suppress(OSError, RunError):  # a full disk costs the table alone
                tables.write_csv(self.latest)

    def delete(self) -> None:
        """Delete this process's files of profiles; process 0 deletes the traces of all."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if not jax.process_index():
            shutil.rmtree(self.folder.parent / "plugins", ignore_errors=True)

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
