"""Datasets, one file each, and the transforms that run on the device."""
