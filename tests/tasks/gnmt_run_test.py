"""GNMT from a flag to a result: devices, dtypes, resuming, and the commands that read a run."""

import json
import math

import jax
import numpy as np
import pytest

pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install 'dawnjax[text]')")
from first_steps import run_steps
from trained import failing_at_call, final_state_of, result_of

from dawnjax.__main__ import main
from dawnjax.config.experiment_flags import load_experiment, parse_request
from dawnjax.config.run_options import RunOptions
from dawnjax.input_pipeline.datasets.parallel_text import ParallelText
from dawnjax.machine.mesh import make_mesh
from dawnjax.official.mlperf_rounds import model as official_model
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

FLAGS = [
    "--experiment=multi30k_gnmt",
    "--data=synthetic_text",
    "--data.num_train_examples=64",
    "--data.num_eval_examples=13",  # not a multiple of the devices
    "--model.num_layers=3",
    "--model.width=16",
    "--global_batch_size=8",
    "--evaluation.first_epoch=0",
    "--evaluation.every_epochs=1",
    "--evaluation.global_batch_size=8",
    "--task.decoding.max_extra_tokens=4",
    "--schedule.warmup_epochs=0.1",
    "--num_epochs=2",
    "--targets.0.value=100",
    "--tensorboard=false",
    "--profile.after_run=false",
]
FLOAT32 = "--compute_dtype=float32"
LEARNS = [
    *("--num_epochs=40", "--model.width=48", "--model.dropout_rate=0", "--evaluation.weights=raw"),
    *("--optimizer.base_learning_rate=1e-2", "--schedule.warmup_epochs=2"),
    *("--model.initial_bound=0.3", "--model.num_layers=2"),
]
"""What lets the small translator say something: 320 steps."""


def test_the_number_of_devices_and_the_placement_do_not_change_the_mathematics():
    alone, metrics = run_steps(1, *FLAGS, FLOAT32)
    assert np.isfinite(alone).all() and len(set(alone)) == 6
    # Sums are split differently: the last bits differ and grow step by step.
    # Two devices share each parameter, and two pairs of devices the batch.
    losses, sharded = run_steps(4, *FLAGS, FLOAT32, "--mesh.fsdp=2", "--data_placement=host")
    np.testing.assert_allclose(losses, alone, atol=2e-5)
    assert sharded["loss"] == pytest.approx(metrics["loss"], abs=2e-5)


def test_it_learns_to_translate_words_in_their_places():
    losses, metrics = run_steps(1, *FLAGS, *LEARNS, "--compute_dtype=bfloat16", steps=320)
    # Nothing that ignores the source has a loss below the mean entropy of a word, about 2.5.
    assert float(metrics["loss"]) < 1.0 and losses[-1] < losses[0] - 1
    assert float(metrics["bleu"]) > 30


@pytest.fixture
def train(tmp_path, compile_cache):
    """Runs `dawnjax train` on made-up text; gives the exit status and the result."""

    def run(*flags: str, run_dir: str = "run"):
        directory = tmp_path / run_dir
        status = main(["train", *FLAGS, f"--run_dir={directory}", compile_cache, *flags])
        return status, result_of(directory) if (directory / "result.json").exists() else None

    return run


def test_a_run_that_resumes_ends_bit_for_bit_as_one_that_does_not(train, tmp_path):
    flags = ["--checkpoint.every_steps=4", "--steps_per_call=4"]
    assert train(*flags, run_dir="whole")[0] == 3
    with failing_at_call(3):
        assert train(*flags, run_dir="cut")[0] == 1
    status, result = train(*flags, run_dir="cut")
    assert status == 3 and result["interruptions"] == 1
    step, state = final_state_of(tmp_path / "whole")
    resumed_step, resumed = final_state_of(tmp_path / "cut")
    assert step == resumed_step == 16 and (state == resumed).all()


def test_a_run_is_evaluated_answered_and_reported(train, tmp_path, capsys):
    status, result = train()
    assert status == 3 and result["steps"] == 16
    last, run = result["evaluations"][-1], str(tmp_path / "run")
    capsys.readouterr()
    assert main(["evaluate", run]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (again["bleu"], again["loss"]) == (last["bleu"], last["loss"])
    beam = ["--task.decoding.num_beams=5", "--task.decoding.coverage_penalty=0.1"]
    assert main(["evaluate", run, *beam, "--task.scoring.is_cased=false"]) == 0
    uncased = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert uncased["loss"] == last["loss"] and "case:lc" in uncased["bleu_signature"]
    assert main(["infer", run, "--examples=13"]) == 0
    assert f"bleu {last['bleu']:.2f}" in capsys.readouterr().out
    assert main(["report", run, f"--out={tmp_path / 'page'}"]) == 0
    assert "BLEU" in (tmp_path / "page" / "index.html").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model.num_layers=1"], "model.num_layers=1 must be 2 or more"),
        (["--model.initial_bound=0"], "model.initial_bound=0.0 must be above 0"),
        (["--model.embedding_bound=0"], "model.embedding_bound=0.0 must be above 0"),
        (["--task.scoring.tokenizer=char"], "task.scoring.tokenizer"),
    ],
)
def test_what_does_not_fit_is_one_line(flags, message, train, capsys):
    status, _ = train(*flags)
    error = capsys.readouterr().err
    assert status == 2 and message in error and "Traceback" not in error


def test_a_model_that_sums_no_attention_refuses_a_coverage_penalty(capsys):
    flags = ["--experiment=multi30k_transformer", "--data=synthetic_text"]
    assert main(["train", *flags, "--task.decoding.coverage_penalty=0.1"]) == 2
    assert "model=transformer does not: give 0" in capsys.readouterr().err


def test_model_flops_are_three_times_the_forward_products():
    request, _ = parse_request("train", FLAGS)
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


def test_the_target_and_the_model_are_the_official_ones():
    experiment = load_experiment("wmt_gnmt")
    (target,) = experiment.targets
    assert (target.metric, target.value) == ("bleu", 21.8)
    scoring = experiment.task.scoring
    assert (scoring.is_cased, scoring.tokenizer) == (False, "intl")
    assert official_model("gnmt") == "GNMT"
