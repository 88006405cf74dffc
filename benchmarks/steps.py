"""Train steps of the flagships, in every way to compute them, against PyTorch where it has a side.

    python -m benchmarks steps --model=resnet50 --seconds=560
    python -m benchmarks steps --model=transformer_big --variants=base,cublaslt

Each variant of ours is a process with a time limit and its own compilation. PyTorch is tried in
each way of `pytorch_settings`; the fastest process stays, and its rounds alternate with ours. Both
sides start from the same parameters and batch, and must have the same first losses, or no ratio is
written. Data are synthetic and lie on the device, so input is excluded.
`results/steps_MODEL_DEVICE.json` grows with each figure. `digits`, `cifar10_resnet18`,
`record_net_float32` and `multi30k_transformer` are small enough for a CPU; for the others --tiny
tries the benchmark itself and says nothing about speed.
"""

import argparse
import contextlib
import functools
import os
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks import harness, pytorch_settings, step_settings, workers

LEAST_SECONDS = 45
"""A variant is not begun with less time left than this: compiling takes longer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--model", choices=step_settings.FLAGSHIPS, required=True)
    parser.add_argument("--variants", default="", help="names, separated by commas; all if empty")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="in a round")
    parser.add_argument("--seconds", type=float, default=560, help="for everything")
    parser.add_argument("--limit", type=float, default=200, help="seconds for a side to be ready")
    parser.add_argument(
        "--settings", nargs="+", choices=pytorch_settings.SETTINGS, help="PyTorch's ways to try"
    )
    parser.add_argument("--without_pytorch", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the benchmark")
    arguments = parser.parse_args()
    flagship = step_settings.FLAGSHIPS[arguments.model]
    names = [name for name in arguments.variants.split(",") if name] or list(flagship.variants)
    unknown = [name for name in names if name not in step_settings.VARIANTS]
    if unknown:
        parser.error(f"no variant {unknown[0]!r}; there are {', '.join(step_settings.VARIANTS)}")
    end = time.monotonic() + arguments.seconds
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return _run(flagship, names, arguments, folder, end, stack)


def _run(
    flagship: step_settings.Flagship,
    names: list[str],
    arguments: argparse.Namespace,
    folder: str,
    end: float,
    stack: contextlib.ExitStack,
) -> int:
    rows = [["variant", f"{flagship.unit}/s", "MFU", "of the limit", "/ PyTorch", "95 % interval"]]
    pytorch: workers.Worker | None = None
    results: harness.Results | None = None
    variants: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for name in names:
        left = end - time.monotonic()
        if variants and left < LEAST_SECONDS and not arguments.tiny:
            variants[name] = {"not_run": f"{left:.0f} s left"}
            continue
        try:
            # PyTorch's side starts from what the first variant that is ready leaves; the others
            # have the same parameters and must agree with it too, or with the first without it.
            with _ours(name, arguments, folder, not facts, min(arguments.limit, left)) as ours:
                kind = ours.ready["device_kind"].lower().replace(" ", "_")
                if results is None:
                    how = "_tiny" if arguments.tiny else ""
                    results = harness.Results(
                        f"steps_{arguments.model}_{kind}{how}",
                        goal=flagship.goal,
                        limit_per_second=flagship.limit_per_second,
                        unit=flagship.unit,
                        is_tiny=arguments.tiny,
                    )
                if flagship.pytorch and not arguments.without_pytorch and not facts:
                    pytorch, facts = _pytorch(kind, arguments, folder, end, stack)
                    results.add(pytorch=facts)
                measured = _measure(ours, pytorch, flagship, arguments)
                first = next((v for v in variants.values() if "losses" in v), None)
                if pytorch is None and first is not None and first["batch"] == measured["batch"]:
                    measured["against_first"] = _agreement(measured, first)
                variants[name] = measured
        except workers.SideFailed as failure:
            variants[name] = {"failed": str(failure)}
        rows.append(_row(name, variants[name]))
        print(harness.table([rows[0], rows[-1]]), flush=True)
        if results is not None:
            results.add(variants=variants)
    if results is None:
        print("no variant ran", file=sys.stderr)
        return 1
    results.add(variants=variants)
    print(f"goal: {flagship.goal}")
    print(harness.table(rows))
    print(results.path)
    return 0 if any("units_per_second" in variant for variant in variants.values()) else 1


def _ours(
    name: str, arguments: argparse.Namespace, folder: str, leaves_state: bool, limit: float
) -> workers.Worker:
    variant = step_settings.VARIANTS[name]
    command = [sys.executable, "-m", "benchmarks.our_steps", f"--model={arguments.model}"]
    command += [f"--variant={name}", f"--steps={arguments.steps}"]
    command += [f"--check={folder}"] if leaves_state else []
    command += ["--tiny"] if arguments.tiny else []
    has_other = step_settings.FLAGSHIPS[arguments.model].pytorch and not arguments.without_pytorch
    # Room for PyTorch's process beside it; XLA would take three quarters at once.
    fraction = "0.6" if has_other else "0.9"
    # One search for the fastest kernels: variants then differ by what they are named for alone.
    searched = f"--xla_gpu_per_fusion_autotune_cache_dir={folder}"
    xla_flags = f"{os.environ.get('XLA_FLAGS', '')} {searched} {variant.xla_flags}".strip()
    environment = {"XLA_PYTHON_CLIENT_MEM_FRACTION": fraction, "XLA_FLAGS": xla_flags}
    environment |= pytorch_settings.KEPT_MEMORY if variant.keeps_memory else {}
    return workers.Worker(command, limit_seconds=max(1.0, limit), environment=environment)


def _pytorch(
    device_kind: str,
    arguments: argparse.Namespace,
    folder: str,
    end: float,
    stack: contextlib.ExitStack,
) -> tuple[workers.Worker | None, dict[str, Any]]:
    """Process of PyTorch's fastest way, and the record of every way."""
    command = [sys.executable, "-m", "benchmarks.pytorch_steps", f"--model={arguments.model}"]
    command += [f"--steps={arguments.steps}", f"--check={folder}"]
    command += ["--tiny"] if arguments.tiny else []
    flagship = step_settings.FLAGSHIPS[arguments.model]
    ways = flagship.cpu_ways if device_kind == "cpu" else pytorch_settings.GPU

    def start(name: str) -> workers.Worker:
        return workers.Worker(
            [*command, f"--settings={name}"],
            limit_seconds=max(1.0, min(arguments.limit, end - time.monotonic())),
            environment=pytorch_settings.SETTINGS[name].environment(),
        )

    try:
        name, worker, tried = workers.fastest(
            {name: functools.partial(start, name) for name in arguments.settings or ways},
            lambda answer: answer["seconds_a_step"],
        )
    except workers.SideFailed as failure:
        return None, {"failed": str(failure)}
    return stack.enter_context(worker), {"fastest": name, **worker.ready, "tried": tried}


def _measure(
    ours: workers.Worker,
    pytorch: workers.Worker | None,
    flagship: step_settings.Flagship,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    rounds: list[dict[str, Any]] = []

    def run_ours() -> float:
        rounds.append(ours.round())
        return rounds[-1]["units_per_second"]

    measured: dict[str, Any] = {**ours.ready}
    if pytorch is None:
        run_ours()  # a warm-up, as the comparison has
        throughputs = [run_ours() for _ in range(arguments.rounds)]
    else:
        comparison = harness.alternate(
            run_ours,
            lambda: pytorch.round()["units_per_second"],
            arguments.rounds,
            unit=f"{flagship.unit}/s",
        )
        throughputs = comparison.first
        measured["against_pytorch"] = _checked(ours.ready, pytorch.ready, comparison)
    mfus = [row["mfu"] for row in rounds[1:] if row["mfu"] is not None]
    limit = flagship.limit_per_second
    measured |= {
        "units_per_second": float(np.median(throughputs)),
        "rounds": throughputs,
        "mfu": float(np.median(mfus)) if mfus else None,
        "share_of_limit": None if limit is None else float(np.median(throughputs)) / limit,
    }
    if arguments.tiny:
        measured["share_of_limit"] = None  # another network has another limit
    return measured


def _checked(
    ours: dict[str, Any], theirs: dict[str, Any], comparison: harness.Rounds
) -> dict[str, Any]:
    if ours["batch"] != theirs["batch"]:
        # Throughputs of two batch sizes; the same network, checked at one of them.
        return {"check": "none: the batches differ", **comparison.to_json()}
    try:
        tolerance = step_settings.CHECK_TOLERANCE[ours["dtype"]]
        check = harness.same_losses(ours["losses"], theirs["losses"], tolerance)
    except harness.NotTheSame as failure:
        return {"not_the_same": str(failure)}
    return {**check, **comparison.to_json()}


def _agreement(measured: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """Check that a variant has the first variant's losses, where PyTorch has no side."""
    try:
        tolerance = step_settings.CHECK_TOLERANCE[measured["dtype"]]
        return harness.same_losses(measured["losses"], first["losses"], tolerance)
    except harness.NotTheSame as failure:
        return {"not_the_same": str(failure)}


def _row(name: str, measured: dict[str, Any]) -> list[str]:
    if "units_per_second" not in measured:
        return [name, (measured.get("failed") or measured["not_run"])[:60], "", "", "", ""]
    against = measured.get("against_pytorch", {})
    compared = against or measured.get("against_first", {})
    ratio = harness.Rounds.of(against).ratio if "first" in against else None
    share = measured["share_of_limit"]
    return [
        name,
        f"{measured['units_per_second']:,.0f}",
        "-" if measured["mfu"] is None else f"{measured['mfu']:.3f}",
        "-" if share is None else f"{share:.3f}",
        "not the same"
        if "not_the_same" in compared
        else "-"
        if ratio is None
        else f"{ratio.value:.3f}",
        "-" if ratio is None else ratio.ends_text(),
    ]


if __name__ == "__main__":
    sys.exit(main())
