"""Captures of a run directory: the files that each process writes beside a trace."""

import dataclasses
import zlib
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.machine.hardware import MeasuredPeaks
from dawnjax.records.bounds import Amount, Count, Place, Seconds, Step, StepSeconds, Text

PROGRAM_FILE = "train_program.txt.gz"
CAPTURE_FILE = "capture.json"

_MOST_BYTES = 2**28
"""Limit of the program's text (some MB for ResNet-50), and of `capture.json`."""


@dataclasses.dataclass(frozen=True)
class TwinTimes:
    """Stretches of real steps and of the ablation twin's, in turn; seconds a step of each.

    `twin` has the slowest host's: with its own, a faster host would count waiting as communication.
    """

    real: list[StepSeconds]
    twin: list[StepSeconds]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capture:
    """What reading a trace needs, as `capture.json` keeps it beside the trace.

    Attributes:
      machine_devices: Devices of all processes on this machine, which share a CPU's peak.
      steps: Steps done before the trace, and after it.
      step_seconds: A steady step, not traced.
      model_flops_per_step: The model's FLOPs of a step, on one device.
      shortest_runs: For each collective, the shortest duration of its first, second, ... run on any
        device of the run, in picoseconds.
      host_waits: Seconds a step that each host waits in collectives; None where a trace is missing.
      twin: Only of `dawnjax profile --twin`.
    """

    schema_version: int = 1
    process_index: Place
    platform: Text
    device_kind: Text
    num_devices: Count
    machine_devices: Count
    module: Text
    steps: tuple[Step, Step]
    step_seconds: StepSeconds
    model_flops_per_step: Amount | None
    model_flops_reason: Text
    executed_dtype: Text
    measured_peaks: MeasuredPeaks | None = None
    mesh: dict[str, Count] = dataclasses.field(default_factory=dict)
    stage: dict[str, Any] | None = None
    shortest_runs: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    host_waits: list[Seconds | None] = dataclasses.field(default_factory=list)
    twin: TwinTimes | None = None

    @property
    def num_steps(self) -> int:
        return self.steps[1] - self.steps[0]

    @property
    def simulates(self) -> bool:
        """True of several devices that are threads of CPUs: no wire lies between them."""
        return self.platform == "cpu" and self.num_devices > 1


def read_files(folder: Path) -> tuple[Capture, str]:
    """Read a capture's `capture.json` and the program's text."""
    try:
        plain = records.read_json(folder / CAPTURE_FILE, dict[str, Any], _MOST_BYTES)
        capture = records.convert(plain, Capture, others=True)
        if capture.num_steps < 1:
            raise records.FieldError(f"its steps {capture.steps} are none")
        with records.open_plain(folder / PROGRAM_FILE) as file:
            return capture, records.gunzip(file, _MOST_BYTES).decode()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ConfigError(f"{folder} holds no whole profile: {error}") from None


def captures_of(run_dir: Path) -> list[Path]:
    """Folders of a run's captures, in the order of processes; `ConfigError` if it has none."""
    folders = [file.parent for file in sorted(run_dir.glob(f"profile/process_*/*/{CAPTURE_FILE}"))]
    if not folders:
        raise ConfigError(
            f"{run_dir} holds no profile: the run was made with --profile.after_run=false, or did "
            "not come to its end"
        )
    return folders
