"""`dawnjax plan --search=mesh`: the order of arrangements, what they hold, and what is refused."""

import dataclasses

import pytest
from told import told

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.optim.update_rules import Adam, Sgd
from dawnjax.plan.decoders import arrangements
from dawnjax.plan.decoders import step as decoder_step
from dawnjax.plan.decoders.arrangements import meshes, search
from dawnjax.plan.decoders.memory import DecoderMemory, decoder_memory
from dawnjax.plan.decoders.terms import parameters
from dawnjax.plan.epochs.epochs import Epochs
from dawnjax.plan.hardware.systems import parse_system
from dawnjax.plan.steps.efficiency import Efficiency

LLAMA = load_experiment("c4_llama31_8b")
SPEC = LLAMA.data.published_spec()


def counted(batch, train_examples):
    return Epochs(mean=(1 + batch / 84) * 131_709 / train_examples, spread=0.1, basis="made")


def found(on="h100:64", batches=(64,), experiment=LLAMA):
    rows, _ = search(experiment, SPEC, parse_system(on), batches, counted, {})
    return rows


def test_meshes_divide_the_model_the_text_and_the_devices():
    shapes = list(meshes(LLAMA.model, SPEC, 16))
    assert len(shapes) == len(set(shapes))
    for shape in shapes:
        assert shape.data * shape.fsdp * shape.context * shape.model == 16
        assert 8 % shape.model == 0 and shape.expert == 1  # 8 heads of keys, no experts
    assert MeshShape(data=1, fsdp=4, context=2, model=2) in shapes


def test_the_five_best_fit():
    rows = found(batches=(64, 128))
    assert 1 < len(rows) <= arrangements.MOST
    known = [row.time_to_accuracy_seconds for row in rows]
    times = [float(f"{time.value:.3g}") for time in known if time]
    assert times == sorted(times) and len(times) == len(rows)
    for row in rows:
        assert row.memory.num_bytes <= row.limit_bytes == 84_942_979_072
        step = row.step_seconds
        assert step.low < step.value < step.high and 0.1 < row.mfu < 0.7
        assert row.tokens_per_second == pytest.approx(
            row.global_batch * SPEC.sequence_length / step.value
        )
    assert len({(row.mesh, row.global_batch) for row in rows}) == len(rows)


def test_without_epochs_the_time_of_an_example_decides():
    def unknown(batch, train_examples):
        return Epochs(mean=None, spread=0.0, basis="nothing is known")

    rows, _ = search(LLAMA, SPEC, parse_system("h100:64"), (64, 128), unknown, {})
    assert all(row.time_to_accuracy_seconds is None and row.cost_usd is None for row in rows)
    each = [float(f"{row.step_seconds.value / row.global_batch:.3g}") for row in rows]
    assert each == sorted(each)


def known_to(largest):
    def known(batch, train_examples):
        if batch > largest:
            return Epochs(mean=None, spread=0.0, basis=f"counted to {largest}")
        return counted(batch, train_examples)

    return known


def test_a_batch_of_unknown_epochs_does_not_displace_those_with_a_time():
    system = parse_system("h200:64")
    rows, [line] = search(LLAMA, SPEC, system, (64, 1024), known_to(256), {})
    assert {row.global_batch for row in rows} == {64}
    assert all(row.time_to_accuracy_seconds for row in rows)
    assert line.startswith("batch 1,024 is not compared") and "counted to 256: give --e" in line
    text = arrangements.text(rows)
    assert "all: epochs: made" in text and "no time to accuracy" not in text
    rows, lost = search(LLAMA, SPEC, system, (1024,), known_to(256), {})
    assert not lost and not any(row.time_to_accuracy_seconds for row in rows)
    assert "all: no time to accuracy: counted to 256: give --epochs" in arrangements.text(rows)


def test_each_batch_without_a_mesh_gets_a_line_beside_the_rows_of_others():
    system = parse_system("gb200:72")
    rows, lost = search(LLAMA, SPEC, system, (64, 72, 72_000), counted, {})
    assert {row.global_batch for row in rows} == {72}
    undivided, large = lost
    assert undivided.startswith("batch 64: no mesh of 72 devices divides the model and it: give")
    assert large.startswith("batch 72,000: it does not fit: a device needs")
    with pytest.raises(ConfigError, match=r"batch 64: no mesh .*; batch 72,000: it does not fit"):
        search(LLAMA, SPEC, system, (64, 72_000), counted, {})


def arranged(experiment=LLAMA, on="h100:64", remat="full", **mesh):
    shape = MeshShape(data=1, **mesh)
    system = parse_system(on)
    moments = decoder_step.moment_bytes_of(experiment, SPEC)
    return decoder_step.arrangement_of(
        experiment, SPEC, system, 64, remat, shape, moment_bytes=moments
    )


@pytest.mark.parametrize(
    ("optimizer", "moments"),
    [(Adam, 8), (Sgd, 4)],
)
def test_memory_counts_state_by_its_shards_and_the_optimizer_s_own_moments(optimizer, moments):
    experiment = dataclasses.replace(LLAMA, optimizer=optimizer(base_learning_rate=1.0))
    memory = decoder_memory(LLAMA.model, arranged(experiment, fsdp=64))
    count = parameters(LLAMA.model, SPEC.vocabulary_size)
    # Parameters and gradients in float32, of a 64th.
    assert memory.state == pytest.approx((4 + moments) * count / 64)
    assert memory.gradients == pytest.approx(4 * count / 64)
    # One row of 8,192 tokens on each device: the input of each of 32 layers in bfloat16.
    assert memory.kept == pytest.approx(32 * 8192 * 4096 * 2)


@pytest.mark.parametrize(("rank", "share"), [(0, 1 / 3), (16, 1 / 2)])
def test_a_time_has_its_evaluations_and_at_least_the_first(rank, share):
    lora = dataclasses.replace(LLAMA.model.lora, rank=rank)
    experiment = dataclasses.replace(LLAMA, model=dataclasses.replace(LLAMA.model, lora=lora))
    [row, *_] = found(experiment=experiment)
    time = row.time_to_accuracy_seconds
    # 384 steps of 64 rows to the next evaluation of 1,024 rows: 10 until 232,058 rows.
    rows = (1 + 64 / 84) * 131_709 + 10 * 1024 * share
    assert time.value == pytest.approx(rows / 64 * row.step_seconds.value, rel=1e-4)

    def early(batch, train_examples):
        return Epochs(mean=1 / train_examples, spread=0.1, basis="made")

    [row, *_], _ = search(experiment, SPEC, parse_system("h100:64"), (64,), early, {})
    time = row.time_to_accuracy_seconds
    rows = 384 * 64 + 1024 * share
    assert time.value == pytest.approx(rows / 64 * row.step_seconds.value, rel=1e-4)


def filled(row, share):
    """The row with a state that fills a part of its device."""
    parts = dict.fromkeys(dataclasses.asdict(row.memory), 0.0)
    memory = DecoderMemory(**{**parts, "state": share * row.limit_bytes})
    return dataclasses.replace(row, memory=memory)


def test_a_cost_names_its_seller_and_day_and_memory_what_jax_takes():
    [row, *_] = rows = found()
    assert row.price_basis.startswith("8 x 55.04 USD an hour and host: Amazon EC2 p5.48xlarge")
    assert f"h100:64: price: {row.price_basis}" in arrangements.text(rows)
    text = arrangements.text([filled(row, 0.9)])
    assert "h100:64: JAX takes 75 % of a GPU's memory, and this needs" in text
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95" in text
    text = arrangements.text([filled(row, 0.98)])
    assert "this needs 98 %, with 95 % at most to take: it may not fit" in text
    assert "XLA_PYTHON" not in text


def test_the_first_that_fits_by_more_than_the_error_is_named():
    [row, *_] = found()
    full, half = filled(row, 0.98), dataclasses.replace(filled(row, 0.5), global_batch=128)
    text = arrangements.text([full, half])
    surely = text.split("more than the error: ")[1].splitlines()[0]
    assert surely.endswith("--global_batch_size=128 --model.remat=" + row.remat)
    assert "more than the error" not in arrangements.text([half, full])


@pytest.mark.parametrize(("share", "verdict"), [(0.99, "yes"), (1.01, "close")])
def test_a_step_fits_surely_by_the_error_of_the_formulas(share, verdict):
    [row, *_] = found()
    full = filled(row, share / arrangements.MEMORY_ERROR)
    text = arrangements.text([full])
    assert f" {verdict} " in text.splitlines()[1]
    assert arrangements.to_json(full)["fits"] == verdict
    assert f"may need {arrangements.MEMORY_ERROR:g} times this memory" in text


def test_a_compiled_plan_of_a_decoder_lasts_as_published_steps_say():
    system, mesh = parse_system("h200:256"), MeshShape(fsdp=256)
    known = Efficiency(
        products=0.5, memory=0.5, kernel_seconds=0.0, host_seconds=0.0, spread=0.3, fitted_on=("a",)
    )
    scaled = decoder_step.scaled(known, LLAMA, SPEC, mesh, system, 1024, compiled_seconds=8.0)
    arrangement = decoder_step.arrangement_of(LLAMA, SPEC, system, 1024, "full", mesh)
    factors = decoder_step.fitted(system.accelerator)
    step = factors.step(LLAMA.model, arrangement)
    assert scaled.scale * 8.0 == pytest.approx(step.value)
    assert scaled.knows_overlap and scaled.spread == factors.spread < 0.1
    assert "published steps of decoders on this chip" in scaled.fitted_on[0]
    # 4 rows a device: 1.9 PFLOP of products and attention a step, a quarter of them again.
    assert 3.0 < step.value < 6.0
    # A TPU has no fused attention, and no published step says how long products take.
    tpu = parse_system("v6e:256")
    assert decoder_step.scaled(known, LLAMA, SPEC, mesh, tpu, 1024, compiled_seconds=8.0) == known


def test_a_null_has_its_reason():
    [row, *_] = found()
    assert not arrangements.to_json(row)["reasons"]
    lost = dataclasses.replace(row, cost_usd=None, price_basis="no price")
    assert arrangements.to_json(lost)["reasons"] == {"cost_usd": "no price"}
    lost = dataclasses.replace(lost, time_to_accuracy_seconds=None, epochs_basis="nobody knows")
    reasons = arrangements.to_json(lost)["reasons"]
    assert {*reasons} == {"time_to_accuracy_seconds", "cost_usd"}
    assert {*reasons.values()} == {"nobody knows: give --epochs, or --epochs_from=RUNS"}


def test_the_command_prints_its_rows(capsys):
    command = ["plan", "c4_llama31_8b", "--on=v6e:64,v5e:8", "--batches=64", "--search=mesh"]
    rows = told(capsys, *command)["rows"]
    assert 1 < len(rows) <= 6 and "does not fit" in rows[-1]["reason"]
    assert rows[0]["fits"] in ("yes", "close")
    assert 0 < rows[0]["memory_bytes"] < rows[0]["memory_limit_bytes"]
    assert rows[0]["memory_bytes"] == round(rows[0]["memory"]["num_bytes"])
    assert rows[0]["mesh"]["fsdp"] >= 1 and rows[0]["time_to_accuracy_seconds"]["value"] > 0
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "v6e:64: --mesh." in text and "v5e:8: batch 64: it does not fit" in text


@pytest.mark.compiles
def test_a_system_where_no_mesh_surely_fits_is_named_below_the_advice(capsys):
    assert main(["plan", "c4_llama31_8b", "--on=h100:64,v6e:64", "--search=mesh"]) == 0
    text = capsys.readouterr().out
    assert (
        "\nnot compared: v6e:64, because no mesh is certain to fit" in text
        and "cheapest" not in text
    )
