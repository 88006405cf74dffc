"""A CIFAR-10 record in record mode, against the record holders' own programs in the same job.

    python -m benchmarks record --data=data/cifar10 --trials=100
    python -m benchmarks record --data=data/cifar10 --peer=DIR/airbench94_muon.py --peer=...

Half of our seeds run before the peers and half after, so that a machine's change of speed meets
both. A peer is the user's own script, such as `airbench94_muon.py` of KellerJordan/cifar10-airbench
or `cifar10_speedrun.py` of hiverge/cifar10-speedrun. It gets the same images in its own format and
`--peer_seconds` of time, and runs as it is. Of each run its output is read: accuracy with test-time
augmentation, and seconds. The peers' timers and record mode's exclude the same things
(`docs/experiments.md`).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness, workers


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--experiment", default="cifar10_record", help="or cifar10_speedrun")
    parser.add_argument("--data", default="", help="prepared CIFAR-10; none with --tiny")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--peer", action="append", default=[], help="a script; may be repeated")
    parser.add_argument("--peer_seconds", type=float, default=400, help="for each peer")
    parser.add_argument("--our_seconds", type=float, default=200, help="for each half of ours")
    parser.add_argument("--name", default="record_cifar10")
    parser.add_argument("--tiny", action="store_true", help="tiny variant, to try the benchmark")
    parser.add_argument("flags", nargs="*", help="more flags of `dawnjax record`, after --")
    arguments = parser.parse_args()
    for peer in arguments.peer:
        if not Path(peer).is_file():
            parser.error(f"--peer={peer} is no file: it names the peer's script in its checkout")
    if not arguments.data and not arguments.tiny:
        parser.error("--data is missing: the directory that `dawnjax prepare` wrote")
    results = harness.Results(arguments.name, is_tiny=arguments.tiny)
    half = -(-arguments.trials // 2)
    ours = [run_ours(arguments, 0, half)]
    results.add(dawnjax=ours)
    peers = {}
    for peer in arguments.peer:
        peers[Path(peer).stem] = run_peer(Path(peer), arguments)
        results.add(peers=peers)
    if arguments.trials > half:
        ours.append(run_ours(arguments, half, arguments.trials - half))
        results.add(dawnjax=ours)
    results.show("record_mode")
    return 0 if any("seeds" in part for part in ours) else 1


def run_ours(arguments: argparse.Namespace, first: int, trials: int) -> dict[str, Any]:
    """Run some seeds in record mode; runs before a failure count too."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "record.json"
        command = [sys.executable, "-m", "dawnjax", "record"]
        command += [f"--experiment={arguments.experiment}"]
        command += ["--tiny"] if arguments.tiny else [f"--data.data_dir={arguments.data}"]
        command += [f"--seed={first}", f"--seeds={trials}", f"--out={out}", *arguments.flags]
        _, words, status = ran(command, None, arguments.our_seconds)
        record = json.loads(out.read_text()) if out.exists() else {}
    if status is None:
        record["failed"] = f"not done in {arguments.our_seconds:g} s: {words}"
    elif status not in (0, 3):
        record["failed"] = f"exit status {status}: {words}"
    return record


def run_peer(script: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run a peer's script for its time; return the printed figures of each run."""
    with tempfile.TemporaryDirectory() as folder:
        if arguments.data:
            write_for_peer(Path(arguments.data), Path(folder) / "cifar10")
        command = [sys.executable, "-u", str(script.resolve())]
        lines, words, status = ran(command, folder, arguments.peer_seconds)
    runs = runs_of(lines)
    found: dict[str, Any] = {"script": script.name, "runs": runs}
    if not runs and status is None:
        found["failed"] = f"it printed no run in its {arguments.peer_seconds:g} s"
    elif not runs:
        found["failed"] = words or "it printed no run"
    return found


def ran(
    command: list[str], folder: str | None, seconds: float
) -> tuple[list[str], str, int | None]:
    """Run a program for at most so long, with all that it starts.

    Returns:
      Its lines, its last errors, and its exit status; None where its time was over.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    status: int | None = None
    try:
        printed, said = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        workers.end_group(process)
        printed, said = process.communicate()  # what came until then
    finally:  # after an interrupt too
        workers.end_group(process)
    return printed.splitlines(), " | ".join(said.strip().splitlines()[-3:]), status


def runs_of(lines: list[str]) -> list[dict[str, float]]:
    """Read the table that both known peers print: a final row `eval` for each run.

    The first run is left out: it is a warm-up on random labels.
    """
    runs = []
    for line in lines:
        for row in re.findall(r"\|[^\r\n]*\|", line):
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            if "eval" in cells:
                numbers = [float(cell) for cell in cells if re.fullmatch(r"\d+\.\d+", cell)]
                runs.append({"top_1_accuracy": numbers[-2], "time_seconds": numbers[-1]})
    return runs[1:]


def write_for_peer(data: Path, out: Path) -> None:
    """Write the prepared images as the files that both peers read with `torch.load`."""
    import torch  # pyright: ignore[reportMissingImports]

    from dawnjax.input_pipeline.datasets.cifar10 import CLASSES, Cifar10
    from dawnjax.input_pipeline.reading.dataset import Split

    out.mkdir()
    config = Cifar10(data_dir=str(data))
    names: dict[Split, str] = {"train": "train.pt", "eval": "test.pt"}
    for split, name in names.items():
        arrays = config.load(split)
        content = {
            "images": torch.from_numpy(np.array(arrays["image"])),
            "labels": torch.from_numpy(np.array(arrays["label"], np.int64)),
            "classes": list(CLASSES),
        }
        torch.save(content, out / name)


if __name__ == "__main__":
    sys.exit(main())
