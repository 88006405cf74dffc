"""The cache of plans: an entry that is damaged or of another program is compiled anew."""

import copy
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge, places, text
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dawnjax import records
from dawnjax.config.experiment import Evaluation
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import RunError
from dawnjax.input_pipeline.datasets.token_shards import shard_of
from dawnjax.machine.prices import SystemPrice
from dawnjax.plan import compiled, planned
from dawnjax.plan.efficiency import Efficiency
from dawnjax.plan.epochs import Epochs
from dawnjax.plan.observations import EXTRACTS
from dawnjax.plan.predict import predict
from dawnjax.plan.systems import parse_system

SYSTEM, OTHER = parse_system("v3:8"), parse_system("v3:32")
KNOWN = Efficiency(
    products=0.5, memory=0.7, kernel_seconds=1e-6, host_seconds=1e-3, spread=0.2, fitted_on=("a",)
)


def _small() -> dict[str, Any]:
    """Compiled programs of `extracts.json`, with a few of their ops."""
    answer = json.loads(EXTRACTS.read_text())["programs"]["tpu v3-8 resnet"]
    for program in (answer["stages"][0]["train"], answer["evaluate"]):
        program["work"] = [program["work"][0], max(program["work"], key=lambda work: work[1])]
    return answer


SMALL = _small()


class Cache:
    """A cache in a folder, and a compiler that counts how often it is asked."""

    def __init__(self, folder: Path):
        self.folder, self.compiled = folder, 0

    def compile(self, argv, system, watch):
        self.compiled += 1
        return copy.deepcopy(SMALL)

    def ask(self, identity: str = "an experiment", system=SYSTEM) -> dict[str, Any]:
        return compiled.answer_of(["--experiment=x"], identity, system)

    @property
    def entry(self) -> Path:
        [file] = self.folder.iterdir()
        return file


@pytest.fixture
def cache(tmp_path, monkeypatch):
    made = Cache(tmp_path / "plans")
    monkeypatch.setattr(compiled, "CACHE_DIR", str(made.folder))
    monkeypatch.setattr(compiled, "answer_of_compiler", made.compile)
    assert made.ask() == SMALL and made.compiled == 1
    return made


def test_an_entry_is_read_and_not_compiled_again(cache, capsys):
    assert cache.ask() == SMALL and cache.compiled == 1
    assert capsys.readouterr().err == ""


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _sparse(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(12 * 2**30)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _of_another_system(file: Path) -> None:
    entry = json.loads(file.read_text())
    entry["made_of"]["system"] = "v3:4x4"
    file.write_text(json.dumps(entry))


def _without_what_made_it(file: Path) -> None:
    file.write_text(json.dumps(SMALL))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_fifo, "no plain file"),
        (_sparse, "is sparse"),
        (_folder, "directory"),
        (_loop, "symbolic links"),
        (_of_another_system, "it was made of another system"),
        (_without_what_made_it, "required field made_of"),
        (lambda file: file.write_text("[" * 100_000), "nested"),
        (lambda file: file.write_bytes(b"\xff{}"), "decode"),
        (lambda file: file.write_text(""), "Expecting value"),
        (lambda file: file.write_text("[1, 2]"), "Expected object"),
    ],
)
def test_a_damaged_entry_gets_one_line_and_is_compiled_anew(cache, capsys, damage, says):
    damage(cache.entry)
    assert cache.ask() == SMALL and cache.compiled == 2
    error = capsys.readouterr().err.splitlines()
    assert "is damaged" in error[0] and says in error[0]
    assert len(error) == 1 or "compiled programs are not kept" in error[1]
    # A pipe and a folder stay, since nothing replaces them; all else is whole again.
    assert cache.ask() == SMALL and cache.compiled == (3 if damage in (_fifo, _folder) else 2)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("stages",), []),
        (("stages", 0, "steps"), -1),
        (("stages", 0, "examples_per_step"), 0),
        (("stages", 0, "train", "work"), []),
        (("stages", 0, "train", "work", 0, 1), "x"),
        (("stages", 0, "train", "work", 0, 0), "\x1b[2J"),
        (("stages", 0, "train", "work", 0, 1), 1e300),
        (("stages", 0, "train", "exchanges", 0, 4), 0),
        (("stages", 0, "train", "memory_bytes"), -5),
        (("evaluate", "work"), None),
        (("train_examples",), 0),
        (("model_flops_per_example",), -1.0),
        (("parameters",), True),
        (("data_note",), "a\nb"),
    ],
)
def test_wrong_inner_types_and_values_are_named(cache, capsys, at, value):
    entry = json.loads(cache.entry.read_text())
    inner = entry["answer"]
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = value
    cache.entry.write_text(json.dumps(entry))
    assert cache.ask() == SMALL and cache.compiled == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_entry_belongs_to_its_experiment_system_versions_and_settings(cache, monkeypatch):
    cache.ask("another experiment")
    cache.ask(system=OTHER)
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    cache.ask()
    assert cache.compiled == 4 and len(list(cache.folder.iterdir())) == 4


def _bounded(answer: dict[str, Any]) -> str:
    """Empty if the programs are refused in one line or make a finite plan; else what went wrong."""
    try:
        programs = compiled.programs_from_json(answer)
    except ValueError as error:
        return "" if "\n" not in str(error) and len(str(error)) < 500 else f"refused: {error}"
    try:
        plan = predict(
            programs=programs,
            system=SYSTEM,
            efficiency=KNOWN,
            evaluation=Evaluation(every_epochs=1),
            epochs=Epochs(mean=60.0, spread=0.1, basis=""),
            price=SystemPrice(usd_per_hour=1.0, basis=""),
        )
    except RunError as error:
        return "" if "\n" not in str(error) else f"refused: {error}"
    shown = planned.text([planned.Planned("v3:8", 8, plan.global_batch, plan)])
    told = records.json_text(planned.to_json(planned.Planned("v3:8", 8, 1, plan)))
    is_plain = all(line.isprintable() for line in shown.splitlines())
    return "" if is_plain and "nan" not in shown and "inf " not in shown and told else shown


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.sampled_from(range(len(places(SMALL)))), VALUES)
@example(0, 1e300)
def test_any_value_at_any_place_is_read_or_refused_in_one_line(number, value):
    answer = copy.deepcopy(SMALL)
    whole, key = places(answer)[number]
    whole[key] = value
    assert _bounded(answer) == ""


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=pytest.mark.long)])
def test_forged_entries(cache, campaign, capsys, count):
    forged = campaign(
        "plan_cache",
        "an entry of `plan`'s cache forged or cut at random places",
        "read as written with finite numbers, or one line and compiled anew",
    )
    whole = cache.entry.read_bytes()
    for number in range(count):
        draw = random.Random(number)
        data = text(forge(json.loads(whole), draw))
        if draw.random() < 0.2:
            data = data[: draw.randrange(len(data))]
        cache.entry.write_bytes(data)
        before, started = cache.compiled, time.perf_counter()
        answer = cache.ask()
        seconds = time.perf_counter() - started
        error = capsys.readouterr().err
        again = cache.compiled > before
        wrong = "" if again and answer == SMALL else _bounded(answer)
        wrong = wrong or ("no line" if again != (error.count("\n") == 1) else "")
        forged.tried(f"seed {number}", held=not wrong, why=wrong, seconds=seconds)
        cache.entry.write_bytes(whole)
    forged.finish()


def test_an_entry_belongs_to_its_data(cache, tmp_path):
    """Other examples in the same folder are other data, as are those of the published set."""
    flags = ["--experiment=fineweb_gpt2_small", f"--data.data_dir={tmp_path}"]

    def ask() -> None:
        data = parse_request("plan", flags)[0].experiment.data
        cache.ask(compiled.identity_of(flags, compiled.identity_of_data(data)))

    ask()  # no data: the published set
    for last in (1, 2):
        for part in ("train", "val"):
            tokens = np.arange(3_000) % 50_000
            tokens[-1] = last
            (tmp_path / f"{part}.bin").write_bytes(shard_of(tokens))
        ask()
    ask()
    assert cache.compiled == 4
