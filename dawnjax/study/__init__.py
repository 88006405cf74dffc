"""Many trials, and the comparison of two sets of them. Needs no JAX."""
