"""A finished run: its saved state evaluated, timed, or taken by another run."""
