"""`dawnjax compare`: what tests/golden/compare.txt does not show."""

import json

import pytest
from made_runs import write_run
from made_studies import made_study

from dawnjax.__main__ import main
from dawnjax.runs.log import log_path
from dawnjax.study.design import StudyFolder


@pytest.mark.parametrize(
    "order, hosts, said",
    [
        ("AAAAABBBBB", "hh", "A's trials began from 2026-03-01 00:00 to 2026-03-01 00:04 and B's"),
        ("AAABBBBBAA", "hh", "not in turn"),
        ("ABBAABBAAB", "hh", ""),
        ("ABABABABAB", "hi", "A ran on h and B on i"),
    ],
)
def test_sides_that_did_not_take_turns_on_one_machine_are_told(
    tmp_path, order, hosts, said, capsys
):
    """Load of the machine between two blocks of trials looks like a difference of the sides."""
    seen = {"A": 0, "B": 0}
    for place, side in enumerate(order):
        run = write_run(tmp_path / side / str(seen[side]), seed=seen[side], seconds=10.0)
        log = log_path(run)
        seen[side] += 1
        events = [json.loads(line) for line in log.read_text().splitlines()]
        host = {"process_index": 0, "hostname": hosts[side == "B"]}
        events.insert(-1, {**events[-2], "event": "host_summary", "hosts": [host]})
        for event in events:
            event["unix_seconds"] = 1772323200.0 + 60 * place  # 2026-03-01
        log.write_text("".join(json.dumps(event) + "\n" for event in events))
    for more in ([], ["--at=seconds=10"]):
        assert main(["compare", f"{tmp_path}/A", f"{tmp_path}/B", *more]) == 0
        text = capsys.readouterr().out
        assert said in text
        assert ("`dawnjax study` with both as arms" in text) == bool(said)


def test_a_gate_on_a_study_gives_the_reasons_of_arms_that_fail_it(tmp_path, capsys):
    times = [10.0, 10.0, 15.0, 10.0, 15.0, 10.0]
    out = tmp_path / "s"
    factors = {"3": 2, "4": 4, "5": 1}
    study, arms, _ = made_study(
        out, {name: [factor * time for time in times] for name, factor in factors.items()}
    )
    StudyFolder(out).write(study, arms)
    assert main(["compare", str(out), "--fail_if_slower_by=0.05", "--json"]) == 6
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert [reason.partition(":")[0] for reason in reasons] == ["num_epochs=4"]
    gate = ["compare", str(out), "--at=seconds=500", "--fail_if_worse_by=0.1", "--json"]
    assert main(gate) == 7
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert [reason.partition(":")[0] for reason in reasons] == ["num_epochs=4", "num_epochs=5"]
    assert all("undecided at 500 s: " in reason for reason in reasons)
    assert main(["report", f"{out}/num_epochs=4", f"--out={tmp_path / 'page'}"]) == 0


def test_official_entries_of_different_targets_are_not_compared(tmp_path, capsys, test_data):
    entries = str(test_data / "official" / "dawnbench_entries.tar.xz")
    assert main(["compare", entries, entries]) == 2
    line = capsys.readouterr().err
    sources = [word for word in line.split("'") if "/train/" in word]
    assert len(sources) == 8 and "more" in line
    assert main(["compare", f"{entries}#{sources[0]}", f"{entries}#{sources[1]}"]) == 0
    text = capsys.readouterr().out
    assert "undecided: 1 and 1 trials" in text and "not runs of DawnJAX" in text
