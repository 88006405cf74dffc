"""Saved states of a run, which verify or are not used."""
