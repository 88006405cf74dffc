"""Classes of tests by what they cost in CPU time: a test that costs more than its class fails.

A test without a marker is of class `unit`. CPU time counts and not wall time, so that a busy
machine fails no test; processes that a test started and waited for are included.
"""

import contextlib
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMITS = {"unit": 10.0, "waits": 10.0, "compiles": 60.0, "processes": 90.0}
"""CPU seconds that a test of each class may take: about twice those of the dearest on an idle
machine whose caches are empty. The first import of a large package is charged too."""

RECORD_VARIABLE = "DAWNJAX_TEST_COSTS"
"""A file to which each test appends its CPU and wall seconds, as a line of JSON."""


def class_of(item: pytest.Item) -> str:
    """Dearest class that the test is marked with; `faults` are processes too."""
    marks = {mark.name for mark in item.iter_markers()}
    marks |= {"processes"} if "faults" in marks else set()
    return max((name for name in LIMITS if name in marks), key=LIMITS.__getitem__, default="unit")


def spent_seconds() -> float:
    """CPU seconds of this process, and of those that it started and waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@contextlib.contextmanager
def _charged(item: pytest.Item, what: str) -> Iterator[None]:
    """Fail a test of which a part costs more than its class."""
    before = spent_seconds()
    yield
    seconds, name = spent_seconds() - before, class_of(item)
    is_long = item.get_closest_marker("long") is not None
    if seconds > LIMITS[name] and not is_long:
        larger = [other for other in LIMITS if LIMITS[other] > LIMITS[name]]
        pytest.fail(
            f"{seconds:.1f} CPU seconds of {what}; a test of class {name} has"
            f" {LIMITS[name]:g} at most (tests/support/costs.py). Make it cheaper"
            + (f", or mark it {' or '.join(larger)}" if larger else ""),
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Charge fixtures to the first test that asks for them."""
    with _charged(item, "its fixtures"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _charged(item, "its own"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record what a test costs with its fixtures, where the variable asks for it."""
    file = os.environ.get(RECORD_VARIABLE)
    before, started = spent_seconds(), time.monotonic()
    result = yield
    if file:
        cpu, wall = spent_seconds() - before, time.monotonic() - started
        row = {"test": item.nodeid, "class": class_of(item), "cpu": cpu, "wall": wall}
        with Path(file).open("a") as lines:
            lines.write(json.dumps(row) + "\n")
    return result
