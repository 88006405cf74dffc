"""Epochs of a plan: which source gives them, and what it says where none does."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from dawnjax.config.experiment_modules import experiment_names, load_experiment
from dawnjax.config.observations import observations_of
from dawnjax.plan.epochs import epochs, sources
from dawnjax.plan.epochs.sources import OFFICIAL, TRIALS

DIGITS = load_experiment("digits")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def known(experiment=DIGITS, base=None, batch=64, train_examples=900):
    return sources.known(experiment, base or experiment, batch, train_examples)


def test_the_experiment_s_own_trials_come_first():
    found = known()
    [seen] = observations_of(DIGITS)
    assert found.source == TRIALS and "mean of 20 of 20 trials" in found.basis
    assert found.mean == pytest.approx(sum(seen.epochs_to_target) / 20)


def test_their_interval_holds_for_trials_on_another_machine():
    """Trials on a Xeon, none of which gave the interval."""
    found = known().interval()
    trials = json.loads((RESULTS / "digits_pytorch_xeon.json").read_text())["dawnjax"]["trials"]
    counts = [trial["epochs"] for trial in trials]
    assert len(counts) >= 5
    assert sum(found.low <= count <= found.high for count in counts) >= 0.9 * len(counts)


@pytest.mark.parametrize("name", experiment_names())
def test_stated_epochs_are_those_of_trials_that_reached(name):
    experiment = load_experiment(name)
    for seen in observations_of(experiment):
        assert len(seen.epochs_to_target) in (0, seen.reached)
        if experiment.num_epochs:  # the last step may end a part of an epoch later
            assert all(count < experiment.num_epochs + 0.01 for count in seen.epochs_to_target)


def test_trials_of_another_recipe_widen_and_of_another_task_say_nothing():
    optimizer = dataclasses.replace(DIGITS.optimizer, base_learning_rate=0.1)
    recipe = known(dataclasses.replace(DIGITS, optimizer=optimizer), DIGITS)
    assert recipe.spread == pytest.approx(math.hypot(known().spread, epochs.RECIPES))
    assert "with another optimizer.base_learning_rate" in recipe.basis
    harder = (dataclasses.replace(DIGITS.targets[0], value=0.999),)
    other = known(dataclasses.replace(DIGITS, targets=harder), DIGITS)
    assert other.mean is None and "trials had another targets.0.value" in other.basis
    begun = known(dataclasses.replace(DIGITS, initialize_from="runs/a"), DIGITS)
    assert begun.mean is None and "initialize_from" in begun.basis
    # The dtype of a device and the parts of a batch are accounted for elsewhere.
    same = known(dataclasses.replace(DIGITS, compute_dtype="bfloat16"), DIGITS)
    assert same == known()


def test_another_batch_widens_and_a_far_one_is_withheld():
    near, far = known(batch=128), known(batch=512)
    assert near.spread == pytest.approx(math.hypot(known().spread, epochs.error_outside(1)))
    # One batch was counted: the critical batch is taken as three times as large.
    mean = known().mean
    assert mean and near.mean == pytest.approx(mean * (3 * 64 + 128) / (4 * 64))
    assert far.mean is None and far.source == "" and "8.0 times beyond" in far.basis


def test_trials_that_all_reached_at_one_evaluation_leave_room_for_the_next():
    cells = load_experiment("cells_ssd_small")
    seen = dataclasses.replace(
        observations_of(cells)[0], trials=2, reached=2, epochs_to_target=(4.0, 4.0)
    )
    found = sources.of_trials(cells, cells, (seen,), 8, 292).interval()
    assert found.value == 4 and found.high >= 5  # it evaluates after each epoch
    words = load_experiment("wikipedia_bytes_small")  # 400 steps, evaluated every 50
    found = known(words, batch=8, train_examples=54_494).interval()
    assert found.high / found.value >= 450 / 400


def test_reference_points_of_language_models_count_examples():
    """MLPerf's points of Llama 3.1 8B at batch 32: 178,859 rows of 8,192 tokens."""
    llama = load_experiment("c4_llama31_8b")
    found = known(llama, batch=32, train_examples=4_760_742)
    assert found.source == OFFICIAL and found.has_own_target and found.mean is not None
    assert found.mean * 4_760_742 == pytest.approx(178_859, rel=0.05)
    assert "5 reference points of later rounds to 3.3" in found.basis


def test_settings_that_are_no_reference_s_widen_its_epochs():
    """The rate and the schedule go with the batch, as MLPerf's reference points change them."""
    llama = load_experiment("c4_llama31_8b")
    rate = dataclasses.replace(llama.optimizer, base_learning_rate=1e-3)
    faster = dataclasses.replace(llama, optimizer=rate)
    same = known(llama, batch=32, train_examples=4_760_742)
    other = known(faster, llama, batch=32, train_examples=4_760_742)
    assert other.spread == pytest.approx(math.hypot(same.spread, epochs.RECIPES))
    assert "with another optimizer.base_learning_rate: the interval is widened" in other.basis
    moved = known(faster, llama, batch=64, train_examples=4_760_742)
    assert moved == known(llama, batch=64, train_examples=4_760_742)


@pytest.mark.parametrize(
    "name", ["c4_llama31_8b", "wikipedia_llama_small"], ids=["official", "trials"]
)
def test_what_is_computed_again_changes_no_epochs(name):
    base = load_experiment(name)
    model = dataclasses.replace(base.model, remat="products", loss_chunk=256)
    again = dataclasses.replace(base, model=model, accumulation_steps=2)
    rows = {"batch": base.global_batch_size, "train_examples": 4_760_742}
    same = known(base, base, **rows)
    assert same.mean is not None and known(again, base, **rows) == same


def test_without_trials_and_results_both_reasons_are_given():
    record = load_experiment("cifar10_record")
    found = known(record, batch=record.global_batch_size, train_examples=50_000)
    assert found.mean is None and "none reached the target" in found.basis
    assert "no official result has" in found.basis
