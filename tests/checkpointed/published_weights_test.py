"""Published weights: what a run takes from files of safetensors, and which files it refuses."""

import json
import os

import ml_dtypes
import numpy as np
import pytest
import small_weights
from etils import epath
from first_steps import build
from small_weights import STRETCHED, tensors
from told import told
from trained import result_of

from dawnjax.__main__ import main
from dawnjax.checkpointed.initial_parameters import Source
from dawnjax.checkpointed.published_weights import PublishedWeights
from dawnjax.checkpoints.arrays import by_path, signature
from dawnjax.checkpoints.saved import VERSION, Content, content_of, folders
from dawnjax.config.config_json import to_json
from dawnjax.errors import ConfigError
from dawnjax.models.configs.llama import LLAMA_SIZES
from dawnjax.programs import state_shapes

numpy_files = pytest.importorskip(
    "safetensors.numpy", reason="the extra `weights` is not installed"
)

FLAGS = (
    *("--experiment=wikipedia_llama_small", "--data=synthetic_tokens", "--model.width=8"),
    *("--model.num_layers=2", "--model.num_heads=2", "--model.num_kv_heads=1"),
    *("--model.head_width=4", "--model.mlp_width=12", "--global_batch_size=16", "--num_epochs=1"),
    *("--max_steps=0", "--evaluation.every_steps=1", "--schedule.warmup_epochs=0.1"),
)
LORA = ("--model.lora.rank=2", "--model.lora.targets=qkv,output")


def write(path, made):
    numpy_files.save_file(made, path / "model.safetensors")
    return PublishedWeights(path)


def recipe_of(*flags, devices=1):
    return build(devices, *FLAGS, *flags)[0]


def taken_by(weights, recipe):
    """Arrays that are taken, by path, and the paths of those that stay fresh."""
    chosen, leaves = weights.choose(recipe), by_path(state_shapes(recipe))
    read = weights.read(recipe, {n: leaves[n] for n in chosen if chosen[n]}, lambda: None)
    return read, [name for name, taken in chosen.items() if not taken]


def test_each_device_reads_its_part_in_our_layout(tmp_path):
    made = tensors()
    weights = write(tmp_path, made)
    recipe = recipe_of("--mesh.model=1", "--mesh.fsdp=2", devices=2)
    read, fresh = taken_by(weights, recipe)
    assert not fresh and len(read) == 12
    for layer in range(2):
        wanted = made[f"model.layers.{layer}.self_attn.k_proj.weight"].T
        np.testing.assert_array_equal(read["params/blocks/key"][layer], wanted)
    np.testing.assert_array_equal(read["params/classifier"], made["lm_head.weight"].T)
    np.testing.assert_array_equal(read["params/embedding"], made["model.embed_tokens.weight"])


def test_lower_dtypes_are_read_and_adapters_stay_fresh(tmp_path):
    made = {name: array.astype(ml_dtypes.bfloat16) for name, array in tensors().items()}
    recipe = recipe_of(*LORA, "--model.param_dtype=bfloat16")
    weights = write(tmp_path, made)
    read, fresh = taken_by(weights, recipe)
    assert sorted(fresh)[0] == "params/adapters/key_out" and len(fresh) == 6
    query = read["params/blocks/query"]
    assert query.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(query[1], made["model.layers.1.self_attn.q_proj.weight"].T)


def test_tensors_that_repeat_others_are_left_out(tmp_path):
    made = tensors()
    made["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(2, np.float32)
    weights = write(tmp_path, made)
    weights.check(recipe_of())
    tied = recipe_of("--model.ties_embedding=true")
    with pytest.raises(ConfigError, match="lm_head.weight is not a tensor of the model"):
        weights.check(tied)
    del made["lm_head.weight"]
    write(tmp_path, made).check(tied)


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, ()),
        ({"rope_scaling": STRETCHED}, ("--model.rotary.scaling=llama3",)),
        ({"sliding_window": 16}, ("--model.windows=16",)),
        ({"sliding_window": 32}, ()),  # as long as a row
    ],
)
def test_settings_that_fit_are_taken(changes, flags, tmp_path):
    """tests/golden/weights.txt has those that do not."""
    small_weights.write(str(tmp_path), **changes)
    for path in (tmp_path, tmp_path / "model.safetensors"):
        PublishedWeights(path).check(recipe_of(*flags))


def test_the_settings_of_a_released_gpt_oss_are_those_of_our_size():
    fields = json.loads("""{
        "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "head_dim": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 2880,
        "num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": 7.0,
        "rms_norm_eps": 1e-5, "rope_theta": 150000, "sliding_window": 128, "hidden_act": "silu",
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "truncate": false, "original_max_position_embeddings": 4096}}""")
    fields["layer_types"] = ["sliding_attention", "full_attention"] * 12
    assert LLAMA_SIZES["gpt_oss_20b"].other_settings(fields, 0, 8192) == []
    others = LLAMA_SIZES["gpt_oss_20b_mlperf"].other_settings(fields, 0, 8192)
    assert {setting.flag.partition("=")[0].removeprefix("--model.") for setting in others} == {
        *("norm_epsilon", "experts.activation", "rotary.scaling", "rotary.factor", "windows"),
        *("rotary.original_length", "rotary.high"),
    }


def test_a_damaged_file_is_one_line(tmp_path):
    write(tmp_path, tensors())
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for damaged in (b"", whole[:100], b"\xff" * 8 + whole[8:], whole[:-1], b"{}" * 20):
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match="model.safetensors: .") as error:
            PublishedWeights(tmp_path).check(recipe_of())
        assert len(str(error.value).splitlines()) == 1
    file.unlink()
    os.mkfifo(file)  # would wait for its writer for ever
    with pytest.raises(ConfigError, match="is not a plain file"):
        PublishedWeights(tmp_path).check(recipe_of())


def test_adapters_take_their_base_from_a_run_in_another_dtype(tmp_path):
    source, lora = recipe_of(), recipe_of(*LORA, "--model.param_dtype=bfloat16")
    leaves = by_path({"params": source.abstract_state.params})
    arrays = {name: signature(leaf) for name, leaf in leaves.items()}
    content = Content(version=VERSION, step=0, calls=0, metadata={}, arrays=arrays)
    run = Source(tmp_path, {"experiment": to_json(source.experiment)}, content, {})
    chosen = run.choose(lora)
    assert chosen["params/blocks/query"] == "params/blocks/query"
    assert chosen["params/adapters/query_out"] == ""
    other = recipe_of(*LORA, "--model.rotary.base=5e5", "--model.remat=full")
    with pytest.raises(ConfigError, match=r"model.rotary.base is 10000.0 in it and 500000.0 in th"):
        run.choose(other)
    arrays["params/norm"] = "float32[9]"
    with pytest.raises(ConfigError, match=r"params/norm is float32\[9\] in it and bfloat16\[8\]"):
        run.choose(lora)


@pytest.mark.compiles
def test_adapters_of_published_weights_are_trained_and_nothing_else(
    tmp_path, compile_cache, capsys
):
    """From the command line: the base stays bit for bit, and the optimizer has adapters alone."""
    made = tensors()
    write(tmp_path, made)
    run = tmp_path / "run"
    flags = [*FLAGS, *LORA, f"--initialize_from={tmp_path}", "--profile.after_run=false"]
    flags += ["--tensorboard=false", "--checkpoint.every_steps=1", compile_cache]
    assert main(["train", *flags, f"--run_dir={run}"]) == 3
    result = result_of(run)
    assert result["initialized_from"].startswith("published weights, sha256 ")
    # The checkpoint holds the adapters and their moments, and of the base its description alone.
    newest = next(iter(folders(epath.Path(run / "checkpoints")).values()))
    content = content_of(newest)
    kept = [name for name in content.arrays if name.startswith("params/")]
    moments = [name for name in content.arrays if "/mu/" in name]
    assert len(kept) == len(moments) == 6 and all("adapters/" in n for n in [*kept, *moments])
    assert content.metadata["base"] == result["initialized_from"]

    # Whatever uses it takes the base again: a resume, an evaluation, an export.
    row = told(capsys, "evaluate", str(run))
    last = result["evaluations"][-1]
    assert row["step"] == last["step"]
    assert row["own"]["metrics"]["loss"] == pytest.approx(last["loss"], rel=1e-6)
    out = tmp_path / "out"
    assert main(["export", "--format=safetensors", str(run), f"--out={out}"]) == 0
    exported = numpy_files.load_file(out / "model.safetensors")
    value = exported["params/blocks/value"][0]
    np.testing.assert_array_equal(value, made["model.layers.0.self_attn.v_proj.weight"].T)
    assert np.abs(exported["params/adapters/value_out"]).max() > 0

    # Another base is refused in one line.
    capsys.readouterr()
    made["model.norm.weight"][0] += 1
    write(tmp_path, made)
    assert main(["evaluate", str(run)]) == 1
    error = capsys.readouterr().err
    assert "has changed since this run began" in error and error.count("\n") == 1
