"""The paper's tables, published beside recomputed."""

import csv
import dataclasses
from pathlib import Path

import pytest
from made_entries import entry_of, make_entry, make_trial, official_list
from official_figures import SSD_8

from dawnjax.analysis import paper
from dawnjax.report.paper import paper_section
from dawnjax.trials.target import Target


def by_cell(parts):
    return {
        (cell.table, cell.row, cell.cell): dataclasses.asdict(cell)
        for cells in parts.values()
        for cell in cells
    }


def test_every_verdict_on_the_official_entries(official_entries, test_data):
    parts = paper.recomputed(official_entries, official_list(test_data))
    rows = by_cell(parts)
    verdicts = [row["verdict"] for row in rows.values()]
    assert len(rows) == sum(map(len, parts.values()))
    wrong = {key for key, row in rows.items() if row["verdict"] == paper.DISAGREES}
    assert wrong == {
        ("Table 2", "SSD", "quality target"),
        ("Table 3b", "ResNet, 1xDGX-1", "coefficient of variation"),
        ("Table 7", "ResNet, 1", "batch size"),
        ("Table 7", "Transformer, 1", "epochs"),
        ("Table 7", "Transformer, 1", "batch size"),
        ("Table 8", "ResNet, 16xDGX-2H", "servers"),
        ("abstract", "ImageNet, April 2018", "time"),
    }
    assert all(rows[key]["remark"] for key in wrong)
    # Rows of three tables have no logs here, and one entry of the count of 2018 is withheld.
    assert verdicts.count(paper.NO_LOGS) == 13
    for name, printed in (("SSD, 1xDGX-1", "0.5%"), ("GNMT, 1xDGX-1", "0.2%")):
        row = rows["Table 3b", name, "coefficient of variation"]
        assert (row["published"], row["verdict"]) == (printed, paper.NO_LOGS)
        assert row["remark"] == "the public archive of v0.5 has no logs of it"
    for name in ("SSD, 1 to 8", "Mask R-CNN, 1 to the large system"):
        row = rows["Table 7", name, "speedup of the time to accuracy"]
        assert row["verdict"] == paper.NO_LOGS and "not among those given" in str(row["remark"])
    errata, *_ = paper_section(parts).every_table
    assert {row["cell"] for row in errata.records()} == {cell for _, _, cell in wrong}


def test_recomputed_cells(official_entries, test_data):
    """What the logs give by an independent reading of them."""
    rows = by_cell(paper.recomputed(official_entries, official_list(test_data)))
    with Path(__file__).with_name("recomputed.csv").open(newline="") as file:
        for table, row, cell, value, tolerance in [*csv.reader(file)][1:]:
            recomputed = rows[table, row, cell]["recomputed"]
            assert recomputed == pytest.approx(float(value), abs=float(tolerance)), (
                table,
                row,
                cell,
            )


def test_variation_of_all_entries(official_entries):
    largest, transformer = paper.recomputed(official_entries)["section 4.1"]
    assert largest.recomputed == pytest.approx(13.83, abs=0.01)
    assert largest.source.endswith("dgx2_ngc18.11_pytorch/gnmt")
    assert largest.verdict == paper.AGREES
    assert transformer.recomputed == pytest.approx(20.25, abs=0.01)


def ssd(times, **fields):
    return entry_of(
        times,
        source=SSD_8,
        suite="mlperf_training",
        round="v0.5",
        benchmark="ssd",
        target=Target(metric="eval_accuracy", value=0.212),
        **fields,
    )


def test_made_entries_agree_or_not():
    key = ("Table 3b", "SSD, 8xDGX-1", "coefficient of variation")
    published = [391.562, 389.450, 388.163, 430.850, 348.114]
    row = by_cell(paper.recomputed([ssd(published)]))[key]
    assert row["verdict"] == paper.AGREES and row["recomputed"] == pytest.approx(6.7208, abs=1e-4)
    row = by_cell(paper.recomputed([ssd([100.0, 101.0])]))[key]
    assert row["verdict"] == paper.DISAGREES
    assert row["published"] == "6.7%" and row["tolerance"] == 0.05


def test_without_entries_nothing_agrees():
    rows = by_cell(paper.recomputed([]))
    assert ("Table 2", "SSD", "quality target") in rows
    for row in rows.values():
        assert row["verdict"] == paper.NO_LOGS and row["recomputed"] is None


def test_an_entry_is_found_wherever_it_lies_but_not_in_its_history():
    entry = make_entry([make_trial(1.0)], source="x/v0.5.0/y/ImageNet/train/name")
    old = dataclasses.replace(entry, source="15b039dd/ImageNet/train/name")
    assert paper.find_entry([old], "ImageNet/train/name") is None
    assert paper.find_entry([old, entry], "ImageNet/train/name") is entry
    assert paper.find_entry([entry], "train/nam") is None
