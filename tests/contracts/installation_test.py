"""Installed, cloned or unpacked, and from any folder: every process runs the same package."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

TOP = Path(__file__).resolve().parents[2]
CHECKOUT = [
    *("dawnjax", "models", "input_pipeline", "experiments", "tests", "benchmarks", "docs"),
    *("pyproject.toml", "README.md", "LICENSE"),
]

# Python imports `sitecustomize` at its start.
REPORT_PACKAGE = """
import atexit, os, sys

def report():
    with open(os.environ["PACKAGES"], "a") as file:
        print(sys.modules["dawnjax"].__file__, file=file)

if "PACKAGES" in os.environ:
    atexit.register(report)
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of the checkout in a folder named `dawnjax`, its links kept."""
    clone = tmp_path_factory.mktemp("above") / "dawnjax"
    clone.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    for name in CHECKOUT:
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, clone / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(TOP / name, clone)
    return clone


@pytest.fixture(scope="module")
def sdist(clone) -> Path:
    """A source archive of the clone."""
    backend = "import setuptools.build_meta as backend, sys; backend.build_sdist(sys.argv[1])"
    folder = clone.parent / "sdist"
    subprocess.run([sys.executable, "-c", backend, folder], cwd=clone, check=True)
    shutil.rmtree(clone / "dawnjax.egg-info")
    (archive,) = folder.glob("*.tar.gz")
    return archive


def make_environment(folder: Path, *install: str | Path) -> Path:
    """Environment with this one's packages except DawnJAX, and `pip install` of the arguments.

    Returns its folder of programs. Nothing is installed without arguments.
    """
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Their own `.pth` files, such as that of an editable DawnJAX, are not read from here.
    shared = [path for path in sys.path if path.endswith("-packages")]
    (packages / "shared.pth").write_text("\n".join(shared))
    (packages / "sitecustomize.py").write_text(REPORT_PACKAGE)
    if install:
        flags = ["--no-index", "--no-build-isolation", "--no-deps", "--quiet", "--no-compile"]
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        subprocess.run([*pip, "install", *flags, *install], env=clean_environment(), check=True)
    return folder / "bin"


def clean_environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


@pytest.fixture
def launched(tmp_path) -> Callable[..., set[str]]:
    """Launches a short command as two processes; returns where the three had their package."""

    def launch(directory: Path, *program: str | Path) -> set[str]:
        report = tmp_path / "packages"
        report.write_text("")
        done = subprocess.run(
            [*program, "launch", "--processes=2", "--", "check", "--help"],
            cwd=directory,
            env=clean_environment(PACKAGES=str(report)),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        packages = report.read_text().splitlines()
        assert len(packages) == 3
        return set(packages)

    return launch


def test_an_editable_install_works_above_its_clone_and_in_it(clone, tmp_path, launched):
    programs = make_environment(tmp_path / "venv", "--editable", clone)
    package = {str(clone / "dawnjax" / "__init__.py")}
    assert launched(clone.parent, programs / "python", "-m", "dawnjax") == package
    assert launched(clone, programs / "dawnjax") == package


def test_an_unpacked_sdist_works_without_an_install(clone, sdist, tmp_path, launched):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("dawnjax-*")
    programs = make_environment(tmp_path / "venv")
    assert files_of(unpacked / "dawnjax") == files_of(clone / "dawnjax")
    package = {str(unpacked / "dawnjax" / "__init__.py")}
    assert launched(unpacked, programs / "python", "-m", "dawnjax") == package
    # A second copy of the folders that are links in a checkout would be a second copy of classes.
    assert not {path.name for path in unpacked.iterdir()} & {
        link.name for link in (TOP / "dawnjax").iterdir() if link.is_symlink()
    }


def test_a_wheel_from_the_sdist_has_every_file_and_wins_over_a_clone(
    clone, sdist, tmp_path, launched
):
    programs = make_environment(tmp_path / "venv", sdist)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    assert files_of(packages / "dawnjax") == files_of(clone / "dawnjax")
    package = {str(packages / "dawnjax" / "__init__.py")}
    assert launched(clone.parent, programs / "python", "-m", "dawnjax") == package
    assert launched(clone, programs / "dawnjax") == package


def files_of(package: Path) -> set[str]:
    """The files below a folder, also through the links in it, without what Python compiled."""
    names = {
        os.path.relpath(os.path.join(folder, name), package)
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
        if Path(folder).name != "__pycache__"
    }
    assert {"__main__.py", "models/resnet.py", "page/templates/page.css"} <= names
    return names
