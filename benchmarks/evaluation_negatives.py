"""Spread of HR@10 and NDCG@10 over draws of the evaluation's negatives, on MovieLens 100K.

    DAWNJAX_DATA=data python -m benchmarks evaluation_negatives --seeds=10 --draws=200

MLPerf v0.5 draws them once: all trials of all submitters rank each held-out item among the same 999
items. Here one network a seed is trained for the recipe's whole length. Each ranks the held-out
items among 99 and 999 items of many draws, and among all items that the user never rated. Then one
seed is trained to the target under many draws. Its parameters are the same at every step, so only
the measure differs.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness, seeds
from dawnjax.checkpointed.earlier_run import read_run, restore
from dawnjax.config.run_options import MeshShape, RunOptions
from dawnjax.input_pipeline.reading.interactions import draw_negatives
from dawnjax.machine.mesh import make_mesh
from dawnjax.tasks.recommendation import measures, ranks_of_first

NAME = "movielens_ml100k_neumf"
PROTOCOLS = (99, 999)
METRICS = ("hit_rate_at_10", "ndcg_at_10")


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--trials", type=int, default=20, help="to the target, one a draw")
    parser.add_argument("--name", default="evaluation_negatives", help="of the result file")
    arguments = parser.parse_args()
    results = harness.Results(
        arguments.name, experiment=NAME, draws=arguments.draws, num_seeds=arguments.seeds
    )
    with tempfile.TemporaryDirectory() as folder:
        ranked = [_ranked(Path(folder), seed, arguments.draws) for seed in range(arguments.seeds)]
    rows = [_row(protocol, metric, ranked) for protocol in PROTOCOLS for metric in METRICS]
    everything = {metric: [network["all"][metric] for network in ranked] for metric in METRICS}
    results.add(protocols=rows, all_items=everything)
    results.add(trials=[_to_target(draw) for draw in range(arguments.trials)])
    for row in rows:
        print({name: value for name, value in row.items() if name != "values"}, flush=True)
    print(results.path)
    return 0


def _ranked(folder: Path, seed: int, num_draws: int) -> dict[str, Any]:
    """Metrics of one trained network under every draw: float [draws] by protocol and name, and
    those among `all` items.
    """
    trial = seeds.run_trial(
        NAME, seed, ["--targets.0.value=1", "--profile.after_run=false"], folder
    )
    if trial["status"] != "not_reached":
        sys.exit(f"evaluation_negatives: seed {seed}: {trial}")
    run: Any = read_run(folder / f"{NAME}_{seed}")
    pairs = _pairs(run.experiment.data)
    scores = _scores(run)
    num_items = run.spec.num_items

    def measured(items: np.ndarray) -> dict[str, float]:
        of_items = np.take_along_axis(scores, np.maximum(items, 0), axis=1)
        values = measures(ranks_of_first(of_items, items))
        return {name: float(value.mean()) for name, value in values.items()}

    held_out = pairs[np.append(pairs[1:, 0] != pairs[:-1, 0], True), 1:]
    answer: dict[str, Any] = {}
    for count in PROTOCOLS:
        under = [
            measured(np.concatenate([held_out, _negatives(pairs, num_items, count, draw)], axis=1))
            for draw in range(num_draws)
        ]
        answer[str(count)] = {name: [values[name] for values in under] for name in METRICS}
    everything = np.tile(np.arange(num_items, dtype=np.int32), (len(scores), 1))
    everything[pairs[:, 0], pairs[:, 1]] = -1
    answer["all"] = measured(np.concatenate([held_out, everything], axis=1))
    last = trial["last"]
    if abs(answer["99"]["hit_rate_at_10"][0] - last) > 1e-6:
        sys.exit(f"evaluation_negatives: seed {seed} had {last} in its run, and not here")
    print(f"seed {seed}: {last:.4f} in the run, {answer['all']} among all items", flush=True)
    return answer


def _pairs(data: Any) -> np.ndarray:
    """Ratings by user, int32 [ratings, 2]; the held-out one of each user stands last."""
    train, held_out = data.load("train"), data.load("eval")
    users = np.concatenate([train["user"], held_out["user"]])
    items = np.concatenate([train["item"], held_out["items"][:, 0]])
    order = np.argsort(users, kind="stable")
    return np.stack([users[order], items[order]], axis=1)


_DRAWN: dict[tuple[int, int], np.ndarray] = {}


def _negatives(pairs: np.ndarray, num_items: int, count: int, draw: int) -> np.ndarray:
    """Negatives of a draw, which all networks share."""
    if (count, draw) not in _DRAWN:
        _DRAWN[count, draw] = draw_negatives(pairs, num_items, count, draw)
    return _DRAWN[count, draw]


def _scores(run: Any) -> np.ndarray:
    """Score of every item for every user: float32 [users, items]."""
    mesh = make_mesh(MeshShape(), jax.devices()[:1])
    recipe, restored = restore(run, mesh, RunOptions(), "evaluate")
    users, items = jnp.arange(run.spec.num_users), jnp.arange(run.spec.num_items)

    @jax.jit
    def scores(params: Any, rows: jax.Array) -> jax.Array:
        module = recipe.model.bind(params, {})
        return module(rows, jnp.broadcast_to(items, (len(rows), len(items))))

    parts = [scores(restored.state.params, rows) for rows in jnp.array_split(users, 8)]
    return np.concatenate(parts)


def _row(protocol: int, metric: str, ranked: list[dict[str, Any]]) -> dict[str, Any]:
    values = np.array([network[str(protocol)][metric] for network in ranked])
    return {
        "num_negatives": protocol,
        "metric": metric,
        "mean": float(values.mean()),
        "official_draw_mean": float(values[:, 0].mean()),
        "std_over_draws": float(values.std(axis=1).mean()),
        "std_over_seeds": float(values.std(axis=0).mean()),
        "std_of_draw_means": float(values.mean(axis=0).std()),
        "least_and_most_draw_mean": [float(f(values.mean(axis=0))) for f in (np.min, np.max)],
        "values": values.round(6).tolist(),
    }


def _to_target(draw: int) -> dict[str, Any]:
    """One seed, trained until the metric under this draw reaches the target."""
    flags = [f"--data.eval_negatives_seed={draw}", "--profile.after_run=false"]
    trial = seeds.run_trial(NAME, 0, flags)
    print(f"draw {draw}: reached {trial['reached']} after {trial['epochs']:.1f} epochs", flush=True)
    names = ("reached", "epochs", "time_to_accuracy_seconds", "best")
    return {"draw": draw, **{name: trial[name] for name in names}}


if __name__ == "__main__":
    sys.exit(main())
