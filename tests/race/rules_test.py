"""Entries and the rules that need no run: what is refused, and by which rule."""

import base64
import hashlib
import json
import random
from pathlib import Path

import pytest
from made_race import RECIPE, baseline, write_entry, write_side, write_trial

from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.race import entry as entries
from dawnjax.race import rules, submit, tracks
from dawnjax.race.tracks import read_track

DIGITS = read_track("digits")
OPTIMIZER = """
import dataclasses
import functools

import jax.numpy as jnp
import optax
import steps

from dawnjax.config.experiment import Sgd


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signs(Sgd):
    TAG = "signs"

    def build(self, rate):
        super().__init__()
        self._rule = functools.partial(optax.sign_sgd, rate * steps.SIZE)
        return _chained(self._rule)


def _chained(rule):
    return optax.chain(rule(), optax.scale(jnp.float32(1)))
"""
WEIGHTS = base64.b64encode(random.Random(0).randbytes(15_000)).decode()


def fault_of(folder: Path) -> str:
    """The line by which an entry is refused; empty where it is not."""
    try:
        return str(rules.first_fault(folder, rules.read(folder), DIGITS, baseline()) or "")
    except ConfigError as error:
        return str(error)


def change(folder: Path, **fields) -> None:
    """Change fields of `entry.json`."""
    file = folder / "entry.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_an_entry_is_made_of_runs_and_read_back(tmp_path):
    folder, entry = write_entry(tmp_path, source=RECIPE)
    assert fault_of(folder) == ""
    assert entry.source == "mine.py" and (folder / "source/mine.py").read_text() == RECIPE
    assert [trial.seed for trial in entry.trials] == list(range(6))
    assert entry.claim.ratio == pytest.approx(0.6) and entry.claim.p_value < 0.01
    # The runs of two studies are not known to have run in turn.
    assert not entry.claim.is_paired and entry.claim.word == "faster"


def test_names_of_people_and_places_stay_at_home(tmp_path):
    data = {**baseline()["data"], "data_dir": "/home/ann/data"}
    folder, entry = write_entry(tmp_path, changes={"data": data})
    assert fault_of(folder) == ""
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert texts and not any(b"/home/ann" in text for text in texts)
    assert entry.experiment["data"].get("data_dir") == ""


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"looks": 3}, "seed 0 looked 3 times at the examples to evaluate"),
        ({"options": {"chooses": True}}, "seed 0 chose the recipe"),
        ({"options": {"weight_update_sharding": True}}, "seed 0 ran with weight_update_sharding"),
        ({"seeds": 4}, "4 are too few; a comparison takes 5"),
        ({"fingerprint": "0" * 16}, "its data have the fingerprint 0000000000000000"),
        ({"mean": 10.0}, "significance: not faster than the baseline at p < 0.01"),
        ({"source": "import urllib.request\n" + RECIPE}, "imports urllib.request"),
        ({"source": RECIPE + f"# {WEIGHTS}\n"}, "data and weights must not hide in them"),
        ({"changes": {"xla_options": [WEIGHTS]}}, "source and fields pack to 1"),
        ({"source": RECIPE + "#" * 70_000}, "at most 60,000 may race"),
    ],
)
def test_runs_that_are_no_entry_are_refused_and_nothing_is_written(tmp_path, fields, line):
    with pytest.raises(ConfigError, match="no entry of digits: ") as refused:
        write_entry(tmp_path, **fields)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert not (tmp_path / "entries" / "mine").exists()


@pytest.mark.parametrize(
    ("part", "value", "line"),
    [
        (
            "targets",
            [{"metric": "top_1_accuracy", "value": 0.5, "direction": "at_least"}],
            "0.value",
        ),
        ("evaluation", {"every_epochs": 1.0}, "evaluation.every_epochs is 1.0"),
        ("evaluation", {"global_batch_size": 1}, "evaluation.global_batch_size is 1"),
        ("data", {"split_seed": 1}, "data.split_seed is 1"),
        ("initialize_from", "runs/trained", "initialize_from is 'runs/trained'"),
        ("max_seconds", 5.0, "max_seconds is 5.0"),
        ("task", {"test_time_augmentation": "flip"}, "task.test_time_augmentation is 'flip'"),
    ],
)
def test_a_changed_target_evaluation_or_split_is_another_track(tmp_path, part, value, line):
    value = {**baseline()[part], **value} if isinstance(value, dict) else value
    with pytest.raises(ConfigError, match="no entry of digits: track: ") as refused:
        write_entry(tmp_path, changes={part: value})
    assert line in str(refused.value) and "begin with: dawnjax train" in str(refused.value)


def test_model_optimizer_and_length_are_free(tmp_path):
    model = {**baseline()["model"], "stage_widths": [16, 32]}
    folder, _ = write_entry(tmp_path, changes={"model": model, "num_epochs": 9.0})
    assert fault_of(folder) == ""


def test_a_model_of_ones_own_cannot_be_measured_apart(tmp_path):
    model = {**baseline()["model"], "tag": "mine"}
    with pytest.raises(ConfigError, match="code: model=mine: the weights are measured without"):
        write_entry(tmp_path, changes={"model": model}, source=RECIPE)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import urllib.request", "imports urllib.request"),
        ("from socket import create_connection", "imports socket.create_connection"),
        ("import dawnjax.race.handover", "imports dawnjax.race.handover"),
        ("import dawnjax", "imports dawnjax"),
        ("from dawnjax.config.own_files import os", "uses os"),
        ("from jax._src import api", "uses _src"),
        ("import dataclasses\ndataclasses.sys.exit()", "uses sys"),
        ("import numpy as np\nBYTES = np.fromfile('/usr/share/dict/words')", "uses fromfile"),
        ("__import__('os')", "uses __import__"),
        ("TEXT = open(__file__).read()", "uses open"),
        (
            "from dawnjax import tasks\ntasks.evaluate = None",
            "sets evaluate of what is not its own",
        ),
        ("def f(", "is no Python"),
    ],
)
def test_a_source_that_does_more_than_a_recipe_is_refused(code, line):
    [fault, *_] = rules.source_faults({"mine.py": code.encode()}, [], DIGITS)
    assert fault.startswith("mine.py") and line in fault


def test_an_optimizer_of_ones_own_and_modules_beside_it_may_race():
    optimizer = (RECIPE + OPTIMIZER).encode()
    sources = {"mine.py": optimizer, "steps/__init__.py": b"SIZE = 2\n"}
    assert not list(rules.source_faults(sources, [], DIGITS))
    assert list(rules.source_faults({WEIGHTS + ".py": b""}, [], DIGITS))
    # A name of Python's own library opens no door, nor does another encoding.
    for text in (b"import os", b"# coding: utf-7\n# +AAo-import os"):
        assert list(rules.source_faults({"mine.py": text, "os.py": b""}, [], DIGITS))


def test_a_source_that_is_not_the_log_s_is_refused(tmp_path):
    folder, entry = write_entry(tmp_path, source=RECIPE)
    other = RECIPE + "print('other')\n"
    (folder / "source" / "mine.py").write_text(other)
    assert "hash: source/mine.py has another hash than it says" in fault_of(folder)
    # Also where entry.json is made to agree with it.
    digest = hashlib.sha256(other.encode()).hexdigest()
    change(folder, files={**entry.files, "source/mine.py": digest})
    assert "the source is not the one that its log was made by" in fault_of(folder)


def test_a_log_or_a_claim_that_was_changed_is_refused(tmp_path):
    folder, _ = write_entry(tmp_path)
    trials = json.loads((folder / "entry.json").read_text())["trials"]
    change(folder, trials=[{**trial, "seconds": 1.0} for trial in trials])
    assert "entry.json says other times or seeds than the logs" in fault_of(folder)
    change(folder, trials=trials)
    assert fault_of(folder) == ""
    claim = json.loads((folder / "entry.json").read_text())["claim"]
    change(folder, claim={**claim, "ratio": 0.1})
    assert "entry.json claims 0.100 of the time (99 %" in fault_of(folder)


def test_links_and_floods_of_files_are_refused_unread(tmp_path):
    folder, _ = write_entry(tmp_path)
    (folder / "source").mkdir()
    (folder / "source" / "data.py").symlink_to("/etc/passwd")
    assert "data.py is a link, and an entry has none" in fault_of(folder)
    (folder / "source" / "data.py").unlink()
    (folder / "weights.npz").write_bytes(b"1")
    assert "'weights.npz' is no file of an entry" in fault_of(folder)
    (folder / "weights.npz").unlink()
    for number in range(4 * entries.MOST_FILES):
        (folder / "source" / f"m{number}.py").touch()
    assert f"holds more than {entries.MOST_FILES} files" in fault_of(folder)


def test_an_entry_of_another_track_or_of_nothing_is_refused(tmp_path):
    folder, _ = write_entry(tmp_path)
    change(folder, track="cifar10")
    assert "the entry is for the track cifar10, not digits" in fault_of(folder)
    (folder / "entry.json").write_text("[]")
    assert "is no description of an entry" in fault_of(folder)
    (folder / "entry.json").unlink()
    assert "is no entry: it has no entry.json" in fault_of(folder)


def test_two_entries_of_one_name_are_refused(tmp_path):
    folder, _ = write_entry(tmp_path)
    write_entry(tmp_path, "second")
    assert list(entries.entries_in(tmp_path / "entries")) == ["mine", "second"]
    change(folder, name="second")
    with pytest.raises(ConfigError, match="two entries are called 'second'"):
        entries.entries_in(tmp_path / "entries")


def test_runs_of_two_sides_are_not_pooled(tmp_path):
    runs = write_side(tmp_path / "own", 6.0)
    write_trial(runs / "twice", seed=0, seconds=6.0)
    with pytest.raises(ConfigError, match="two runs have the seed 0"):
        submit.submit([runs], runs, track="digits", name="mine", out=tmp_path / "out")


@pytest.mark.parametrize("name", tracks.track_names())
def test_a_track_has_the_target_of_its_baseline_and_fixes_what_it_judges(name):
    track = read_track(name)
    fields = tracks.baseline_fields(track)
    assert [dict(vars(track.target))] == fields["targets"]
    assert track.differences(fields, fields) == []
    for field in ("data", "targets", "max_seconds", "initialize_from", "task.tag"):
        assert field in tracks.FIXED
    for field in fields["evaluation"]:
        assert (f"evaluation.{field}" in tracks.FIXED) == (field != "weights")
    assert not tracks.own_choices(fields)
    assert name in tracks.tracks_table().to_text() and track.command in tracks.track_text(track)


def test_no_entry_of_a_track_whose_data_nobody_knows_is_taken(tmp_path):
    folder, _ = write_entry(tmp_path)
    track = read_track("fineweb")
    fault = rules.first_fault(folder, rules.read(folder), track, baseline())
    assert str(fault) == (
        "data: no entry of fineweb can be judged: the fingerprint of its data is not known yet"
    )
    assert track.wrong_data(Digits().spec()) == track.lacks


def test_trials_of_another_machine_than_the_rival_s_are_refused(tmp_path):
    own = write_side(tmp_path / "own", 6.0, devices={"device_kind": "a faster CPU"})
    rival = write_side(tmp_path / "rival", 10.0)
    with pytest.raises(ConfigError, match="rivals: seed 0: it ran on 1 x .*, not on 1 x a fas"):
        submit.submit([own], rival, track="digits", name="mine", out=tmp_path / "out")


def test_a_rival_that_is_not_the_baseline_is_named_so(tmp_path):
    folder, entry = write_entry(tmp_path)
    assert entry.rival == "the baseline"
    rival = write_side(tmp_path / "slow", 30.0, changes={"num_epochs": 60.0})
    out = tmp_path / "entries" / "second"
    entry = submit.submit(
        [tmp_path / "trained" / "mine" / "own"], rival, track="digits", name="second", out=out
    )
    assert entry.rival == "digits, which is not the baseline"
    change(out, rival="the baseline")
    assert "entry.json has the baseline for digits, which is not the baseline" in fault_of(out)


def test_equal_seeds_are_pairs_only_where_the_judge_ran_them_in_turn():
    """A machine that slows down hides between pairs, and not between two studies."""
    rivals, own = (
        [
            entries.Trial(seed=n, reached=True, seconds=share * (10.0 + n), quality=1.0)
            for n in range(8)
        ]
        for share in (1.0, 0.97)
    )
    studies, judged = (rules.compared(own, rivals, in_turn=turn) for turn in (False, True))
    assert studies is not None and studies.word == "undecided" and studies.p_value > 0.5
    assert judged is not None and judged.word == "faster" and judged.p_value < rules.LEVEL
