"""Four simulated CPU devices for every test, and the optional real data."""

import atexit
import gc
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

# Before JAX starts. NPROC gives simulated devices enough threads on a machine with few cores:
# with fewer threads than devices a collective waits for a device that cannot run.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["NPROC"] = "16"
# Tables are cut to the terminal's width; tests of narrow ones say theirs.
os.environ["COLUMNS"] = "200"

from quick_compilation import QUICK, flags_with

# Processes that tests start inherit the flags, and read each other's programs from one cache.
os.environ["XLA_FLAGS"] = flags_with(QUICK, os.environ.get("XLA_FLAGS", ""))
# Operations carry no lines of Python, which take a sixth of a compilation; hlo_test.py asks for
# them where a profile shows them.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"

import jax
import pytest
from campaign import Campaign
from costs import (
    LIMITS,
    class_of,
    pytest_runtest_call,  # noqa: F401
    pytest_runtest_protocol,  # noqa: F401
    pytest_runtest_setup,  # noqa: F401
)
from hypothesis import HealthCheck, settings
from kept_programs import kept_programs  # noqa: F401
from official_entries import official_entries  # noqa: F401
from shared_runs import shared_folder

import dawnjax
from dawnjax.__main__ import main
from dawnjax.machine import compilation

# `nohup` has SIGHUP ignored, a shell the SIGINT of what it runs in the background, and processes
# that tests start would inherit that. A handler is not inherited, so that those hear the signals,
# and this process still does not.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

jax.devices()  # reads the flags
if "PYTEST_XDIST_WORKER" in os.environ:
    # JAX would give back the memory of every program, which takes a worker up to a minute.
    atexit.register(os._exit, 0)

# The same examples in each run of the tests, however long one takes on a busy machine.
settings.register_profile(
    "alike", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("alike")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write tests/golden/*.txt anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that wait first, then the dearest: each worker begins with its part in this order.

    So one worker waits while the others compute, and no dear test is left for the end.
    """

    def place(item: pytest.Item) -> tuple[bool, float]:
        return item.get_closest_marker("waits") is None, -LIMITS[class_of(item)]

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Lets Python look for garbage less often: tracing makes much that lives, and little of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture
def test_data() -> Path:
    """The folder of real data; the test is skipped where there is none."""
    directory = os.environ.get("DAWNJAX_TEST_DATA")
    if not directory:
        pytest.skip("DAWNJAX_TEST_DATA is not set: the real data sets are not here")
    return Path(directory)


@pytest.fixture(scope="session", autouse=True)
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The flag of the cache of compiled programs that the tests of all workers share.

    `DAWNJAX_TEST_CACHE` names a folder that is kept from one suite to the next; a change of a
    program's text, of jaxlib or of XLA's flags is another entry.
    """
    kept = os.environ.get("DAWNJAX_TEST_CACHE")
    directory = kept or str(shared_folder(tmp_path_factory) / "compiled")
    compilation.configure(directory)
    compilation.DEFAULT_CACHE_DIR = directory  # what a command without the flag takes
    return f"--compile_cache_dir={directory}"


@pytest.fixture
def train(request: pytest.FixtureRequest, tmp_path: Path, compile_cache: str) -> Callable:
    """Run `dawnjax train` with the module's FLAGS here; returns the exit status and the result."""

    def run(*flags: str, run_dir: str = "run") -> tuple[int, dict | None]:
        directory = tmp_path / run_dir
        given = (*request.module.FLAGS, compile_cache, f"--run_dir={directory}", *flags)
        status = main(["train", *given])
        file = directory / "result.json"
        return status, json.loads(file.read_text()) if file.exists() else None

    return run


@pytest.fixture(autouse=True)
def first_run_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of an earlier test in this process does not count: it would withhold the total."""
    monkeypatch.setattr(dawnjax, "runs_before", 0)


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Callable[[str, str, str], Campaign]:
    """Begin a campaign (tests/support/campaign.py); one of a `long` test leaves a result file."""
    is_long = request.node.get_closest_marker("long") is not None
    return lambda name, what, promise: Campaign(name, what, promise, is_written=is_long)
