"""Epochs to a target, from official results and runs, and their intervals."""
