"""Measurements that anyone can run: `python -m benchmarks` lists them."""

# Imported before all else: a program's time begins at DawnJAX's first line, on both sides.
from dawnjax import program_start

__all__ = ["program_start"]
