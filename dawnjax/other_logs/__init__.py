"""Logs of other programs as trials: read the rows, tell the columns, make one entry of a path."""
