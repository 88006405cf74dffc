"""The race: entries of strangers, and a judge that runs them against the baseline.

`judge.verify` is the judge. `tracks` holds the rules that are data, `rules` those that need no run,
`sandbox` and `contestant` the walls around a run, `handover` its data and clock.
"""
