"""A real browser for tests: opens a file without a window and returns what became of it."""

import shutil
import subprocess
from pathlib import Path

import pytest

_QUIET = ["--disable-quic", "--no-first-run", "--disable-background-networking"]
_QUIET += ["--disable-component-update", "--disable-sync"]


def opened(file: Path, folder: Path, *flags: str) -> str:
    """Document of a file in Chromium after its scripts ran, as HTML.

    The test is skipped where no Chromium runs. `folder` holds the browser's profile and must be
    new.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", *_QUIET, *flags]
    command += ["--allow-file-access-from-files", f"--user-data-dir={folder}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", f"file://{file}"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        pytest.skip("Chromium did not end within 90 s")
    if ended.returncode:
        pytest.skip(f"Chromium cannot run here: {ended.stderr[-200:]}")
    return ended.stdout
