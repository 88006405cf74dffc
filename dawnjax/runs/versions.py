"""Versions of the software behind a result."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import dawnjax

_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def installed() -> dict[str, str]:
    """Versions of DawnJAX (and its commit, from a checkout), Python and the libraries."""
    versions = {"dawnjax": dawnjax.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        versions[name] = importlib.metadata.version(name)
    commit = _commit()
    return {**versions, "commit": commit} if commit else versions


def _commit() -> str | None:
    """Commit of the checkout with this code; `+` marks uncommitted changes."""
    top = Path(dawnjax.__file__).resolve().parent.parent
    if not (top / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(top), "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
