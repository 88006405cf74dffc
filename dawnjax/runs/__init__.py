"""A run's record: directory, log, clock and result. Nothing here imports JAX."""
