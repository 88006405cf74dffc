"""Rows of the docs' tables, by subject."""
