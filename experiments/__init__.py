"""Experiments, one file each: a docstring and one constant, EXPERIMENT."""
