"""Entries and the rules that need no run: what is refused, and by which rule."""

import base64
import dataclasses
import hashlib
import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_race import write_entry

from dawnjax.config.config_json import to_json
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.race import entry as entries
from dawnjax.race import rules, submit, tracks
from dawnjax.race.tracks import read_track

WEIGHTS = base64.b64encode(random.Random(0).randbytes(15_000)).decode()


def fault_of(folder: Path, track: str = "digits") -> str:
    """The line by which an entry is refused; empty where it is not."""
    try:
        entry = entries.read_entry(folder)
        rules.check(folder, entry, read_track(track))
    except ConfigError as error:
        return str(error)
    return ""


def change(folder: Path, **fields) -> None:
    """Change fields of `entry.json`."""
    file = folder / "entry.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_an_entry_is_made_of_a_file_and_the_modules_that_it_imports(tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "rates.py").write_text("RATE = 0.3\n")
    folder, entry = write_entry(tmp_path, changes="num_epochs=9,", more="import rates\n")
    assert fault_of(folder) == ""
    assert entry.name == "mine" and entry.code == "none"
    assert entry.experiment["num_epochs"] == 9
    sources = folder / "source"
    assert {path.name for path in sources.iterdir()} == {"mine.py", "rates.py"}
    assert (sources / "mine.py").read_text() == (tmp_path / "recipes" / "mine.py").read_text()
    # A README is not part of what is judged.
    (folder / "README.md").write_text("Words.")
    assert entries.read_entry(folder).recipe == entry.recipe


MODEL = """
import flax.nnx
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine:
    TAG = "mine"
    def build(self, **_): ...
"""
OPTIMIZER = """
from dawnjax.config.experiment import Sgd
@dataclasses.dataclass(frozen=True, kw_only=True)
class Signs(Sgd):
    TAG = "signs"
    def build(self, rate): ...
"""
SIGNS = "optimizer=Signs(base_learning_rate=0.1),"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"changes": SIGNS, "more": f"{OPTIMIZER}# {WEIGHTS}"},
            "code: source and fields compress to 1",
        ),
        ({"changes": f"xla_options=('--xla={WEIGHTS}',),"}, "at most 10,000 are allowed"),
        ({"changes": "model=Mine(),", "more": MODEL}, "code: model=mine: the weights are measured"),
        ({"changes": "data=own.Digits(split_seed=1),"}, "track: data.split_seed is 1, and"),
        ({"changes": "max_seconds=5.0,"}, "begin with: dawnjax race new NAME --track=digits"),
    ],
)
def test_a_recipe_that_is_no_entry_is_refused_and_nothing_is_written(tmp_path, fields, line):
    with pytest.raises(ConfigError, match="^(code|track): ") as refused:
        write_entry(tmp_path, **fields)
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert not (tmp_path / "entries" / "mine").exists()


def test_every_module_of_a_program_counts(tmp_path):
    program = tmp_path / "kernel"
    program.mkdir()
    (program / "run.py").write_text("import data\n")
    (program / "data.py").write_text(f"# {WEIGHTS}")
    with pytest.raises(ConfigError, match="^code: .* at most 10,000 are allowed"):
        submit.submit(program, track="digits", out=tmp_path / "large")
    assert not (tmp_path / "large").exists()


def test_model_optimizer_and_length_are_free(tmp_path):
    changes = "model=own.ResNet(stage_sizes=(1,), stage_widths=(16,)), num_epochs=9,"
    folder, entry = write_entry(tmp_path, changes=changes + SIGNS, more=OPTIMIZER)
    assert fault_of(folder) == "" and (entry.code, entry.source) == ("own", "mine.py")


def test_where_fields_say_all_no_run_executes_the_source_and_its_text_is_no_other_recipe(tmp_path):
    first, second = (
        write_entry(tmp_path, name, changes="num_epochs=9,", more=more)[1]
        for name, more in (("first", ""), ("second", f"# {WEIGHTS}"))
    )
    assert (first.code, first.source) == ("none", "") and first.recipe == second.recipe
    assert write_entry(tmp_path, "third", changes="num_epochs=8,")[1].recipe != first.recipe


def test_a_source_that_was_changed_is_refused_or_another_recipe(tmp_path):
    folder, entry = write_entry(tmp_path, changes=SIGNS, more=OPTIMIZER)
    other = b"print('other')\n"
    (folder / "source" / "mine.py").write_bytes(other)
    assert "source/mine.py has another hash in entry.json" in fault_of(folder)
    digest = hashlib.sha256(other).hexdigest()
    change(folder, files={"source/mine.py": digest})
    assert entries.read_entry(folder).recipe != entry.recipe
    (folder / "source" / "mine.py").unlink()
    assert "source/mine.py is not there" in fault_of(folder)


def test_links_and_floods_of_files_are_refused_unread(tmp_path):
    folder, _ = write_entry(tmp_path)
    (folder / "source" / "data.py").symlink_to("/etc/passwd")
    assert "'source/data.py' does not belong to an entry" in fault_of(folder)
    (folder / "source" / "data.py").unlink()
    (folder / "weights.npz").write_bytes(b"1")
    assert "'weights.npz' does not belong to an entry" in fault_of(folder)
    (folder / "weights.npz").unlink()
    for number in range(entries.MOST_FILES):
        (folder / "source" / f"m{number}.py").touch()
    assert "has more than 1,000 files" in fault_of(folder)


def test_a_part_that_an_entry_leaves_out_is_what_a_run_takes(tmp_path):
    folder, entry = write_entry(tmp_path)
    fields = entry.experiment
    older = {name: value for name, value in fields["data"].items() if name != "kept_classes"}
    change(folder, experiment={**fields, "data": older})
    assert fault_of(folder) == ""
    change(folder, experiment={name: fields[name] for name in fields if name != "evaluation"})
    assert fault_of(folder).startswith("track: evaluation.every_epochs is ")
    change(folder, experiment={**fields, "data": {**fields["data"], "gone": 1}})
    assert "has no field 'gone'; another version wrote it" in fault_of(folder)


@pytest.mark.parametrize("name", tracks.track_names())
def test_a_track_has_the_target_of_its_baseline_and_fixes_what_it_judges(name):
    track = read_track(name)
    fields = to_json(tracks.baseline(track))
    [wanted] = fields["targets"]
    assert {name: getattr(track.target, name) for name in wanted} == wanted
    assert track.differences(fields, fields) == []
    for field in ("data", "targets", "max_seconds", "initialize_from", "task.tag"):
        assert field in tracks.FIXED
    for field in fields["evaluation"]:
        assert (f"evaluation.{field}" in tracks.FIXED) == (field != "weights")
    assert not rules.own_choices(fields)
    assert name in tracks.tracks_table().to_text()
    assert f"{name}: {track.aim}" in tracks.track_text(name)


@pytest.mark.parametrize("name", tracks.track_names())
def test_a_new_recipe_can_enter_its_track_as_it_stands(name):
    track, found = read_track(name), {}
    exec(tracks.recipe_text(track), found)  # as a run executes a user's file
    fields = to_json(found["EXPERIMENT"])
    assert track.differences(fields, to_json(tracks.baseline(track))) == []


def test_other_data_than_the_tracks_are_named():
    spec = SimpleNamespace(fingerprint="1", declaration=SimpleNamespace(benchmark="", evidence="?"))
    assert read_track("cifar10").wrong_data(spec) == "they are not CIFAR-10: ?"
    assert "their fingerprint is 1, not c2bb" in read_track("digits").wrong_data(spec)
    spec.declaration.benchmark = "CIFAR-10"
    assert read_track("cifar10").wrong_data(spec) == ""


def test_a_budget_of_examples_is_counted_and_takes_no_code_of_ones_own(tmp_path):
    folder, entry = write_entry(tmp_path, track="digits_5000_examples")
    track, spec = read_track(entry.track), Digits().spec()
    rules.check_budget(entry, track, spec)
    # 6 epochs of 900 end in the middle of step 85 of 64.
    longer = dataclasses.replace(entry, experiment={**entry.experiment, "num_epochs": 6.0})
    with pytest.raises(ConfigError, match="budget: it trains on 5,440 examples; at most 5,000"):
        rules.check_budget(longer, track, spec)
    with pytest.raises(
        ConfigError, match="accepts no code of your own: only DawnJAX's can be counted"
    ):
        write_entry(tmp_path, "own", track=track.name, changes=SIGNS, more=OPTIMIZER)


def test_tokens_are_rows_times_their_length_and_a_run_may_say_when_it_stops():
    track = read_track("wikipedia_bytes_1m_tokens")
    spec = SimpleNamespace(num_train_examples=60_000, sequence_length=256)
    fields = to_json(tracks.baseline(track))

    def entry(steps):
        experiment = {**fields, "max_steps": steps}
        return entries.Entry(
            name="mine", track=track.name, date="", experiment=experiment, source="", files={}
        )

    rules.check_budget(entry(488), track, spec)
    with pytest.raises(ConfigError, match="budget: it trains on 1,001,472 tokens; at most 1,000,0"):
        rules.check_budget(entry(489), track, spec)
    stops = {**fields, "max_seconds": 50.0}
    assert track.differences(stops, fields) and not read_track("wikipedia_bytes_60s").differences(
        stops, fields
    )
