"""What it costs to see where the time goes: the loop with everything on, against everything off.

    python -m benchmarks profile_cost

Outside of profile windows: CPU microseconds of the main thread a call, of the run's own loop and of
the same loop without a word for profiles, in turn, on a tiny model where the host's part is
largest; the spans that make the difference alone; and the CPU time of one sample of the host, of
which there is one a second. Inside a window: wall milliseconds a step of the digits experiment
traced, against not traced, and the bytes that a step's trace takes.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import harness
from benchmarks.loop_overhead import SETTINGS
from dawnjax.attempt import Attempt
from dawnjax.call_queue import CallQueue
from dawnjax.capture import Trainer, trace_window
from dawnjax.cluster import processes
from dawnjax.cluster.options import ProcessOptions
from dawnjax.config.experiment_flags import parse_request
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.machine import compilation
from dawnjax.machine.device_counters import DeviceCounters
from dawnjax.machine.hosts import HostSampler
from dawnjax.machine.mesh import make_mesh, place, replicated
from dawnjax.programs import compile_training
from dawnjax.run_record import open_run
from dawnjax.runs.clock import RunClock
from dawnjax.statistics import interval
from dawnjax.train import CHECKED_CALLS, IN_FLIGHT, train_until
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

FLAGSHIP_STEP_SECONDS = 128 * 24.3e9 / 989.4e12
"""The least that a ResNet-50 step of 128 images can take on an H100: all its FLOPs at the peak of
its data sheet, 3.1 ms. A real step is longer, and the share of it smaller."""


class Bench:
    """A run's loop over one compiled program, without a run around it."""

    def __init__(self, flags: list[str], watchdog: Any, folder: str):
        request, _ = parse_request("train", [*flags, f"--run_dir={folder}/run"])
        experiment, options = request.experiment, request.options
        compilation.configure(options.compile_cache_dir)
        spec = experiment.data.spec()
        mesh = make_mesh(options.mesh, jax.devices()[:1])
        self.recipe = make_recipe(experiment, spec, mesh)
        shapes = input_shapes(experiment, spec, options, mesh)
        self.programs = compile_training(
            self.recipe, shapes, options.steps_per_call, lambda *_: None
        )
        make_key = jax.jit(
            lambda: jax.random.key(0, impl=PRNG_IMPLEMENTATION), out_shardings=replicated(mesh)
        )
        self.key = make_key()
        steps = self.programs.steps_per_call
        self.counts = {
            n: place(np.array(n, np.int32), replicated(mesh)) for n in range(1, steps + 1)
        }
        self.feed = TrainFeed(shapes, mesh, experiment.data.load("train"), 0, steps)
        run = open_run(request, spec, RunClock())
        self.attempt = Attempt(run, mesh, watchdog, flags)
        self.queue = CallQueue(IN_FLIGHT["cpu"])

    def on(self, calls: int) -> float:
        """Main-thread CPU microseconds a call of the run's own loop."""
        steps, state = self.programs.steps_per_call, self.programs.initialize(self.key)
        started = time.thread_time()
        train_until(
            calls * steps,
            state,
            0,
            self.programs,
            self.feed,
            self.queue,
            self.attempt,
            self.counts,
            self.key,
        )
        self.queue.drain()
        return 1e6 * (time.thread_time() - started) / calls

    def off(self, calls: int) -> float:
        """The same of the same loop without spans."""
        steps, state = self.programs.steps_per_call, self.programs.initialize(self.key)
        attempt, feed, queue = self.attempt, self.feed, self.queue
        started = time.thread_time()
        queue.start()
        for count in range(1, calls + 1):
            first, step = (count - 1) * steps, count * steps
            inputs = feed.inputs(first, steps)
            attempt.watchdog.step = step
            state, metrics = self.programs.train(
                state, feed.resident, inputs, self.counts[steps], self.key
            )
            queue.add(metrics, steps)
            if attempt.preemption.holding and attempt.preemption.stops_at(step):
                break
            if count % CHECKED_CALLS == 0 and int(metrics.first_nonfinite_step):
                break
            if queue.last_end > attempt.journal.record_at:
                attempt.journal.record_steps(queue, feed.wait_seconds)
        queue.drain()
        return 1e6 * (time.thread_time() - started) / calls


def main() -> int:
    """Measures both, prints tables and writes `results/profile_cost.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=300, help="in a round, of the tiny model")
    arguments = parser.parse_args()
    watchdog = processes.join(ProcessOptions())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(SETTINGS["tiny model, 1 step a call"], watchdog, folder)
        with bench.attempt:
            loop = harness.alternate(
                lambda: bench.on(arguments.calls),
                lambda: bench.off(arguments.calls),
                arguments.rounds,
                warm_ups=2,
            )
            spans = _span_microseconds(bench.attempt)
    difference = np.subtract(loop.first, loop.second)
    added = interval.mean(difference.tolist())
    sample = _sample_microseconds()
    with tempfile.TemporaryDirectory() as folder:
        window, trace_bytes, steps = _window_cost(watchdog, Path(folder))
    rows = [
        ["quantity", "mean", "95 % interval"],
        ["loop on - off, CPU us a call", f"{added.value:.2f}", added.ends_text(2)],
        ["a call's spans alone, CPU us", f"{spans[0]:.2f}", f"{spans[1]:.2f} to {spans[2]:.2f}"],
        ["spans / shortest ResNet-50 step", f"{1e-6 * spans[0] / FLAGSHIP_STEP_SECONDS:.4%}", ""],
        ["sample of the host, CPU us a second", f"{sample:.0f}", ""],
        ["traced step / untraced, wall", f"{window.ratio.value:.3f}", window.ratio.ends_text()],
        ["trace, kB a step", f"{trace_bytes / steps / 1e3:.0f}", ""],
    ]
    print(harness.table(rows))
    record = {
        "loop": {"unit": "main-thread CPU microseconds a call", **loop.to_json()},
        "spans_microseconds_a_call": spans,
        "flagship_step_seconds": FLAGSHIP_STEP_SECONDS,
        "sample_cpu_microseconds": sample,
        "window": {"unit": "wall seconds a step, traced and not", **window.to_json()},
        "trace_bytes_a_step": trace_bytes / steps,
    }
    print(harness.write("profile_cost", record))
    return processes.leave(0)


def _window_cost(watchdog: Any, folder: Path) -> tuple[harness.Rounds, int, int]:
    """Measures wall seconds a step of digits, traced and not, and a trace's bytes and steps."""
    bench = Bench(SETTINGS["digits, as it runs"], watchdog, str(folder))
    state = bench.programs.initialize(bench.key)
    trainer = Trainer(
        bench.recipe,
        bench.programs,
        bench.feed,
        state,
        0,
        bench.counts,
        bench.key,
        IN_FLIGHT["cpu"],
    )
    call_steps = min(5, bench.programs.steps_per_call)
    calls, number = max(1, 20 // call_steps), 0

    def plain() -> float:
        started = time.perf_counter()
        trainer.calls(calls, call_steps)
        return (time.perf_counter() - started) / (calls * call_steps)

    def traced() -> float:
        nonlocal number
        number += 1
        with trace_window(folder / f"trace_{number}"):
            return plain()

    with bench.attempt:
        comparison = harness.alternate(traced, plain, 7, warm_ups=1)
    files = list((folder / f"trace_{number}").glob("**/*.xplane.pb"))
    return comparison, sum(file.stat().st_size for file in files), calls * call_steps


def _span_microseconds(attempt: Attempt, calls: int = 10_000) -> list[float]:
    """Median, 2.5 % and 97.5 % quantile of the CPU microseconds of a call's two halves, empty."""
    times = []
    get_inputs, call = attempt.profile.named(lambda: None, lambda: None)
    for _ in range(30):
        started = time.thread_time()
        for _ in range(calls):
            get_inputs()
            call()
        times.append(1e6 * (time.thread_time() - started) / calls)
    return [float(np.quantile(times, level)) for level in (0.5, 0.025, 0.975)]


def _sample_microseconds(repetitions: int = 50) -> float:
    """Measures the CPU microseconds of one sample of the host."""
    sampler = HostSampler(
        lambda sample: None,
        devices=jax.local_devices(),
        counters=DeviceCounters(jax.default_backend()),
    )
    sampler.sample()
    started = time.thread_time()
    for _ in range(repetitions):
        sampler.sample()
    return 1e6 * (time.thread_time() - started) / repetitions


if __name__ == "__main__":
    sys.exit(main())
