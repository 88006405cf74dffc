"""Profiles of the train step: traced steps, the ablation twin, windows inside a run."""
