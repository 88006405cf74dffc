"""The profile of a run, where something goes wrong: the result stands."""

import types
from pathlib import Path

import jax
import pytest

from dawnjax.capture import run_profile, trace
from dawnjax.capture.run_profile import RunProfile
from dawnjax.capture.trace import StoppedError, together
from dawnjax.capture.traced_steps import Hooks
from dawnjax.config.run_options import ProfileOptions

STEPPER = types.SimpleNamespace(step=2, is_traced=False, recipe=None, programs=None)


def after_run(folder: Path, options: ProfileOptions) -> tuple[RunProfile, list[str]]:
    said: list[str] = []
    profile = RunProfile(options, folder, said.append)
    profile.after_run(STEPPER, 0.01, Hooks())  # pyright: ignore[reportArgumentType]
    return profile, said


def test_a_profile_that_fails_in_any_way_is_a_warning(tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory\nwhile running the step")

    monkeypatch.setattr(run_profile, "profile_run", lambda *_: together(lambda: full()))
    profile, said = after_run(tmp_path, ProfileOptions())
    assert said == [
        "the profile was left out: RuntimeError: RESOURCE_EXHAUSTED: out of memory while running "
        "the step"
    ]
    assert "out of memory" in profile.host_fields(None)["utilization"]["reasons"]["mfu"]


def test_all_processes_leave_where_one_fails(monkeypatch):
    monkeypatch.setattr(trace.processes, "gather", lambda mine: [mine, [None, "no memory there"]])
    with pytest.raises(StoppedError, match="no memory there"):
        together(lambda: 1)


def test_the_first_process_alone_keeps_its_trace(tmp_path, monkeypatch):
    def traced(stepper, options, folder, *_):
        folder.mkdir(parents=True)
        raise StoppedError("no trace")

    monkeypatch.setattr(run_profile, "profile_run", traced)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    profile, _ = after_run(tmp_path / "process_00001", ProfileOptions())
    assert not profile.folder.exists()
