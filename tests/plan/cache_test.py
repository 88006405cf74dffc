"""The cache of plans: an entry that is damaged or of another program is compiled anew."""

from pathlib import Path

import numpy as np
import pytest
import small_tokens
from plan_parts import programs

from dawnjax import records
from dawnjax.config.experiment_flags import parse_request
from dawnjax.plan.compiling import compiled
from dawnjax.plan.hardware.systems import parse_system

SYSTEM, OTHER = parse_system("v3:8"), parse_system("v3:32")
SMALL = programs()


class Cache:
    """A cache in a folder, and a compiler that counts how often it is asked."""

    def __init__(self, folder: Path):
        self.folder, self.compiled = folder, 0

    def compile(self, request, system, watch):
        self.compiled += 1
        return records.plain(SMALL)

    def ask(self, identity: str = "an experiment", system=SYSTEM) -> compiled.Programs:
        return compiled.compiled(["--experiment=x"], identity, system)

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
    "damage",
    [
        _folder,
        lambda file: file.write_text(file.read_text()[:-10]),
    ],
)
def test_an_entry_that_is_damaged_is_compiled_anew(cache, damage):
    damage(cache.entry)
    assert cache.ask() == SMALL and cache.compiled == 2
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
        request, _ = parse_request("plan", flags)
        spec, _ = compiled.spec_of(request.experiment.data)
        cache.ask(compiled.identity_of(request, spec))

    ask()  # no data: the published set
    for last in (1, 2):
        tokens = np.arange(3_000) % 50_000
        tokens[-1] = last
        small_tokens.write(tmp_path / "tokens", tokens, tokens)
        ask()
    ask()
    assert cache.compiled == 4
