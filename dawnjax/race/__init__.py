"""The race: untrusted entries, and a judge that runs them against the baseline.

`judge.verify` is the judge. `tracks` holds the rules that are data, `rules` the checks without a
run, `sandbox` and `contestant` the isolation of a run, `handover` its data and clock.
"""
