"""Hardware that is not here: what an experiment's programs would cost on it."""
