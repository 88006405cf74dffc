"""Analysis of results, ours and official ones, without JAX.

from dawnjax import analysis
entries = analysis.load("results.jsonl", "runs")
entries.to_dataframe()
"""

from dawnjax.analysis.loading import Entries, load

__all__ = ["Entries", "load"]
