"""The one rule for runs that may be pooled as trials, at every place that pools."""

import pytest
from made_runs import write_run

from dawnjax.report.pooled import pooled
from dawnjax.trials import ours
from dawnjax.trials.ours import entries_of

ON_CPU = {"platform": "cpu", "device_kind": "cpu", "cores": 2}


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({}, {"identity": "b"}, "its experiment has the identity b, not identity"),
        (
            {},
            {"options": {"gradient_norm": True}},
            "run options differ: gradient_norm=True",
        ),
        ({}, {"settings": {"jax_x": 1}}, "its run options differ: jax_x=1"),
        ({}, {"num_devices": 16}, "it ran on 16 x tpu v4 on 2 hosts, not on 8 x"),
        ({}, {"device_kind": "tpu v5"}, "it ran on 8 x tpu v5 on 2 hosts, not on 8 x tpu v4"),
        ({}, {"mesh": {"data": 4, "fsdp": 2}}, "it ran with mesh=4 data x 2 fsdp, not 8 data"),
        ({}, {"platform": "gpu"}, "it ran with platform=gpu, not tpu"),
        (ON_CPU, {**ON_CPU, "cores": 1}, "cpu (1 core a host) on 2 hosts, not on 8 x cpu (2 cores"),
    ],
)
def test_runs_that_differ_in_more_than_their_seed_are_never_pooled(tmp_path, first, second, why):
    runs = [
        ours.read_run(write_run(tmp_path / name, seed=seed, **fields))
        for seed, (name, fields) in enumerate({"a": first, "b": first, "c": second}.items())
    ]
    alike, differ = runs[1].made.difference(runs[0].made), runs[2].made.difference(runs[0].made)
    assert not alike and why in differ
    entries = entries_of(runs)
    assert sorted(len(entry.trials) for entry in entries) == [1, 2]
    assert entries[0].source != entries[1].source
    assert sorted(len(group) for _, group in pooled(runs)) == [1, 2]
