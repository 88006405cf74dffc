"""Steps of `gpt2_small`, and those that a `train_gpt.py` of modded-nanogpt prints, in one job.

    python -m benchmarks language_model_peer --peer=DIR/train_gpt.py --peer_tokens=131072

The peer is the user's own script, with all that it imports and downloads in place. It runs as it
is, alone on one GPU, on shards of synthetic tokens, and is ended after `--steps` steps. At each
step it prints its number and the milliseconds of training so far. `--peer_tokens` are those of a
step in the first stage of its schedule, over all accumulated parts (`TRAINING_STAGES` of August
2026: 8 * 2048 * 8). Ours processes as many tokens a step. Half of our rounds run before the peer
and half after.

The ratio holds for the same tokens a step and one class of model size. It is not like for like:
`DIFFERENCES` accompanies it wherever it is written.
"""

import argparse
import re
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness, record, step_settings, workers
from dawnjax.input_pipeline.datasets.token_shards import HEADER_BYTES, MAGIC, VERSION
from dawnjax.statistics.contrast import ratio_of_means

DIFFERENCES = (
    "same tokens a step and class of model size; configurations differ in: layers and extra "
    "embeddings, attention (windows, documents, kernels), number formats (FP8), rows' lengths, "
    "optimizer, reading of data (the peer's counts, ours lies on the device)"
)

ROUND_STEPS = 10
"""Steps of a figure: the host of a peer runs ahead of its GPU by less than this."""

SKIPPED_STEPS = 20
"""The peer's first steps, which may still compile."""

SEPARATOR = 50_256
"""Begins a document, in GPT-2's tokens."""


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="a script")
    parser.add_argument("--peer_tokens", type=int, required=True, help="of one of its steps")
    parser.add_argument("--steps", type=int, default=100, help="of the peer")
    parser.add_argument("--rounds", type=int, default=10, help="of ours")
    parser.add_argument("--seconds", type=float, default=540, help="for everything")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the benchmark")
    arguments = parser.parse_args()
    if not arguments.peer.is_file():
        parser.error(f"--peer={arguments.peer} is no file: it names the peer's script")
    flagship = step_settings.FLAGSHIPS["gpt2_small"]
    most = flagship.tiny_batch if arguments.tiny else flagship.batch
    row = 32 if arguments.tiny else 1024
    rows, rest = divmod(arguments.peer_tokens, row)
    if rest or rows % min(rows, most):
        parser.error(f"--peer_tokens={arguments.peer_tokens} is no number of parts of {most * row}")
    command = [sys.executable, "-m", "benchmarks.our_steps", "--model=gpt2_small"]
    command += [f"--steps={ROUND_STEPS}", f"--batch={rows}", *(["--tiny"] * arguments.tiny), "--"]
    command += [f"--data.num_train_tokens={rows * row}"]
    command += [f"--accumulation_steps={rows // min(rows, most)}"]
    ours: list[float] = []

    def run_ours(limit: float) -> dict[str, Any]:
        memory = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}
        with workers.Worker(command, limit_seconds=limit, environment=memory) as worker:
            worker.round()  # a warm-up
            half = -(-arguments.rounds // 2)
            ours.extend(worker.round()["seconds_a_step"] for _ in range(half))
            return worker.ready

    ready = run_ours(arguments.seconds / 4)
    kind = ready["device_kind"].lower().replace(" ", "_")
    results = harness.Results(
        f"gpt2_peer_{kind}{'_tiny' if arguments.tiny else ''}",
        differences=DIFFERENCES,
        tokens_a_step=arguments.peer_tokens,
        is_tiny=arguments.tiny,
        dawnjax=ready,
    )
    results.add(dawnjax_seconds_a_step=ours)
    peer = run_peer(arguments.peer, arguments.steps, arguments.seconds / 2)
    results.add(peer=peer)
    run_ours(arguments.seconds / 4)
    results.add(dawnjax_seconds_a_step=ours)
    print(f"dawnjax: {np.mean(ours):.4f} s a step of {arguments.peer_tokens:,} tokens")
    if "failed" in peer:
        print(f"{peer['script']}: {peer['failed']}")
    else:
        ratio = ratio_of_means(peer["seconds_a_step"], ours)
        print(f"{peer['script']}: {np.mean(peer['seconds_a_step']):.4f} s a step")
        print(f"ours / its: {ratio.text()}")
        print(DIFFERENCES)
    print(results.path)
    return 1 if "failed" in peer else 0


def run_peer(script: Path, steps: int, seconds: float) -> dict[str, Any]:
    """Seconds a step in each round of a peer's script."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # What `torchrun --nproc_per_node=1` would set.
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder, "data", "fineweb10B"))
        variables["DATA_PATH"] = folder
        is_last = re.compile(f"step:{steps}/").match
        lines, words = record.printed_by(script, folder, seconds, variables, is_last)
    times = times_of(lines)
    figures = [
        (times[step] - times[step - ROUND_STEPS]) / ROUND_STEPS
        for step in range(SKIPPED_STEPS + ROUND_STEPS, steps + 1, ROUND_STEPS)
        if step in times and step - ROUND_STEPS in times
    ]
    told: dict[str, Any] = {"script": script.name, "seconds_a_step": figures}
    if not figures:
        told["failed"] = f"{len(times)} steps in at most {seconds:g} s; {words or 'no error'}"
    return told


def times_of(lines: Iterable[str]) -> dict[int, float]:
    """Seconds of training after each step that a peer printed, evaluations excluded."""
    told = (re.match(r"step:(\d+)/\d+ .*?train_time:([\d.]+)ms", line) for line in lines)
    return {int(step[1]): float(step[2]) / 1000 for step in told if step}


def write_shards(folder: Path) -> None:
    """Write two training shards and one for evaluation, of documents of about 600 tokens."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, count in (("train_000001", 20), ("train_000002", 20), ("val_000000", 12)):
        tokens = random.integers(0, SEPARATOR, count * 2**20, np.uint16)
        tokens[random.random(len(tokens)) < 1 / 600] = SEPARATOR
        header = np.zeros(HEADER_BYTES // 4, "<i4")
        header[:3] = MAGIC, VERSION, len(tokens)
        path = folder / f"fineweb_{name}.bin"
        path.write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())


if __name__ == "__main__":
    sys.exit(main())
