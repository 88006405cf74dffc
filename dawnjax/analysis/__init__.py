"""Analysis of runs; reads logs and summaries, imports no JAX."""
