"""First losses on as many as 8 simulated devices, more than the other tests' process has.

The process of `first_losses` runs this file as a script: a request as JSON, and losses as JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from quick_compilation import QUICK

from dawnjax.machine import compilation


def first_losses(cases: Mapping[str, Sequence[Any]], steps: int) -> dict[str, list[float]]:
    """Losses of the first steps of each case: a number of devices, and flags of training."""
    request = {"cases": cases, "steps": steps, "cache": str(compilation.directory or "none")}
    command = [sys.executable, __file__, json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["NPROC"] = "16"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {QUICK}"

    from first_steps import train_steps

    asked = json.loads(sys.argv[1])
    compilation.configure(asked["cache"])
    losses_by_case = {
        name: train_steps(devices, *flags, steps=asked["steps"])[1]
        for name, (devices, *flags) in asked["cases"].items()
    }
    json.dump(losses_by_case, sys.stdout)
