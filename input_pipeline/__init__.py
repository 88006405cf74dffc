"""Datasets: what a run reads of them, one file each, and their preparation."""
