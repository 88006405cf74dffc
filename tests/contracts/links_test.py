"""Writing stays inside its folder: no writer follows a link that a stranger put there."""

import ast
import os
import re
from pathlib import Path

import numpy as np
import pytest
from made_runs import write_run

from dawnjax import records
from dawnjax.__main__ import main
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.preparation.writing import write_synced
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.runs.directory import RunDirectory

TOP = Path(__file__).resolve().parents[2]

ELSEWHERE = {
    "dawnjax/records/writing.py": "the one writer",
    "dawnjax/checkpoints/bucket.py": "an object store has no links",
    "dawnjax/checkpoints/manifest.py": "an object store has no links",
    "dawnjax/machine/compilation.py": "an empty mark with a drawn name",
    "dawnjax/__main__.py": "/dev/null",
    "dawnjax/cluster/processes.py": "the standard output, by its descriptor",
}
"""Files that write in another way, each with its reason."""

_WRITERS = {"write_text", "write_bytes", "touch", "mkstemp", "chmod", "fchmod", "tofile", "savez"}
_WRITERS |= {"savez_compressed", "copy", "copy2", "copyfile", "copytree", "symlink_to", "savetxt"}


def follows_links(call: ast.Call) -> bool:
    """True if a call writes to a path and would follow a link there."""
    function = call.func
    name = getattr(function, "attr", None) or getattr(function, "id", "")
    owner = getattr(getattr(function, "value", None), "id", "")
    values = [ast.unparse(value) for value in call.args]
    keywords = {word.arg: ast.unparse(word.value) for word in call.keywords}
    if name in _WRITERS and (not name.startswith("copy") or owner == "shutil"):
        return True
    if name == "save" and owner in ("np", "numpy"):
        return values[0] != "file"  # an open one
    is_mode = re.compile(r"'[rbt]*[wax+][bt+]*'").fullmatch
    writes = any(is_mode(v) for v in (*values, keywords.get("mode", "")))
    return name == "open" and writes and keywords.get("opener") != "records.no_follow"


def test_no_code_opens_a_file_to_write_that_could_be_a_link():
    used = set()
    for folder in ("dawnjax", "models", "input_pipeline", "experiments"):
        for path in (TOP / folder).rglob("*.py"):
            name = str(path.relative_to(TOP))
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and follows_links(node):
                    assert name in ELSEWHERE, f"{name}:{node.lineno}: {ast.unparse(node)}"
                    used.add(name)
    assert used <= ELSEWHERE.keys()


def test_the_guard_knows_what_follows_a_link():
    def is_found(text: str) -> bool:
        return any(
            follows_links(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
        )

    for text in ("open(p, 'w')", "p.open('ab')", "open(p, mode='r+')", "np.save(path, a)"):
        assert is_found(text), text
    for text in ("os.chmod(p, 1)", "p.write_text('')", "shutil.copy(a, b)", "a.tofile(p)"):
        assert is_found(text), text
    for text in ("open(p)", "open(p, 'rb')", "open(p, 'w', opener=records.no_follow)", "d.copy()"):
        assert not is_found(text), text


@pytest.fixture
def victim(tmp_path):
    file = tmp_path / "victim"
    file.write_text("precious")
    yield file
    assert file.read_text() == "precious"


def test_writers_in_place_refuse_a_link(victim, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(victim)
    for mode in ("w", "a", "r+"):
        with pytest.raises(OSError, match="symbolic"):
            open(link, mode, opener=records.no_follow)  # noqa: SIM115
    with pytest.raises(DataError, match="link: cannot be written"):
        write_synced(link, [b"data"])
    records.write(link, "new")
    assert not link.is_symlink() and link.read_text() == "new"
    with open(tmp_path / "plain", "wb", opener=records.no_follow) as file:
        np.save(file, np.zeros(2))
    assert os.stat(tmp_path / "plain").st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@pytest.mark.parametrize("name", ["log", "profile", "profile/process_00000", "evaluations"])
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
