"""Statistics of trials, for every command, page and benchmark: NumPy and SciPy alone.

`verdict.judge` compares two samples; nothing else in the project decides which of two is faster.
"""
