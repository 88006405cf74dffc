"""Translation: what the decoder is given, the loss of a batch, and that GNMT learns."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install -e '.[text]')")
from first_steps import build, run_steps, train_steps
from task_table import TABLE

from dawnjax.tasks.translation import decoder_inputs
from dawnjax.train_step import PRNG_IMPLEMENTATION

pytestmark = pytest.mark.compiles

FLAGS = TABLE["translation"].flags


def test_decoder_inputs_move_on_inside_each_segment():
    targets = jnp.array([[7, 8, 1, 9, 1, 0]])
    segments = jnp.array([[1, 1, 1, 2, 2, 0]])
    assert decoder_inputs(targets, segments)[0, :5].tolist() == [0, 7, 8, 0, 9]


@pytest.mark.long
def test_a_batch_in_parts_has_the_same_loss():
    """Rows hold different numbers of tokens, so that means of parts would differ."""
    _, whole = train_steps(1, *FLAGS, "--model.dropout_rate=0")
    flags = ["--model.dropout_rate=0", "--accumulation_steps=2"]
    _, losses = train_steps(4, *FLAGS, *flags)
    np.testing.assert_allclose(losses, whole, atol=2e-5)


def test_the_loss_is_the_mean_over_tokens_and_not_over_rows():
    recipe, _ = build(1, *FLAGS, "--task.label_smoothing=0", "--model.dropout_rate=0")
    key = jax.random.key(0, impl=PRNG_IMPLEMENTATION)
    state = jax.jit(recipe.initial_state)(key)
    rows = {
        name: jnp.array(array[:4]) for name, array in recipe.experiment.data.load("train").items()
    }
    # One row is left with a single sentence, so that means over rows and over tokens differ.
    first = rows["target_segments"] == 1
    keep = first | (jnp.arange(4) > 0)[:, None]
    rows["target"] = jnp.where(keep, rows["target"], 0)
    rows["target_segments"] = jnp.where(keep, rows["target_segments"], 0)
    _, loss = jax.jit(recipe.train_step)(state, rows, key)
    segments = rows["target_segments"].astype(int)

    @jax.jit
    def softmax(params):
        module = recipe.model.bind(params, {})
        hidden = module(
            rows["source"].astype(int),
            rows["source_segments"].astype(int),
            decoder_inputs(rows["target"].astype(int), segments),
            segments,
        )
        return jax.nn.softmax(module.logits(hidden))

    probabilities = np.array(softmax(state.params), np.float64)
    losses = [
        -math.log(probabilities[row, position, int(rows["target"][row, position])])
        for row in range(4)
        for position in range(segments.shape[1])
        if segments[row, position]
    ]
    assert float(loss) == pytest.approx(sum(losses) / len(losses), abs=1e-5)


@pytest.mark.long
def test_gnmt_learns_to_translate_words_in_their_places():
    flags = ["--num_epochs=40", "--model.width=48", "--model.dropout_rate=0"]
    flags += ["--optimizer.base_learning_rate=1e-2", "--schedule.warmup_epochs=2"]
    flags += ["--model.initial_bound=0.3", "--model.num_layers=2", "--compute_dtype=bfloat16"]
    flags += ["--evaluation.weights=raw"]
    losses, metrics = run_steps(1, *TABLE["gnmt"].flags, *flags, steps=320)
    # Nothing that ignores the source has a loss below the mean entropy of a word, about 2.5.
    assert float(metrics["loss"]) < 1.0 and losses[-1] < losses[0] - 1
    assert float(metrics["bleu"]) > 30
