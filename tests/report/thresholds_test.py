"""Times to qualities around the target, with answers by hand."""

from made_entries import make_entry, make_trial

from dawnjax.report.thresholds import levels, thresholds_section
from dawnjax.trials.target import Target

SLOW = ((1, 10.0, 91.8), (2, 20.0, 92.6), (3, 30.0, 93.0))
FAST = ((1, 15.0, 92.0), (2, 18.0, 93.2), (3, 40.0, 93.6))


def test_the_order_of_two_entries_at_each_level():
    entries = [
        make_entry([make_trial(30.0, 3, curve=SLOW)] * 2, source="slow", submitter="slow"),
        make_entry([make_trial(18.0, 2, curve=FAST)], source="fast", submitter="fast"),
    ]
    section = thresholds_section(entries)
    assert section is not None
    [shown], [filed] = section.folded, section.tables
    found = {
        source: [row[5] for row in filed.rows if row[0] == source] for source in ("slow", "fast")
    }
    # Levels of half a percent around the target of 93: 91.5, 92, 92.5, 93, 93.5.
    assert found == {
        "slow": [10.0, 20.0, 20.0, 30.0, None],
        "fast": [15.0, 15.0, 18.0, 18.0, 40.0],
    }
    assert [row[4] for row in filed.rows if row[0] == "slow"] == [2, 2, 2, 2, 0]
    assert len(shown.rows) == 2 and shown.rows[0][1:] in (
        tuple(found["slow"]),
        tuple(found["fast"]),
    )


def test_a_mean_of_some_trials_is_none_and_one_entry_alone_is_in_files_only():
    trials = [make_trial(30.0, 3, curve=SLOW), make_trial(None, curve=SLOW[:1])]
    section = thresholds_section([make_entry(trials)])
    assert section is not None and section.folded == ()
    [filed] = section.tables
    assert [row[3:] for row in filed.rows[:2]] == [(2, 2, 10.0), (2, 1, None)]


def test_levels_below_a_loss_are_higher():
    target = Target(metric="loss", value=0.2, direction="at_most")
    assert levels(target) == [0.206, 0.204, 0.202, 0.2, 0.198]
    assert levels(Target(metric="loss", value=None)) == []
