"""Rows of the docs' tables, by what was measured."""
