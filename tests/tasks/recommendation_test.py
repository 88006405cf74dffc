"""Recommendation: the network, the draws, the ranks, and runs from a flag to a result."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import PLAIN, count, recipe_of
from task_table import QUIET, TABLE

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.input_pipeline.datasets.movielens import MovieLens
from dawnjax.input_pipeline.reading.interactions import InteractionsSpec, draw_negatives, rated
from dawnjax.models.configs.neumf import NeuMF
from dawnjax.models.pure_model import pure_model
from dawnjax.tasks.recommendation import Recommendation, draw_unseen, ranks_of_first
from dawnjax.tasks.task import Moment

pytestmark = pytest.mark.compiles


NO_SETTING: Any = None
"""For a task that does not look at it."""

FLAGS = (*TABLE["recommendation"].flags, *QUIET)
ML_20M = MovieLens(corpus="ml-20m", num_eval_negatives=999).published_spec()
ML_1M = MovieLens(corpus="ml-1m").published_spec()
ML_100K = MovieLens(corpus="ml-100k").published_spec()


def num_params(config: NeuMF, spec: InteractionsSpec) -> int:
    made = pure_model(
        lambda rngs: config.build(
            num_users=spec.num_users, num_items=spec.num_items, execution=PLAIN, rngs=rngs
        )
    )
    params, _ = jax.eval_shape(made.init, jax.random.key(0))
    return count(params)


def test_published_sizes():
    # MLPerf v0.5's logs of ncf say "31832577 parameters".
    assert num_params(load_experiment("movielens_ml20m_neumf").model, ML_20M) == 31_832_577
    # They have an `input_size` of 19861770, and 138493 users among 999 items.
    assert (ML_20M.num_train_examples, ML_20M.num_eval_examples) == (19_861_770, 138_493)
    assert load_experiment("movielens_ml20m_neumf").data.num_eval_negatives == 999
    assert num_params(load_experiment("movielens_ml100k_neumf").model, ML_100K) == 107_761
    # The paper's networks with 8 factors on MovieLens 1M, by hand.
    rows = 6_040 + 3_706
    assert num_params(NeuMF(gmf_width=8, layer_widths=()), ML_1M) == 8 * rows + 9
    layers = (64 * 32 + 32) + (32 * 16 + 16) + (16 * 8 + 8)
    assert num_params(NeuMF(gmf_width=0), ML_1M) == 32 * rows + layers + 9
    assert num_params(NeuMF(), ML_1M) == 40 * rows + layers + 17


@pytest.mark.parametrize("name, spec", [("ml20m", ML_20M), ("ml100k", ML_100K)])
def test_full_sizes_by_shape_evaluation(name, spec):
    experiment = load_experiment(f"movielens_{name}_neumf")
    experiment.validate(spec)
    recipe = recipe_of(experiment, spec, devices=4)
    recipe.trace()
    widths = experiment.model.layer_widths
    products = zip(widths, widths[1:], strict=False)
    # Five items a user; a user's half of the first layer is computed once.
    layers = 5 * sum(a * b for a, b in products) - 4 * (widths[0] // 2) * widths[1]
    last = 5 * (experiment.model.gmf_width + widths[-1])
    assert recipe.train_flops_per_example() == 3 * 2 * (layers + last)


def test_the_network_against_numpy():
    config = NeuMF(gmf_width=3, layer_widths=(8, 6, 5))
    made = pure_model(
        lambda rngs: config.build(num_users=7, num_items=9, execution=PLAIN, rngs=rngs)
    )
    params, stats = jax.jit(made.init)(jax.random.key(1))
    # Biases too shall be other than zero, and products large enough to be told apart.
    params = jax.tree.map(
        lambda leaf: leaf + 0.3 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), params
    )
    users, items = np.array([6, 0]), np.array([[8, 1, 1], [0, 2, 8]])
    logits, _ = jax.jit(made.apply)(params, stats, users, items)
    p = jax.tree.map(np.asarray, params)
    kernel = np.concatenate([p["user_layer"]["kernel"], p["item_layer"]["kernel"]])
    for row, user in enumerate(users):
        for column, item in enumerate(items[row]):
            # Equations 8, 10 and 12, a pair at a time.
            product = p["gmf_users"][user] * p["gmf_items"][item]
            joined = np.concatenate([p["mlp_users"][user], p["mlp_items"][item]])
            hidden = np.maximum(joined @ kernel + p["user_layer"]["bias"], 0)
            layer = p["layers"][0] if 0 in p["layers"] else p["layers"]["0"]
            hidden = np.maximum(hidden @ layer["kernel"] + layer["bias"], 0)
            both = np.concatenate([product, hidden])
            wanted = both @ p["last"]["kernel"][:, 0] + p["last"]["bias"][0]
            assert float(logits[row, column]) == pytest.approx(float(wanted), abs=1e-5)


def test_ranks_and_gains_by_hand():
    scores = np.array(
        [
            [3.0, 1, 2, 0, 0],  # the first
            [3.0, 3, 2, 4, 0],  # one higher and one equal, which counts as higher
            [3.0, 3, 3, 4, 9],  # the last two are padding
            [math.nan, 1, 2, 0, 0],  # no number: behind all
            [3.0, math.nan, 2, 0, 0],
        ]
    )
    items = np.tile(np.arange(5), (5, 1))
    items[2, 3:] = -1
    assert ranks_of_first(scores, items).tolist() == [0, 2, 2, 4, 1]

    def scorer(users, items):
        return jnp.where(items == 0, 0.0, jnp.where(items <= users[:, None], 1.0, -1.0))

    # The held-out item 0 has as many above it as the user's number says.
    batch = {
        "user": jnp.array([0, 1, 9, 10]),
        "items": jnp.tile(jnp.arange(100), (4, 1)),
    }
    measured = Recommendation().measure(scorer, batch, NO_SETTING)
    assert measured["hit_rate_at_10"].tolist() == [1, 1, 1, 0]
    wanted = [1, math.log(2) / math.log(3), math.log(2) / math.log(11), 0]
    np.testing.assert_allclose(measured["ndcg_at_10"], wanted, rtol=1e-6)


def test_drawn_items_are_unseen_and_even():
    items = np.array([0, 1, 31, 32, 63, 65, 69])
    (seen,) = rated(np.zeros(7, np.int32), items, num_items=70)  # the third word has padding
    drawn = np.asarray(draw_unseen(jax.random.key(0), jnp.asarray(seen), 63_000))
    counts = np.bincount(drawn, minlength=70)
    assert len(counts) == 70 and not counts[items].any()
    left = np.delete(counts, items)
    # 63 items, 1,000 expected of each: chi-squared has mean 62 and deviation 11.
    assert len(left) == 63 and ((left - 1000) ** 2 / 1000).sum() < 62 + 5 * 11.2
    (all_but_one,) = rated(np.zeros(69, np.int32), np.delete(np.arange(70), 64), num_items=70)
    assert set(draw_unseen(jax.random.key(1), jnp.asarray(all_but_one), 9).tolist()) == {64}


def test_negatives_follow_from_seed_step_and_example_alone():
    seen = jnp.zeros((3, 4), jnp.uint32)
    shown = []

    def module(users, items):
        shown.append(items)
        return jnp.zeros(items.shape)

    def negatives(step: int, index: list[int]) -> np.ndarray:
        batch = {"user": jnp.zeros(3, int), "item": jnp.zeros(3, int), "seen": seen}
        moment = Moment(jax.random.key(7), jnp.int32(step), jnp.float32(0))
        losses, count = Recommendation().loss(
            module, batch | {"index": jnp.array(index)}, moment, NO_SETTING
        )
        assert count == 3 and losses.tolist() == pytest.approx([math.log(2)] * 3)
        return np.asarray(shown[-1])[:, 1:]

    first = negatives(5, [10, 20, 30])
    assert first.shape == (3, 4)
    assert (negatives(5, [30, 20, 10]) == first[::-1]).all()  # wherever the example lies
    assert (negatives(6, [10, 20, 30]) != first).any(axis=1).all()  # anew in each epoch


def test_evaluation_negatives_are_unrated_even_and_fixed():
    pairs = np.stack([np.repeat(np.arange(40), 3), np.tile([1, 5, 9], 40)], axis=1)
    drawn = draw_negatives(pairs.astype(np.int32), 12, 200, seed=3)
    assert drawn.shape == (40, 200)
    for row in drawn:
        kept = row[row >= 0]
        # Of nine items 200 draws find all; each counts once, where it was drawn first.
        assert sorted(kept) == [0, 2, 3, 4, 6, 7, 8, 10, 11]
    again = draw_negatives(pairs.astype(np.int32), 12, 200, seed=3)
    assert (again == drawn).all()
    assert (draw_negatives(pairs.astype(np.int32), 12, 200, seed=4) != drawn).any()
    # As they were drawn once: the raw stream of Philox is the same under any NumPy.
    assert drawn[0, :9].tolist() == [3, 4, 7, 2, -1, 11, -1, 10, -1]


def test_other_negatives_are_drawn_for_an_evaluation(train, tmp_path, capsys):
    flags = ["--num_epochs=20", "--targets.0.value=0.7"]
    status, result = train(*flags)
    assert status == 0 and result["reached"]
    capsys.readouterr()
    run = str(tmp_path / "run")
    last = result["evaluations"][-1]
    # Other negatives, and more of them: the held-out item ranks lower.
    others = ["--data.eval_negatives_seed=5", "--data.num_eval_negatives=80", "--name=draw_5"]
    assert main(["evaluate", run, *others]) == 0
    record = json.loads(next(Path(run, "evaluations").glob("draw_5-*.json")).read_text())
    assert record["own"]["metrics"]["hit_rate_at_10"] == last["hit_rate_at_10"]
    assert record["other"]["metrics"]["hit_rate_at_10"] < last["hit_rate_at_10"]
    # The task has no fields of an evaluation to show, and the line ends there.
    assert capsys.readouterr().out.splitlines()[0].endswith(" raw weights")
