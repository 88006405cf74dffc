"""GNMT: that it learns, its sizes and products, and what the commands say of its run."""

import math

import jax
import numpy as np
import pytest

pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install -e '.[text]')")
from first_steps import run_steps
from task_table import TABLE, copied_run
from told import told
from trained import result_of

from dawnjax.config.experiment_flags import load_experiment, parse_request
from dawnjax.config.run_options import RunOptions
from dawnjax.input_pipeline.datasets.parallel_text import ParallelText
from dawnjax.machine.mesh import make_mesh
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

pytestmark = pytest.mark.compiles

FLAGS = TABLE["gnmt"].flags
LEARNS = [
    *("--num_epochs=40", "--model.width=48", "--model.dropout_rate=0", "--evaluation.weights=raw"),
    *("--optimizer.base_learning_rate=1e-2", "--schedule.warmup_epochs=2"),
    *("--model.initial_bound=0.3", "--model.num_layers=2"),
]
"""Flags for 320 steps, after which the small translator produces words."""


@pytest.mark.long
def test_it_learns_to_translate_words_in_their_places():
    losses, metrics = run_steps(1, *FLAGS, *LEARNS, "--compute_dtype=bfloat16", steps=320)
    # Nothing that ignores the source has a loss below the mean entropy of a word, about 2.5.
    assert float(metrics["loss"]) < 1.0 and losses[-1] < losses[0] - 1
    assert float(metrics["bleu"]) > 30


@pytest.mark.long
def test_evaluate_searches_with_beams_and_scores_without_case(
    tmp_path_factory, tmp_path, compile_cache, capsys
):
    run = str(copied_run(tmp_path_factory, "gnmt", compile_cache, tmp_path / "run"))
    beam = ["--task.decoding.num_beams=5", "--task.decoding.coverage_penalty=0.1"]
    found = told(capsys, "evaluate", run, *beam, "--task.scoring.is_cased=false")
    uncased = found["own"]["metrics"]
    last = result_of(tmp_path / "run")["evaluations"][-1]
    assert uncased["loss"] == last["loss"] and "case:lc" in uncased["bleu_signature"]


def test_model_flops_are_three_times_the_forward_products():
    request, _ = parse_request("train", list(FLAGS))
    spec = request.experiment.data.spec()
    recipe = make_recipe(request.experiment, spec, make_mesh(RunOptions().mesh, jax.devices()))
    sources, targets = request.experiment.data.train_pair_lengths()
    # Width 16: both directions and the second layer of the encoder, the third; the decoder's three.
    encoder = 4 * 256 * (4 + 3 + 2) + 256
    decoder = 4 * 256 * (2 + 3 + 3) + 256 + 16 * spec.vocabulary_size
    attention = 2 * 16 * int((sources * targets).sum())
    products = int(sources.sum()) * encoder + int(targets.sum()) * decoder + attention
    assert recipe.train_flops_per_example() == pytest.approx(6 * products / 64)


@pytest.mark.parametrize(
    ("name", "num_params"), [("multi30k_gnmt", 7_386_433), ("wmt_gnmt", 160_634_433)]
)
def test_full_sizes_by_shape_evaluation(name, num_params):
    experiment = load_experiment(name)
    assert isinstance(experiment.data, ParallelText)
    spec = experiment.data.published_spec()
    experiment.validate(spec)
    recipe = make_recipe(experiment, spec, make_mesh(RunOptions().mesh, jax.devices()))
    key = jax.eval_shape(lambda: jax.random.key(0, impl=PRNG_IMPLEMENTATION))
    state = jax.eval_shape(recipe.initial_state, key)
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state.params)) == num_params
    shapes = spec.example_shapes("train").items()
    batch = {
        name: jax.ShapeDtypeStruct((experiment.global_batch_size, *shape), np.dtype(dtype))
        for name, (shape, dtype) in shapes
    }
    after, loss = jax.eval_shape(recipe.train_step, state, batch, key)
    assert loss.shape == () and loss.dtype == np.float32
    same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), state, after)
    assert all(jax.tree.leaves(same))
