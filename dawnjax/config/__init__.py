"""Experiments and run options as typed fields, with a flag for each."""
