"""The figure of the trials that reached, against time: its numbers by hand."""

import re

from made_entries import make_entry, make_trial
from made_reports import entry

from dawnjax.page.section import Figure
from dawnjax.report import contents, inputs
from dawnjax.report.curves import MOST_NAMED, learning_section
from dawnjax.report.reached import reached_figures, reached_tables


def test_the_fraction_that_reached_by_each_moment():
    evaluation = [(1, 5.0, 90.0), (2, 10.0, 94.0)]
    trials = [make_trial(seconds, curve=evaluation) for seconds in (20.0, 10.0, 40.0)]
    trials.append(make_trial(None, total=60.0, curve=evaluation, status="not_reached"))
    entry = make_entry(trials)
    [table] = reached_tables([entry])
    assert [row[-3:] for row in table.rows] == [
        (0.0, 0.0, 4),
        (10.0, 0.25, 4),
        (20.0, 0.5, 4),
        (40.0, 0.75, 4),
        (60.0, 0.75, 4),
    ]
    [figure] = reached_figures([entry], ours=False)
    assert "3 of 4, the first after 10 s" in figure.summary
    assert figure.draw(640.0) is not None
    assert reached_figures([make_entry(trials[:1])], ours=False) == []


def test_an_entry_whose_trials_still_run_is_left_out_with_a_reason():
    curve = [(1, 5.0, 94.0)]
    reached = [make_trial(seconds, curve=curve, status="reached") for seconds in (10.0, 20.0)]
    ours = {"suite": "dawnjax", "benchmark": "digits"}
    over = make_entry(reached, source="over", **ours)
    running = [*reached, make_trial(None, total=5.0, status="running")]
    entries = [over, make_entry(running, source="running", **ours)]
    [figure], [table] = reached_figures(entries, ours=True), reached_tables(entries)
    [(_, why)] = figure.left_out
    assert why == "1 of 3 trials not finished"
    assert {row[-1] for row in table.rows} == {2}
    assert "fastest" not in figure.caption


def test_the_caption_says_of_how_many_entries_the_fastest_are_drawn():
    trials = [make_trial(n + 1.0, curve=[(1, 0.5, 94.0)]) for n in range(MOST_NAMED + 1)]
    many = [make_entry([trial] * 2, source=f"e{n}") for n, trial in enumerate(trials)]
    for entries, caption in ((many[1:], ""), (many, f"{MOST_NAMED} fastest of {len(many)} ")):
        [figure] = reached_figures(entries, ours=False)
        assert caption in figure.caption and bool(caption) == ("fastest" in figure.caption)


def test_each_of_41_trials_that_reached_is_drawn():
    """As `digits` has them: one or two evaluations, most of them the one that reached."""
    trials = [make_trial(0.5 + n / 100, curve=[(6, 0.5 + n / 100, 94.0)]) for n in range(41)]
    section = learning_section([make_entry(trials)])
    assert section is not None
    [figure] = section.blocks
    assert isinstance(figure, Figure)
    assert "41 trials, drawn one by one" in figure.summary
    assert figure.draw(640.0).body().count("end of a trial") == 41


def test_our_own_entries_begin_the_page_with_what_reached_by_when():
    fields = {"suite": "dawnjax", "round": "", "benchmark": "digits", "submitter": ""}
    ours = [
        entry(rate, [scale * n for n in (10.0, 11.0, 12.0, 13.0, 14.0)], variant=f"rate={rate}",
              source=f"digits rate={rate}", **fields)
        for rate, scale in (("0.1", 1.0), ("0.2", 3.0))
    ]  # fmt: skip
    official = entry("dgx", [800.0, 820.0, 810.0])
    made = contents.make(inputs.Inputs((*ours, official)))
    (first,) = re.findall(r'(?s)<section id="summary".*?</section>', made.html)
    figures = re.findall(r'<figure id="figure-([a-z0-9_-]+)"', first)
    assert figures == ["curves-1-seconds", "reached-1", "overview"]
    assert "a trial that never reached counts among all" in first
    # Each figure once: that of the official entry stays with its learning curve.
    (section,) = re.findall(r'(?s)<section id="curves".*?</section>', made.html)
    assert re.findall(r'id="figure-reached-\d+"', section) == ['id="figure-reached-2"']
    assert len(re.findall(r'id="figure-reached-\d+"', made.html)) == 2
    assert [table.name for table in made.tables].count("reached_by_time") == 1
