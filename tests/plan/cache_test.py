"""The cache of plans: an entry that is damaged or of another program is compiled anew."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_tokens

from dawnjax.config.experiment_flags import parse_request
from dawnjax.plan.compiling import compiled
from dawnjax.plan.epochs.observations import EXTRACTS
from dawnjax.plan.hardware.systems import parse_system

SYSTEM, OTHER = parse_system("v3:8"), parse_system("v3:32")


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

    def compile(self, request, system, watch):
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


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_folder, "directory"),
        (lambda file: file.write_text(file.read_text()[:-10]), "is damaged"),
        (lambda file: file.write_text(""), "Expecting value"),
        (lambda file: file.write_text("[1, 2]"), "Expected object"),
    ],
)
def test_an_entry_that_is_damaged_is_compiled_anew(cache, capsys, damage, says):
    damage(cache.entry)
    assert cache.ask() == SMALL and cache.compiled == 2
    assert says in capsys.readouterr().err
    # A folder stays, since nothing replaces it; all else is whole again.
    assert cache.ask() == SMALL and cache.compiled == (3 if damage is _folder else 2)


def test_an_entry_belongs_to_its_experiment_system_versions_and_settings(cache, monkeypatch):
    cache.ask("another experiment")
    cache.ask(system=OTHER)
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    cache.ask()
    assert cache.compiled == 4 and len(list(cache.folder.iterdir())) == 4


def test_an_entry_belongs_to_its_data(cache, tmp_path):
    """Other examples in the same folder are other data, as are those of the published set."""
    flags = ["--experiment=fineweb_gpt2_small", f"--data.data_dir={tmp_path / 'tokens'}"]

    def ask() -> None:
        data = parse_request("plan", flags)[0].experiment.data
        cache.ask(compiled.identity_of(flags, compiled.identity_of_data(data)))

    ask()  # no data: the published set
    for last in (1, 2):
        tokens = np.arange(3_000) % 50_000
        tokens[-1] = last
        small_tokens.write(tmp_path / "tokens", tokens, tokens)
        ask()
    ask()
    assert cache.compiled == 4
