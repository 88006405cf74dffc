"""Sharded updates, accumulation, XLA's options: what is compiled, and that it computes the same."""

import dataclasses
import json
import math
import re
from typing import Any

import jax
import numpy as np
import pytest
import trained
from device_counts import first_losses
from first_steps import build, train_text, training

from dawnjax.__main__ import main
from dawnjax.capture import twin
from dawnjax.programs import options_for_size, state_shapes, xla_options
from dawnjax.runs.log import read_events
from dawnjax.train_step import Recipe

pytestmark = pytest.mark.compiles

SMALL = (
    *trained.SMALL,
    *("--batch_norm_group_size=2", "--model.stage_widths=64", "--ema_decay=0.9"),
)

OTHER_COLLECTIVES = ("all-to-all", "collective-permute", "reduce-scatter")


def compiled(*flags: str) -> tuple[Recipe, str]:
    """Recipe of a small experiment on four devices, and its train program as text."""
    text = train_text(training(4, *SMALL, *flags))
    return build(4, *SMALL, *flags)[0], re.sub(r"/\*.*?\*/", "", text)


def collectives(text: str, kind: str) -> list[tuple[str, int, str]]:
    """Computation, elements and source of each collective of a kind in a program."""
    found, computation = [], ""
    for line in text.splitlines():
        if line and not line.startswith(" ") and "{" in line:
            computation = line.split()[0]
        match = re.search(rf"= (\(?[^=]*?) {kind}(?:-start)?\(", line)
        if match:
            sizes = re.findall(r"\w+\[([\d,]*)\]", match[1])
            elements = sum(math.prod(int(n) for n in dims.split(",") if n) for dims in sizes)
            source = re.search(r'op_name="([^"]*)"', line)
            found.append((computation, elements, source[1] if source else ""))
    return found


def num_elements(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("flags", [(), ("--accumulation_steps=2",)], ids=["plain", "accumulated"])
def test_data_parallel_reduces_its_gradients_once(flags):
    recipe, text = compiled(*flags)
    for kind in (*OTHER_COLLECTIVES, "all-gather"):
        assert not collectives(text, kind), kind
    reductions = collectives(text, "all-reduce")
    # In no loop, which holds the layers; every gradient once, and the statistics with the loss.
    assert {computation for computation, _, _ in reductions} == {"ENTRY"}
    state = jax.eval_shape(recipe.initial_state, jax.random.key(0))
    expected = num_elements(state.params) + num_elements(state.batch_stats) + 1
    assert sum(elements for _, elements, _ in reductions) == expected


def test_a_sharded_update_gathers_the_new_parameters_alone():
    recipe, text = compiled("--weight_update_sharding")
    state = state_shapes(recipe)
    split = [leaf for leaf in jax.tree.leaves(state.params) if leaf.size >= 2**14]
    assert split and all(leaf.sharding.is_fully_replicated for leaf in split)
    for kept in (state.opt_state, state.ema_params):
        large = [leaf for leaf in jax.tree.leaves(kept) if leaf.size >= 2**14]
        assert len(large) == len(split)
        # Each device holds a quarter.
        parts = [math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in large]
        assert parts == [leaf.size // 4 for leaf in large]
    for kind in OTHER_COLLECTIVES:  # XLA makes all-reduces of reduce-scatters on CPU
        assert not collectives(text, kind), kind
    gathers = collectives(text, "all-gather")
    assert sum(elements for _, elements, _ in gathers) == num_elements(split)
    # None comes from a layer: they are of the sum of a parameter and its update.
    assert all(re.fullmatch(r"jit\(call\)/\w+", source) for _, _, source in gathers), gathers
    params = num_elements(state.params)
    reduced = sum(elements for _, elements, _ in collectives(text, "all-reduce"))
    assert reduced == params + num_elements(state.batch_stats) + 1
    assert "optimizer's state is sharded" in twin.why_not(recipe)


@pytest.mark.processes
def test_as_many_devices_as_one_likes_compute_the_same_losses():
    """Groups of two on 1 and 8 devices; plain, and with sharded updates."""

    def case(count: int, *flags: str) -> tuple:
        return (count, *SMALL, "--steps_per_call=1", *flags)

    cases = {f"plain on {count}": case(count) for count in (1, 8)}
    cases["sharded update on 8"] = case(8, "--weight_update_sharding")
    found = first_losses(cases, 4)
    wanted = found["plain on 1"]
    assert len(set(wanted)) == 4
    for name, losses in found.items():
        # Sums are made in another order: 1e-5 holds for four steps.
        np.testing.assert_allclose(losses, wanted, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("xla_nonsense=1", "xla_options: No such compile option: 'xla_nonsense'"),
        (
            "xla_backend_optimization_level=x",
            "xla_options: While setting option xla_backend_optimization_level, 'x' is not a valid",
        ),
    ],
)
def test_an_option_that_xla_does_not_know_ends_in_one_line(
    option, message, tmp_path, compile_cache, capsys
):
    command = ["train", *SMALL, f"--xla_options={option}", f"--run_dir={tmp_path / 'run'}"]
    assert main([*command, compile_cache]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_options_of_xla_are_in_the_cache_key_and_in_the_log(tmp_path):
    cache = f"--compile_cache_dir={tmp_path / 'compiled'}"  # a kept one may hold the first already
    common = ["train", *SMALL, "--num_epochs=1", "--schedule.warmup_epochs=0.5"]
    common += ["--targets.0.value=1.0", "--model.stage_widths=8"]
    states = []
    for number, options in enumerate(
        (
            "xla_backend_optimization_level=0",
            "xla_backend_optimization_level=1,xla_cpu_enable_fast_math=false",
        )
    ):
        run_dir = tmp_path / str(number)
        flags = [f"--xla_options={options}", cache, f"--run_dir={run_dir}"]
        assert main([*common, *flags]) == 3
        events = read_events(run_dir / "log.jsonl")
        start = next(event for event in events if event["event"] == "run_start")
        assert start["xla_options"] == options.split(",")
        states.append(json.loads((run_dir / "result.json").read_text())["compile_cache"])
    assert states[0]["train"] == states[1]["train"] == "cold"
    # What takes no options is read back.
    assert states[1]["initialize"] == "warm"


def test_a_small_program_on_a_cpu_is_compiled_with_less_care(monkeypatch):
    recipe, _ = compiled()
    elements = recipe.spec.batch_elements(recipe.experiment.global_batch_size)
    monkeypatch.setattr("dawnjax.programs.SMALL_BATCH_ELEMENTS", elements + 1)
    level = "xla_backend_optimization_level"
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    assert xla_options(recipe) == {level: 1}
    assert options_for_size(elements + 1, "cpu") == {}
    assert options_for_size(1, "gpu") == options_for_size(1, "tpu") == {}
    # What the experiment or a user's flag says stays.
    own = dataclasses.replace(recipe.experiment, xla_options=(f"{level}=3", "xla_a=true"))
    found = xla_options(dataclasses.replace(recipe, experiment=own))
    assert found == {level: "3", "xla_a": True}
    monkeypatch.setenv("XLA_FLAGS", f"--{level}=2")
    assert xla_options(recipe) == {}
