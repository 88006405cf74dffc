"""Writing stays inside its folder: no writer follows a link that a stranger put there."""

import pytest
from made_runs import write_run

from dawnjax import records
from dawnjax.__main__ import main
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.preparation.writing import write_synced
from dawnjax.runs.directory import RunDirectory


@pytest.fixture
def victim(tmp_path):
    file = tmp_path / "victim"
    file.write_text("precious")
    yield file
    assert file.read_text() == "precious"


def test_no_writer_follows_a_link(victim, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        records.open_append(link)
    write_synced(link, [b"data"])
    assert not link.is_symlink() and link.read_bytes() == b"data"
    link.unlink()
    link.symlink_to(victim)
    records.write(link, "new")
    assert not link.is_symlink() and link.read_text() == "new"


@pytest.mark.parametrize(
    "name", ["log", "profile", "profile/process_00000", "evaluations", "inference/cpu-step2"]
)
def test_a_run_directory_whose_folder_is_a_link_is_refused(name, tmp_path, capsys):
    run, outside = write_run(tmp_path / "run"), tmp_path / "outside"
    if (run / name).exists():
        (run / name).rename(outside)
    else:
        outside.mkdir()
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(ConfigError, match=f"{name} is a link"):
        RunDirectory(run).refuse_links()
    before = sorted(outside.iterdir())
    argv = ["--experiment=synthetic_image", f"--run_dir={run}"]
    commands = (
        ["profile", str(run)],
        ["train", *argv],
        ["evaluate", str(run)],
        ["infer", str(run)],
    )
    for command in commands:
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "is a link" in error and error.count("\n") == 1
    assert sorted(outside.iterdir()) == before
    # A link to a whole run is no link out of it.
    linked = tmp_path / "latest"
    linked.symlink_to(write_run(tmp_path / "other"))
    RunDirectory(linked).refuse_links()
