"""Seconds of a compiled step, and of a run."""
