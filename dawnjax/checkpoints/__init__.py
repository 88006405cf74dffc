"""What is saved of a run, and whether it verifies."""
