"""Every experiment's tiny variant runs; the full ones are valid and have the shapes they state."""

import json
import math
import typing
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import resnet_50_trunk
from dataset_specs import IMAGENET
from each_change import rows
from networks import count, recipe_of

from dawnjax.__main__ import main
from dawnjax.config.experiment import OptimizerConfig, ScheduleConfig
from dawnjax.config.experiment_modules import experiment_names, load_experiment
from dawnjax.input_pipeline.datasets.parallel_text import ParallelText
from dawnjax.models.configs.llama import LLAMA_SIZES
from dawnjax.models.experts import no_routing
from dawnjax.official import export_mlperf
from dawnjax.optim.optimizers import relative_schedule
from dawnjax.tasks.language_modelling import DROPPED_TOKENS, EXPERT_BALANCE

pytestmark = pytest.mark.compiles


# What no row of tests/support/task_table.py trains: experts and adapters. Stages and record mode
# have runs in tests/train/.
TRIED_AT_EACH_CHANGE = ("gpt_oss_20b", "llama2_70b_lora")


@pytest.mark.parametrize("name", rows(experiment_names(), TRIED_AT_EACH_CHANGE))
def test_the_tiny_variant_takes_two_steps_and_evaluates_on_four_devices(
    name, tmp_path, compile_cache, capsys
):
    if isinstance(load_experiment(name).data, ParallelText):
        pytest.importorskip("sacrebleu", reason="needs sacreBLEU (pip install -e '.[text]')")
    if load_experiment(name).task.makes_examples:
        pytest.importorskip("mctx", reason="needs pgx and mctx (pip install -e '.[selfplay]')")
    run_dir = tmp_path / "run"
    status = main(
        [
            *("train", f"--experiment={name}", "--tiny", "--profile.after_run=false"),
            *(f"--run_dir={run_dir}", compile_cache),
        ]
    )
    assert status in (0, 3), capsys.readouterr().err
    result = json.loads((run_dir / "result.json").read_text())
    last = result["evaluations"][-1]
    tiny = load_experiment(name, is_tiny=True)
    assert last["step"] == tiny.num_steps(tiny.data.spec())
    measured = {metric.name for metric in tiny.task.metrics}
    if no_routing(tiny.model) is None:
        measured -= {EXPERT_BALANCE.name, DROPPED_TOKENS.name}
    assert all(math.isfinite(last[name]) for name in measured)
    made = json.loads((run_dir / "experiment.json").read_text())["experiment"]
    assert made["compute_dtype"] == load_experiment(name).compute_dtype
    assert made["optimizer"]["tag"] == load_experiment(name).optimizer.TAG


SIZES = {
    "imagenet_resnet50": 25_557_032,
    "imagenet_resnet50_mlperf": 25_557_032,
    "imagenet_amoebanet_d": 46_758_756,
    "nuclei_mask_rcnn_small": 443_291,
    "cifar10_resnet18": 11_173_962,
    "cifar10_wide_resnet34": 16_631_130,
    "cifar10_resnet164": 1_703_258,
    # 24 filters of 12 and 24 biases; convolutions of 9 positions; one bias a normalized channel; a
    # classifier without bias.
    "cifar10_record": 24 * 13 + 9 * (24 * 64 + 64**2 + 64 * 256 + 3 * 256**2) + 2 * 576 + 2560,
    "cifar10_speedrun": 1_971_640,
    # By hand: an encoder layer has 4 d^2 + 2 d f + f + d + 4 d parameters, a decoder layer 8 d^2 +
    # 2 d f + f + d + 6 d; then two norms of 2 d and V d of the embedding. The paper's Table 3 says
    # 65 and 213 million, with biases in places and its own vocabulary.
    "multi30k_transformer": 7_569_408,
    "tatoeba_transformer": 3 * (2_100_736 + 3_150_336) + 2_048 + 8_000 * 512,
    "wmt_transformer_base": 6 * (3_150_336 + 4_199_936) + 2_048 + 32_768 * 512,
    "wmt_transformer_big": 6 * (12_592_128 + 16_788_480) + 4_096 + 32_768 * 1024,
}
SOME = (
    "imagenet_resnet50",
    "nuclei_mask_rcnn_small",
    "cifar10_record",
    "multi30k_transformer",
    "wmt_transformer_base",
)


@pytest.mark.parametrize("name", rows(SIZES, SOME))
def test_the_full_size_has_its_parameters(name):
    recipe = recipe_of(load_experiment(name), devices=4)
    assert count(recipe.abstract_state.params) == SIZES[name]


@pytest.mark.parametrize(
    ("name", "target", "num_params", "first", "every", "eval_rows"),
    [
        ("c4_llama31_8b", 3.3, 8_030_261_248, 384, 384, 1024),
        # The released 20,914,757,184, less 72,832 tokens of both tables, and in each of 24 layers
        # the biases of attention (8,000), router (32) and experts (3 x 32 x 2,880), and 64 sinks;
        # beside them the norms of queries and of keys, 2 x 64 x 24.
        (
            *("gpt_oss_20b", 3.34),
            20_914_757_184 - 2 * 72_832 * 2880 - 24 * (8000 + 32 + 276_480 + 64) + 3072,
            *(384, 384, 1024),
        ),
        ("llama2_70b_lora", 0.925, 68_976_648_192 + 44_564_480, 192, 48, 173),
    ],
)
def test_mlperfs_language_models_have_its_rules(name, target, num_params, first, every, eval_rows):
    experiment = load_experiment(name)
    spec = experiment.data.published_spec()
    experiment.validate(spec)
    assert [t.value for t in experiment.targets] == [target]
    assert experiment.data.sequence_length == 8192 and spec.num_eval_examples == eval_rows
    assert experiment.evaluation_steps(spec)[:2] == [first, first + every]
    recipe = recipe_of(experiment, spec, devices=4)
    assert count(recipe.abstract_state.params) == num_params


def test_mlperfs_language_models_have_the_settings_of_their_references():
    """Each as the tables of experiments/mlperf_recipes.md say where it was read."""
    oss, llama, lora = map(load_experiment, ("gpt_oss_20b", "c4_llama31_8b", "llama2_70b_lora"))
    model = oss.model
    assert (model.windows, model.norm_epsilon, model.initial_std) == ((129, 0), 1e-6, 0.008)
    assert model.normalizes_queries and model.scales_projections and oss.task.masks_separators
    assert llama.model.scales_projections and not llama.task.masks_separators
    assert llama.model.initial_std / math.sqrt(2 * llama.model.num_layers) == 0.0025
    assert lora.task.averages == "rows" and lora.data.masks_prompts and lora.data.rows == "apart"
    # Released weights keep the released settings.
    released = LLAMA_SIZES["gpt_oss_20b"]
    assert (released.windows, released.norm_epsilon) == ((128, 0), 1e-5)
    assert not released.normalizes_queries and not LLAMA_SIZES["llama_3_1_8b"].scales_projections


def test_an_export_names_the_rows_that_differ_from_the_reference():
    page = (Path(__file__).parents[2] / "experiments" / "mlperf_recipes.md").read_text()
    for name in experiment_names():
        benchmark = load_experiment(name).mlperf_benchmark
        if not benchmark or benchmark not in export_mlperf.BENCHMARKS:
            continue
        section = page.split(f"\n## {name.removesuffix('_v05')}\n")[1].split("\n## ")[0]
        rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
        differs = tuple(row[1].strip() for row in rows if row[4].strip().startswith("differs"))
        assert differs == export_mlperf.BENCHMARKS[benchmark].differs and len(rows) > 8


def test_the_rate_of_llama_31_8b_stays_after_its_warm_up():
    experiment = load_experiment("c4_llama31_8b")
    rate = relative_schedule(experiment, experiment.data.published_spec())
    warm_up = 4096 // 32
    at = [float(jnp.asarray(rate(step))) for step in (warm_up // 2, warm_up, 12_000, 1_200_000)]
    # The reference reaches its target after 2,700 to 12,000 steps.
    np.testing.assert_allclose(at, [0.5, 1.0, 1.0, 0.1], atol=5e-4)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_the_model_flops_of_resnet_50_by_hand_whatever_computes_them(platform):
    recipe = recipe_of(load_experiment("imagenet_resnet50"), IMAGENET, platform=platform)
    forward = resnet_50_trunk((224, 224))[0] + 2048 * 1000
    assert recipe.train_flops_per_example() == 3 * 2 * forward
    # 4.09 giga multiply-adds are published, which include those by the padding.
    assert forward == pytest.approx(4.089e9 / 1.036, rel=0.001)


def test_lars_ends_at_the_rate_of_its_source():
    experiment = load_experiment("imagenet_resnet50_mlperf")
    rate = relative_schedule(experiment, IMAGENET)
    steps = experiment.num_steps(IMAGENET)
    # The source decays to the default end of TensorFlow's `polynomial_decay`.
    assert 25.0 * float(jnp.asarray(rate(steps))) == pytest.approx(1e-4, rel=1e-3)
    # Half way between warm-up and end a quarter of the peak is left.
    halfway = round((1 + 5 / 72) * steps / 2)
    assert 25.0 * float(jnp.asarray(rate(halfway))) == pytest.approx(25 / 4, rel=1e-3)


@pytest.mark.parametrize(
    ("row", "choices"), [("optimizer", OptimizerConfig), ("schedule", ScheduleConfig)]
)
def test_the_page_of_experiments_lists_what_there_is_to_choose(row, choices):
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {row} |"))
    listed = line.replace(f"--{row}=", "").split("`")[1::2]
    assert sorted(listed) == sorted(choice.TAG for choice in typing.get_args(choices))
