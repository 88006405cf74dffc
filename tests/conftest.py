"""Four simulated CPU devices for every test, and the optional real data."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

# Before JAX starts. NPROC gives simulated devices enough threads on a machine with few cores:
# with fewer threads than devices a collective waits for a device that cannot run.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["NPROC"] = "16"
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    ).strip()

import jax
import pytest
from campaign import Campaign
from quick_compilation import QUICK

from dawnjax import programs
from dawnjax.machine import compilation

# For this process alone: commands in processes of their own compile as they do for a user.
with pytest.MonkeyPatch.context() as only_here:
    only_here.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} {QUICK}")
    jax.devices()  # reads the flags


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest tests first: begun last, one would keep a worker busy and the other idle."""
    items.sort(key=lambda item: item.get_closest_marker("faults") is None)


def pytest_collection_finish() -> None:
    """Lets Python look for garbage less often: tracing makes much that lives, and little of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def small_programs_are_quick_too() -> Iterator[None]:
    """A program's own options would win over this process's flags."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "SMALL_BATCH_ELEMENTS", 0)
        yield


@pytest.fixture
def test_data() -> Path:
    """The folder of real data; the test is skipped where there is none."""
    directory = os.environ.get("DAWNJAX_TEST_DATA")
    if not directory:
        pytest.skip("DAWNJAX_TEST_DATA is not set: the real data sets are not here")
    return Path(directory)


@pytest.fixture(scope="session", autouse=True)
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The flag of the cache of compiled programs that the tests of all workers share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    directory = str(shared / "compiled")
    compilation.configure(directory)
    compilation.DEFAULT_CACHE_DIR = directory  # what a command without the flag takes
    return f"--compile_cache_dir={directory}"


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Callable[[str, str, str], Campaign]:
    """Begin a campaign (tests/support/campaign.py); one of a `long` test leaves a result file."""
    is_long = request.node.get_closest_marker("long") is not None
    return lambda name, what, promise: Campaign(name, what, promise, is_written=is_long)
