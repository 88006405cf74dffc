"""Self-play of Minigo: games, positions and simulations a second by the games side by side.

    python -m benchmarks self_play [--games=256,512,1024,2048,4096] [--seconds=540] [--tiny]

One call of the program moves every game once. Games a second are positions a second over the moves
that a generation counts for a game. Utilization is of the network's products alone: those of every
evaluation in a search over the peak of the device for the dtype in which it multiplies.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import harness
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.run_options import MeshShape
from dawnjax.errors import ConfigError
from dawnjax.generations import Generations, compile_generation
from dawnjax.machine import compilation, hardware
from dawnjax.machine.mesh import make_mesh
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

_FLAGS = ("--experiment=minigo_9x9", "--task.gating_games=0", "--task.window_generations=1")

FEWEST_CALLS, MOST_CALLS = 3, 30


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--games", default="", help="numbers of games side by side, with commas")
    parser.add_argument("--seconds", type=float, default=540, help="for everything")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the benchmark")
    arguments = parser.parse_args()
    default = "4,8" if arguments.tiny else "256,512,1024,2048,4096"
    counts = [int(text) for text in (arguments.games or default).split(",")]
    flags = [*_FLAGS, *(("--tiny",) if arguments.tiny else ("--data.made_up_moves=9",))]
    compilation.configure("")
    kind = jax.devices()[0].device_kind
    name = kind.lower().replace(" ", "_") + ("_tiny" if arguments.tiny else "")
    results = harness.Results(f"self_play_{name}", is_tiny=arguments.tiny, device_kind=kind)
    end, rows = time.monotonic() + arguments.seconds, []
    for place, games in enumerate(counts):
        share = (end - time.monotonic()) / (len(counts) - place)
        if share <= 0:
            print(f"no time for {games} games", file=sys.stderr)
            continue
        rows.append(measure(flags, games, share))
        results.add(rows=rows)
        print(rows[-1], flush=True)
    head = ["games", "games/s", "simulations/s", "utilization", "memory GB"]
    print(harness.table([head, *(_cells(row) for row in rows)]))
    print(results.path)
    return 0


def measure(flags: Sequence[str], games: int, seconds: float) -> dict[str, Any]:
    """Row of one number of games, within some seconds; an error of its compilation is a row too."""
    began = time.monotonic()
    try:
        return {"games": games, **_measured([*flags, f"--task.games={games}"], began + seconds)}
    except (ConfigError, jax.errors.JaxRuntimeError) as error:
        return {"games": games, "error": str(error).splitlines()[0][:300]}


def _measured(flags: list[str], end: float) -> dict[str, Any]:
    experiment: Any = parse_request("train", flags)[0].experiment
    spec, device = experiment.data.spec(), jax.devices()[0]
    experiment.validate(spec)
    recipe = make_recipe(experiment, spec, make_mesh(MeshShape(data=1), [device]))
    began = time.perf_counter()
    programs = compile_generation(recipe, lambda *_: None)
    compiled = time.perf_counter() - began
    key = jax.random.key(0, impl=PRNG_IMPLEMENTATION)
    state = jax.jit(recipe.initial_state)(key)
    generations = Generations(recipe, programs, state.made)
    state = generations.advance(state, key)
    calls: list[float] = []
    while len(calls) < FEWEST_CALLS or (len(calls) < MOST_CALLS and time.monotonic() < end):
        began = time.perf_counter()
        state = generations.advance(state, key)
        calls.append(time.perf_counter() - began)
    task = experiment.task
    evaluations = task.games * (task.search.simulations + 1)
    flops = evaluations * task.evaluation_flops(recipe.setting)
    call = float(np.median(calls))
    known, reason = hardware.find_device(device.device_kind)
    dtype = hardware.executed_dtype(device.platform, experiment.compute_dtype, device.device_kind)
    peak = known.peak(dtype) if known is not None else None
    return {
        "moves_a_game": task.moves,
        "simulations_a_move": task.search.simulations,
        "compile_seconds": compiled,
        "seconds_a_call": calls,
        "games_per_second": task.games / task.moves / call,
        "positions_per_second": task.games / call,
        "simulations_per_second": task.games * task.search.simulations / call,
        "model_flops_a_call": flops,
        "utilization": flops / call / peak if peak else None,
        "utilization_reason": "" if peak else reason,
        "dtype": dtype,
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return [str(row["games"]), row["error"], "", "", ""]
    used, size = row["utilization"], row["peak_bytes"]
    return [
        str(row["games"]),
        f"{row['games_per_second']:.3g}",
        f"{row['simulations_per_second']:,.0f}",
        "-" if used is None else f"{100 * used:.2f} %",
        "-" if size is None else f"{size / 1e9:.2f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
