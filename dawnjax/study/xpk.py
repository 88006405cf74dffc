"""Handing a study's trials to Google's xpk, which runs each as a workload of TPU slices on GKE.

A workload is a JobSet: a job for each slice, a pod for each host. The hosts of a trial find each
other by what GKE tells a pod of its slice.

Source: xpk 1.16, `xpk workload create --help`, and the JobSet that `--output-manifest-file` writes.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError, ExitStatus

NEEDED = ("cluster", "tpu-type", "docker-image", "storage")
"""Settings without which no trial can run and leave its result in the study's folder."""

_DEFAULTS = {
    "max-restarts": "3",
    # xpk restarts after a signal; these are a host that failed, and a run that was asked to stop.
    "restart-on-exit-codes": f"{ExitStatus.FAILED:d},{ExitStatus.INTERRUPTED:d}",
}

_LONGEST_NAME = 40


def xpk_script(argv: Sequence[str], trials: int, settings: Mapping[str, str]) -> str:
    """A shell script that creates one workload for each trial.

    Args:
      argv: The study's command line after `dawnjax study`; its paths are those in the container.
      trials: How many trials the study has.
      settings: The flags of `xpk workload create` without their dashes, such as `num-slices`;
        `true` is a flag without a value. `name` is the beginning of the workloads' names.

    Raises:
      ConfigError: A setting is missing or wrong.
    """
    for needed in NEEDED:
        if needed not in settings:
            raise ConfigError(f"--runner=xpk needs --runner_setting={needed}=...")
    for setting, value in settings.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", setting) or setting in ("workload", "command"):
            raise ConfigError(
                f"--runner_setting={setting}={value}: {setting} is no flag of `xpk workload create`"
                " that a study leaves open"
            )
    if any("\n" in argument for argument in argv):
        raise ConfigError("--runner=xpk takes no flag with a line break")
    name = settings.get("name", "dawnjax-study")
    longest = _LONGEST_NAME - len(f"-{trials - 1}")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or len(name) > longest:
        raise ConfigError(
            f"--runner_setting=name={name!r} must be up to {longest} lower-case letters, digits "
            "and '-', and begin with a letter"
        )
    flags = {**_DEFAULTS, **settings}
    flags.pop("name", None)
    fixed = [
        f"--{flag}" if value == "true" else f"--{flag}={value}" for flag, value in flags.items()
    ]
    lines = ["#!/bin/sh", "# One workload for each trial of a study.", "set -e"]
    for trial in range(trials):
        # Without exec a SIGTERM would end the shell around the trial, and not reach it.
        command = f"exec dawnjax study {shlex.join([*argv, f'--trial={trial}'])}"
        create = ["xpk", "workload", "create", f"--workload={name}-{trial}", *fixed]
        lines.append(shlex.join([*create, f"--command={command}"]))
    return "\n".join(lines) + "\n"


def write_script(script: str, out: Path) -> Path:
    """Writes the script into a study's folder; returns its path."""
    path = out / "xpk.sh"
    records.write(path, script)
    path.chmod(0o755)
    return path
