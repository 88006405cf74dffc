"""Host time of the training loop, against a bare loop over the same compiled program.

    python -m benchmarks loop_overhead

Both sides make the same steps of the same program on the same state, fed by the same feed, with as
many calls in flight. The bare loop does nothing else; ours also times the calls, says how far it
is, asks whether to stop, looks for NaN, and logs every few seconds. The figure is CPU time of the
main thread a call, in microseconds: of a tiny model with one step a call, where dispatch is
everything, and of the digits experiment as it runs. Rounds alternate; the ratio has its bootstrap
interval. A round is shorter than the time between two records of the log, so a record's cost is
measured beside the rounds, and each round of ours is charged with its share of one.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from typing import Any

import jax
import numpy as np

from benchmarks import harness
from dawnjax.attempt import Attempt
from dawnjax.call_queue import CallQueue
from dawnjax.cluster import processes
from dawnjax.cluster.options import ProcessOptions
from dawnjax.config.experiment_flags import parse_request
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.journal import RECORD_SECONDS
from dawnjax.machine import compilation
from dawnjax.machine.mesh import make_mesh, place, replicated
from dawnjax.programs import compile_training
from dawnjax.run_record import open_run
from dawnjax.runs.clock import RunClock
from dawnjax.train import calls_in_flight, train_until
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

SETTINGS = {
    "tiny model, 1 step a call": [
        "--experiment=synthetic_image",
        "--data.image_height=4",
        "--data.image_width=4",
        "--model.stage_sizes=1",
        "--model.stage_widths=4",
        "--global_batch_size=8",
        "--batch_norm_group_size=8",
        "--steps_per_call=1",
        "--num_epochs=1000",
    ],
    "digits, as it runs": ["--experiment=digits", "--num_epochs=1000"],
}


def main() -> int:
    """Measures every setting, prints a table and writes `results/loop_overhead.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--calls", type=int, default=300, help="in a round, of a tiny model")
    arguments = parser.parse_args()
    rows = [harness.head("ours", "bare")]
    record = {}
    watchdog = processes.join(ProcessOptions())
    for name, flags in SETTINGS.items():
        calls = arguments.calls if "tiny" in name else max(2, arguments.calls // 30)
        comparison, share = measure(flags, calls, arguments.rounds, watchdog)
        record[name] = {"calls_a_round": calls, "record_share": share, **comparison.to_json()}
        rows.append(comparison.row(name, digits=1))
    print(harness.table(rows))
    print(harness.write("loop_overhead", {"unit": "CPU microseconds a call", **record}))
    return processes.leave(0)


def measure(
    flags: list[str], calls: int, rounds: int, watchdog: Any
) -> tuple[harness.Rounds, float]:
    """Measures one setting.

    Returns:
      Main-thread CPU microseconds a call, ours and bare; and how much of ours is the share of a
      record.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        request, _ = parse_request("train", [*flags, f"--run_dir={folder}/run"])
        experiment, options = request.experiment, request.options
        compilation.configure(options.compile_cache_dir)
        spec = experiment.data.spec()
        mesh = make_mesh(options.mesh, jax.devices()[:1])
        recipe = make_recipe(experiment, spec, mesh)
        shapes = input_shapes(experiment, spec, options, mesh)
        programs = compile_training(recipe, shapes, options.steps_per_call, lambda *_: None)
        make_key = jax.jit(
            lambda: jax.random.key(0, impl=PRNG_IMPLEMENTATION), out_shardings=replicated(mesh)
        )
        key = make_key()
        steps = programs.steps_per_call
        counts = {steps: place(np.array(steps, np.int32), replicated(mesh))}
        feed = TrainFeed(shapes, mesh, experiment.data.load("train"), 0, steps)
        run = open_run(request, spec, RunClock())
        attempt = opened.enter_context(Attempt(run, mesh, watchdog, flags))
        in_flight = calls_in_flight("cpu", steps)
        queue = CallQueue(in_flight)

        record_share = 0.0

        def ours(calls: int = calls) -> float:
            state = programs.initialize(key)
            attempt.journal.record_at = float("inf")
            started = time.thread_time()
            state, _, _ = train_until(
                calls * steps, state, 0, programs, feed, queue, attempt, counts, key
            )
            queue.drain()
            return 1e6 * (time.thread_time() - started) / calls + record_share

        def record() -> float:
            ours(2)
            started = time.thread_time()
            attempt.journal.record_steps(queue, feed.wait_seconds)
            return 1e6 * (time.thread_time() - started)

        def bare() -> float:
            state = programs.initialize(key)
            pending: list[jax.Array] = []
            started = time.thread_time()
            for call in range(calls):
                inputs = feed.inputs(call * steps, steps)
                state, metrics = programs.train(state, feed.resident, inputs, counts[steps], key)
                # The same bound: without it simulated devices may deadlock, and a queue that
                # grows without end would be another program.
                pending.append(metrics.losses)
                if len(pending) > in_flight:
                    pending.pop(0).block_until_ready()
            jax.block_until_ready(pending)
            return 1e6 * (time.thread_time() - started) / calls

        record_microseconds = float(np.median([record() for _ in range(5)]))
        call_seconds = queue.total_seconds * steps / queue.steps_done
        record_share = record_microseconds * call_seconds / RECORD_SECONDS
        comparison = harness.alternate(ours, bare, rounds, warm_ups=2, unit="us a call")
    return comparison, record_share


if __name__ == "__main__":
    sys.exit(main())
