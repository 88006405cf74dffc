"""The replay of a public race: pairs, their figures, and what is left out."""

import pytest

from benchmarks.speedruns import PAIRS, End, compared, fault, machines, read, rows


def test_a_pair_has_the_ratio_of_its_means_and_the_difference_of_its_losses():
    first = [End(10, 10, 3.28 + 0.001 * n, 100.0 + n) for n in range(5)]
    second = [End(8, 8, 3.27 + 0.001 * n, 90.0 + n) for n in range(5)]
    row = compared(first, second)
    assert row["ratio"] == pytest.approx(92 / 102) and row["is_told_apart"]
    assert row["loss_difference"] == pytest.approx(-0.01)
    assert row["loss_ends"][1] < 0 < row["p_not_below_target"] < 0.01
    few = compared(first[:4], second)
    assert not few["is_told_apart"] and few["ratio_kind"] == "range of 4"


def test_a_folder_of_several_kinds_of_runs_is_no_side():
    run = End(10, 10, 3.27, 100.0)
    assert fault([run, run._replace(seconds=101.0)]) == ""
    assert "train 8 and 10 steps" in fault([run, run._replace(num_steps=8)])
    assert "ends before its last step" in fault([run, run._replace(step=9)])
    assert "several machines" in fault([run, run._replace(seconds=800.0)])


def test_every_pair_is_in_the_published_logs(test_data):
    ends = read(test_data / "speedruns" / "modded_nanogpt_evaluations.csv.xz")
    found, left_out = rows(ends)
    paired = {row["record"]: row for row in found if row["is_one_machine"]}
    assert set(paired) == set(PAIRS)
    copy = paired["2026-02-28_TransposeCopyBackward"]
    assert copy["runs"] == [6, 6] and copy["steps"] == [1490, 1490]
    assert copy["ratio"] == pytest.approx(87.94 / 88.38, abs=2e-4)
    assert {"2026-01-10_FusedLinearReLUSquare", "2025-11-29_BatchSizeSchedule"} <= {
        record for record, _ in left_out
    }
    assert all(row["steps"][0] == row["steps"][1] for row in machines(ends))
