"""`dawnjax compare`, on runs that were written and not trained."""

import json
import shutil

import pytest
from made_runs import write_run
from made_studies import made_study
from told import told

from dawnjax.__main__ import main
from dawnjax.study.design import StudyFolder


@pytest.fixture
def folders(tmp_path):
    """Folders of five runs: those of B take twice the time of A and A2, less or more by a step."""
    for name, factor in (("a", 1), ("a2", 1), ("b", 2)):
        for seed, seconds in enumerate((10, 10, 15, 10, 15)):
            write_run(tmp_path / name / str(seed), seed=seed, seconds=5 * factor * seconds / 5)
    return tmp_path


def test_a_slower_side_is_told_with_what_changed(folders, capsys):
    assert main(["compare", f"{folders}/a", f"{folders}/b"]) == 0
    text = capsys.readouterr().out
    assert (
        "verdict: B is slower if all reach: the 95 % interval lies above 1; all 5 trials of A"
        in text
    )
    assert "; B takes 2.000 of A's time" in text
    assert "5 of 5 trials reached, expected time 12 s" in text
    assert "the same experiment" in text
    assert "A side has no profile" in text
    row = next(line for line in text.splitlines() if line.startswith("epochs to the target"))
    assert row.split()[6] == "2"  # the ratio: twice the epochs


@pytest.mark.parametrize(
    "order, hosts, said",
    [
        ("AAAAABBBBB", "hh", "A's trials began from 2026-03-01 00:00 to 2026-03-01 00:04 and B's"),
        ("AAABBBBBAA", "hh", "not in turn"),
        ("ABBAABBAAB", "hh", ""),
        ("ABABBBBAAA", "hh", ""),
        ("ABABABABAB", "hi", "A ran on h and B on i"),
    ],
)
def test_sides_that_did_not_take_turns_on_one_machine_are_told(folders, order, hosts, said, capsys):
    """Load of the machine between two blocks of trials looks like a difference of the sides."""
    seen = {"A": 0, "B": 0}
    for place, side in enumerate(order):
        [log] = (folders / side.lower() / str(seen[side])).glob("*.jsonl")
        seen[side] += 1
        events = [json.loads(line) for line in log.read_text().splitlines()]
        host = {"process_index": 0, "hostname": hosts[side == "B"]}
        events.insert(-1, {**events[-2], "event": "host_summary", "hosts": [host]})
        for event in events:
            event["unix_seconds"] = 1772323200.0 + 60 * place  # 2026-03-01
        log.write_text("".join(json.dumps(event) + "\n" for event in events))
    for more in ([], ["--at=seconds=10"]):
        assert main(["compare", f"{folders}/a", f"{folders}/b", *more]) == 0
        text = capsys.readouterr().out
        assert said in text
        assert ("`dawnjax study` with both as arms" in text) == bool(said)


def test_the_gates_status(folders, capsys):
    a, b = f"{folders}/a", f"{folders}/b"
    assert main(["compare", b, a, "--fail_if_slower_by=0.05"]) == 0
    assert main(["compare", a, b, "--fail_if_slower_by=0.05"]) == 6
    assert main(["compare", a, f"{a}2", "--fail_if_slower_by=0.05"]) == 7
    assert main(["compare", a, f"{a}2", "--fail_if_slower_by=0.9"]) == 0
    assert main(["compare", f"{a}/0", f"{b}/0", "--fail_if_slower_by=0.05"]) == 7
    text = capsys.readouterr().out
    assert "1 and 1 trials; a verdict needs 5 of each" in text
    assert "gate: B slower by 5 % or more is excluded" in text
    assert "no verdict without 4 more trials of each, the fewest that it takes" in text
    assert (
        "judging again is a second look, with" in text and "false verdicts on equal sides" in text
    )


def test_a_trial_on_both_sides_is_no_comparison(folders, capsys):
    """Pairs of a trial with itself differ by 0, and would pass any gate."""
    a, mixed = folders / "a", folders / "mixed"
    shutil.copytree(folders / "b", mixed)
    shutil.copytree(a / "3", mixed / "copy")
    for second, words in ((a, "5 of the 5"), (mixed, "1 of the 6")):
        assert main(["compare", str(a), str(second), "--fail_if_slower_by=0.05"]) == 2
        shown = capsys.readouterr()
        assert f"{words} trials of B are also in A" in shown.err and not shown.out
        assert shown.err.count("\n") == 1


def test_a_side_that_never_reaches_fails_the_gate(folders, capsys):
    for seed in range(5):
        write_run(folders / "never" / str(seed), seed=seed, seconds=None)
    a, never = f"{folders}/a", f"{folders}/never"
    assert main(["compare", a, never, "--fail_if_slower_by=0.05"]) == 6
    assert "verdict: only first reached: 0 of 5 trials of B reached" in capsys.readouterr().out
    assert main(["compare", never, a, "--fail_if_slower_by=0.05"]) == 0


def test_the_same_mathematics_on_other_seeds_is_told_to_take_the_same(tmp_path, capsys):
    for name, seeds in (("a", range(6)), ("b", range(5)), ("c", range(6))):
        for seed in seeds:
            losses, seconds = (2.0, 1.0 + seed), 10.0 + 5 * (seed % 2)
            write_run(tmp_path / name / str(seed), seed=seed, seconds=seconds, losses=losses)
    hint = "the same seeds on both sides, each once, form pairs, which need fewer trials"
    assert main(["compare", f"{tmp_path}/a", f"{tmp_path}/b"]) == 0
    assert hint in capsys.readouterr().out
    assert main(["compare", f"{tmp_path}/a", f"{tmp_path}/c"]) == 0
    text = capsys.readouterr().out
    assert hint not in text and "paired 90 % interval" in text
    for seed in range(6):  # the same seeds already, and other first losses: no pairs
        write_run(tmp_path / "d" / str(seed), seed=seed, seconds=5.0, losses=(2.5, 1.0 + seed))
    assert main(["compare", f"{tmp_path}/a", f"{tmp_path}/d"]) == 0
    assert hint not in capsys.readouterr().out


def test_a_trial_that_alone_decides_is_named_and_decides_nothing(folders, capsys):
    """As where its machine stalled."""
    write_run(folders / "a2" / "3", seed=3, seconds=3000.0)
    stalled = ["compare", f"{folders}/a", f"{folders}/a2", "--fail_if_slower_by=0.05"]
    assert main(stalled) == 7
    verdict = capsys.readouterr().out.partition("verdict: ")[2].partition("\n")[0]
    assert verdict.startswith("undecided: the trial of seed 3 of B took 200 times the median")


def test_a_study_alone_compares_its_arms(tmp_path, capsys):
    times = [10.0, 10.0, 15.0, 10.0, 15.0, 10.0]
    out = tmp_path / "s"
    study, arms, _ = made_study(out, {"3": [*times], "4": [2 * time for time in times]})
    StudyFolder(out).write(study, arms)
    assert main(["compare", str(out)]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("num_epochs=4"))
    assert "6 of 6" in row and "95 % if all reach: " in row and "slower" in row
    beside = f"dawnjax compare {out}/num_epochs_3 {out}/num_epochs_4"
    assert f"next: {beside}" in text
    assert main(["compare", str(out), "--fail_if_slower_by=0.05"]) == 6
    _, arm = told(capsys, "compare", str(out))["study"]["arms"]
    assert arm["verdict"]["word"] == "slower_if_all_reach"
    # Its next command, and the arm by its name.
    assert main([*beside.split()[1:]]) == 0
    assert "verdict: B is slower" in capsys.readouterr().out
    assert main(["compare", f"{out}/num_epochs=4", f"{out}/num_epochs=3"]) == 0
    assert "A  num_epochs=4" in capsys.readouterr().out
    assert main(["report", f"{out}/num_epochs=4", f"--out={tmp_path / 'page'}"]) == 0


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


def test_runs_of_two_experiments_in_a_folder_are_chosen_by_their_source(tmp_path, capsys):
    write_run(tmp_path / "one" / "0", identity="one")
    write_run(tmp_path / "two" / "0", identity="two")
    assert main(["compare", str(tmp_path), str(tmp_path / "one")]) == 2
    line = capsys.readouterr().err
    assert "has 2 training entries; choose one with" in line
    source = line.split("'")[1]
    beside = str(write_run(tmp_path.with_name("beside"), identity="one"))
    assert main(["compare", f"{tmp_path}#{source}", beside]) == 0
    assert main(["compare", f"{tmp_path}#none", beside]) == 2
    assert "has no training entry 'none'" in capsys.readouterr().err


def test_official_entries_of_different_targets_are_not_compared(tmp_path, capsys, test_data):
    entries = str(test_data / "official" / "dawnbench_entries.tar.xz")
    assert main(["compare", entries, entries]) == 2
    line = capsys.readouterr().err
    sources = [word for word in line.split("'") if "/train/" in word]
    assert len(sources) == 8 and "more" in line
    assert main(["compare", f"{entries}#{sources[0]}", f"{entries}#{sources[1]}"]) == 0
    text = capsys.readouterr().out
    assert "undecided: 1 and 1 trials" in text and "not runs of DawnJAX" in text
