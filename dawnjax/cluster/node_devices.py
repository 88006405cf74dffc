"""Devices of this machine as its files show them: no driver is asked, and JAX is not started."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dawnjax.errors import RunError

ROOT = Path("/")


def gpus(root: Path = ROOT) -> list[str]:
    """Device files of all NVIDIA GPUs, by their number."""
    return sorted(map(str, root.glob("dev/nvidia[0-9]*")), key=lambda file: (len(file), file))


def tpu_chips(root: Path = ROOT) -> int:
    return len([*root.glob("dev/accel[0-9]*"), *root.glob("dev/vfio/[0-9]*")])


def given_gpus(environment: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """GPUs of NVIDIA that this process may use, in the order of CUDA's numbers.

    A batch system closes the other device files to a task (cgroups), names the task's GPUs in
    CUDA_VISIBLE_DEVICES, or does both; that variable counts the open files.
    """
    is_open = [file for file in gpus(root) if os.access(file, os.R_OK | os.W_OK)]
    names = environment.get("CUDA_VISIBLE_DEVICES")
    if names is None or not is_open:
        return is_open
    # Numbers count the open files; -1 is not a device.
    given = [name for name in map(str.strip, names.split(",")) if name and name[0] != "-"]
    files = {str(number): file for number, file in enumerate(is_open)}
    return [files.get(name, name) for name in given]


def shared_out(places: Sequence[Sequence[object]], index: int) -> list[int] | None:
    """Numbers of the GPUs that a process takes of those given to it; None takes all of them.

    Args:
      places: Of each process: its machine, and its `given_gpus`. Processes of one machine with the
        same GPUs share them out; where a batch system gave each its own, they differ.

    Raises:
      RunError: There are more processes than GPUs.
    """
    own = places[index]
    sharers = [number for number, place in enumerate(places) if place == own]
    num_gpus = len(own[1])  # pyright: ignore[reportArgumentType]
    if len(sharers) == 1 or not num_gpus:
        return None
    each = num_gpus // len(sharers)
    if not each:
        raise RunError(
            f"{len(sharers)} processes of this machine were given the same {num_gpus} GPUs; start "
            "one process on each machine, or one for each GPU"
        )
    first = sharers.index(index) * each
    return list(range(first, first + each))
