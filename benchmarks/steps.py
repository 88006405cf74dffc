"""Train steps of the flagships on one device, against PyTorch where it has a side.

    python -m benchmarks steps --model=resnet50 --seconds=60

Each side is a process of its own. PyTorch is tried in each way of `pytorch_settings`; the fastest
process stays, and its rounds alternate with ours. Both sides start from the same parameters and
batch, and must have the same first losses, or no ratio is written. Data are synthetic and lie on
the device, so input is excluded. `results/steps_MODEL_DEVICE.json` grows with each figure. --tiny
tries the benchmark itself on any machine and says nothing about speed.
"""

import argparse
import functools
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks import harness, pytorch_settings, step_settings, workers


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--model", choices=step_settings.FLAGSHIPS, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="in a round")
    parser.add_argument("--seconds", type=float, default=560, help="for everything")
    parser.add_argument(
        "--settings", nargs="+", choices=pytorch_settings.SETTINGS, help="PyTorch's ways to try"
    )
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the benchmark")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as folder:
        return _run(arguments, folder, end)


def _run(arguments: argparse.Namespace, folder: str, end: float) -> int:
    flagship = step_settings.FLAGSHIPS[arguments.model]
    command = [sys.executable, "-m", "benchmarks.our_steps", f"--check={folder}"]
    command += [f"--model={arguments.model}", f"--steps={arguments.steps}"]
    command += ["--tiny"] if arguments.tiny else []
    # Room for PyTorch's process beside it; XLA would take three quarters at once.
    fraction = "0.6" if flagship.pytorch else "0.9"
    environment = {"XLA_PYTHON_CLIENT_MEM_FRACTION": fraction}
    with workers.Worker(command, limit_seconds=arguments.seconds, environment=environment) as ours:
        kind = ours.ready["device_kind"].lower().replace(" ", "_")
        results = harness.Results(
            f"steps_{arguments.model}_{kind}{'_tiny' if arguments.tiny else ''}",
            unit=flagship.unit,
            is_tiny=arguments.tiny,
        )
        pytorch: workers.Worker | None = None
        facts: dict[str, Any] = {}
        if flagship.pytorch:
            try:
                pytorch, facts = _pytorch(kind, arguments, folder, end)
            except workers.SideFailed as failure:
                facts = {"failed": str(failure)}
            results.add(pytorch=facts)
        try:
            measured = _measure(ours, pytorch, arguments)
        finally:
            if pytorch is not None:
                pytorch.close()
    results.add(variants={"base": measured})
    results.show("gpu_steps")
    return 0


def _pytorch(
    device_kind: str, arguments: argparse.Namespace, folder: str, end: float
) -> tuple[workers.Worker, dict[str, Any]]:
    """Process of PyTorch's fastest way, and the record of every way."""
    command = [sys.executable, "-m", "benchmarks.pytorch_steps", f"--model={arguments.model}"]
    command += [f"--steps={arguments.steps}", f"--check={folder}"]
    command += ["--tiny"] if arguments.tiny else []
    ways = pytorch_settings.EAGER if device_kind == "cpu" else pytorch_settings.GPU

    def start(name: str) -> workers.Worker:
        return workers.Worker(
            [*command, f"--settings={name}"],
            limit_seconds=max(1.0, end - time.monotonic()),
            environment=pytorch_settings.SETTINGS[name].environment(),
        )

    name, worker, tried = workers.fastest(
        {name: functools.partial(start, name) for name in arguments.settings or ways},
        lambda answer: answer["seconds_a_step"],
    )
    return worker, {"fastest": name, **worker.ready, "tried": tried}


def _measure(
    ours: workers.Worker, pytorch: workers.Worker | None, arguments: argparse.Namespace
) -> dict[str, Any]:
    measured: dict[str, Any] = {**ours.ready}
    units = measured["units_a_step"]

    def rate(side: workers.Worker) -> float:
        return units / side.round()["seconds_a_step"]

    if pytorch is None:
        rate(ours)  # a warm-up, as the comparison has
        throughputs = [rate(ours) for _ in range(arguments.rounds)]
    else:
        comparison = harness.alternate(lambda: rate(ours), lambda: rate(pytorch), arguments.rounds)
        throughputs = comparison.first
        measured["against_pytorch"] = _checked(ours.ready, pytorch.ready, comparison)
    median, peak = float(np.median(throughputs)), measured["peak_flops_per_second"]
    mfu = measured["model_flops_a_step"] * median / units / peak if peak else None
    return measured | {"units_per_second": median, "rounds": throughputs, "mfu": mfu}


def _checked(
    ours: dict[str, Any], theirs: dict[str, Any], comparison: harness.Rounds
) -> dict[str, Any]:
    try:
        tolerance = step_settings.CHECK_TOLERANCE[ours["dtype"]]
        check = harness.same_losses(ours["losses"], theirs["losses"], tolerance)
    except harness.NotTheSame as failure:
        return {"not_the_same": str(failure)}
    return {**check, **comparison.to_json()}


if __name__ == "__main__":
    sys.exit(main())
