"""Statistics of trials, for every command, page and benchmark: NumPy and SciPy alone.

`verdict.judge` compares two samples; all code that calls a side faster uses it.
"""
