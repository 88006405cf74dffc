"""Leaderboards on the page: places, labels, metrics, own runs among official entries."""

import dataclasses
import re

from made_reports import Page, entry, some_entries

from dawnjax.analysis.leaderboard import RULE
from dawnjax.page.html_table import to_html
from dawnjax.report import boards, contents, inputs, summary
from dawnjax.trials import labels
from dawnjax.trials.group import Entry, write_entries
from dawnjax.trials.labels import labels_apart
from dawnjax.trials.target import Target


def test_each_target_has_its_own_board_and_each_entry_its_own_numbers(tmp_path):
    easy = Target(metric="top_1_accuracy", value=0.9, unit="fraction")
    hard = Target(metric="top_1_accuracy", value=0.99, unit="fraction")
    fields = {"suite": "dawnjax", "round": "", "benchmark": "digits", "source": "digits/x/1 x cpu"}
    write_entries(tmp_path / "a.jsonl", [entry("s", [100.0, 110.0], **fields, target=hard)])
    write_entries(tmp_path / "b.jsonl", [entry("s", [100.0, 300.0, 500.0], **fields, target=hard)])
    write_entries(tmp_path / "c.jsonl", [entry("s", [10.0, 11.0], **fields, target=easy)])
    made = contents.make(inputs.read([tmp_path / f"{name}.jsonl" for name in "abc"]))
    tables = {table.name: table for table in made.tables}
    rows = tables["leaderboards"].records()
    assert [(row["board"], row["rank"], row["seconds"]) for row in rows] == [
        ("DawnJAX digits to top_1_accuracy at least 0.9", 1, 10.5),
        ("DawnJAX digits to top_1_accuracy at least 0.99", 1, 105.0),
        ("DawnJAX digits to top_1_accuracy at least 0.99", 2, 300.0),
    ]
    # CVs by hand: 5 / 105, 163.3 / 300 and 0.5 / 10.5, each in the figure and the table.
    for shown in ("4.76% · 2/2", "54.4% · 3/3"):
        assert shown in made.html
    named = {row["entry"]: row["trials"] for row in tables["stability"].records()}
    assert [number for label, number in named.items() if "from b.jsonl" in label] == [3]
    assert "expected cost" in made.html and "mean cost" in made.html


def test_a_metric_has_its_declared_words():
    both = (Target(metric="mask_ap", value=0.2),)
    for target, said in (
        (
            Target(metric="mse", value=0.3, direction="at_most", unit="mm", title="MSE"),
            ("MSE (mm), lower is better", "0.2898 mm", "target at most 0.3 mm"),
        ),
        (Target(metric="r2", value=0.3, unit="1", title="R2"), ("R2", "0.2898", "target 0.3")),
        (
            Target(metric="top1Accuracy", value=94.0, unit="percent"),
            ("top-1 accuracy (%)", "0.2898%", "target 94%"),
        ),
        (
            Target(metric="eval_accuracy", value=25.0, unit="bleu"),
            ("eval_accuracy (BLEU)", "0.2898", "target 25"),
        ),
        (
            Target(metric="ap", value=0.25, unit="fraction", others=both),
            ("ap (%)", "28.98%", "target 25% and mask_ap at least 0.2"),
        ),
    ):
        words = labels.metric_label(target), labels.quality(0.28975, target)
        assert (*words, labels.target_label(target)) == said
    # No rounding shows a target as reached.
    target = Target(metric="top_1_accuracy", value=0.759, unit="fraction")
    assert labels.quality(0.758976, target) == "75.8976%"
    assert labels.quality(0.75904, target) == "75.90%"


def test_a_board_shows_intervals_and_the_places_that_an_entry_might_have():
    fields = {"suite": "dawnjax", "round": "", "benchmark": "digits"}
    times = {"few": [0.48, 0.481, 0.483], "ten": [0.58, 0.6] * 5, "slow": [1.0, 1.02] * 5}
    entries = [
        dataclasses.replace(
            made,
            source=name,
            trials=tuple(dataclasses.replace(t, budget_seconds=1.0) for t in made.trials),
        )
        for name, made in ((name, entry(name, list(of), **fields)) for name, of in times.items())
    ]
    (board,) = boards.boards(entries)
    rows = Page(to_html(boards.board_table(board), "board")).rows[1:]
    assert [row[0] for row in rows] == ["11\u20133", "21\u20132", "32\u20133"]
    assert rows[0][2:4] == ["3 of 3", "481 msrange of 3: 480 ms to 483 ms"]
    assert re.fullmatch(r"590 ms95 % if all reach: 54\d ms to 64\d ms", rows[1][3])
    assert boards.leaderboards_section([board]) is None  # ours stand in the summary
    assert board.is_ours and RULE in boards.leaderboards_table([board]).notes
    single = [dataclasses.replace(e, trials=e.trials[:1]) for e in entries[:2]]
    table = boards.board_table(boards.boards(single)[0])
    assert any("No rank is certain here" in note for note in table.notes)


def test_a_cut_off_day_ranks_the_entries_of_its_time():
    made = contents.make(inputs.Inputs(tuple(some_entries())), until="2018-03-01")
    board = next(table for table in made.tables if table.name == "leaderboards")
    training = [row for row in board.records() if row["kind"] == "training"]
    assert [str(row["source"])[-5:] for row in training] == ["dawn0", "dawn1", "dawn2"]


def test_entries_beside_each_other_are_named_by_what_differs():
    def ours(variant: str, system: str = "1 x cpu (2 cores)") -> Entry:
        fields = {"suite": "dawnjax", "benchmark": "digits", "variant": variant}
        return entry(system, [1.0], **fields)

    same = "optimizer.base_learning_rate=0.2"
    group = [ours(f"{same}, global_batch_size={size}") for size in (32, 64)]
    assert labels_apart(group) == ["global_batch_size=32", "global_batch_size=64"]
    assert labels_apart([ours("data.kept_classes=[0, 1]"), ours("")]) == [
        "kept_classes=[0, 1]",
        "digits",
    ]
    assert labels_apart(group[:1]) == [
        "digits base_learning_rate=0.2 global_batch_size=32 on 1 x cpu (2 cores)"
    ]
    elsewhere = [ours(""), ours("", "8 x TPU v3")]
    assert labels_apart(elsewhere) == ["on 1 x cpu (2 cores)", "on 8 x TPU v3"]
    # An experiment whose file was changed has another identity, and the same name.
    edited = [dataclasses.replace(ours(""), identity=name * 16) for name in "ab"]
    assert labels_apart(edited) == ["digits (aaaaaaaa)", "digits (bbbbbbbb)"]
    # An option such as an environment variable is not a name: it stands behind one.
    flags = dataclasses.replace(ours(""), distinction="XLA_FLAGS=--x")
    assert labels_apart([flags, ours("num_epochs=4")]) == ["digits", "num_epochs=4"]
    assert labels_apart([flags, ours("")]) == ["digits (XLA_FLAGS=--x)", "digits"]
    twice = [entry("dgx", [1.0], framework=name) for name in ("MXNet", "PyTorch")]
    assert labels_apart(twice) == [
        "acme dgx \xb7 8 acc. (MXNet)",
        "acme dgx \xb7 8 acc. (PyTorch)",
    ]


def test_own_runs_on_published_data_stand_among_official_entries():
    official = entry(
        "fast",
        [100.0],
        suite="dawnbench",
        round="",
        benchmark="CIFAR10",
        source="CIFAR10/train/fast.json",
        target=Target(metric="top1Accuracy", value=94.0, unit="percent"),
    )
    fields = {
        "suite": "dawnjax",
        "round": "",
        "benchmark": "cifar10_record",
        "source": "cifar10_record/1234/gpu",
        "target": Target(metric="top_1_accuracy", value=0.94),
        "data": "CIFAR-10",
    }
    ours = entry("gpu", [50.0], **fields, published="CIFAR-10")
    assert board_sources([official, ours]) == [ours.source, official.source]
    assert boards.why_none_is_comparable([official, ours]) == ""
    for fields, why in (
        ({"published": ""}, "no DAWNBench benchmark here uses its data, CIFAR-10"),
        (
            {"target": Target(metric="top_1_accuracy", value=0.9)},
            "its target is top_1_accuracy at least 0.9, and CIFAR10 asks for "
            "top1Accuracy at least 94",
        ),
        ({"benchmark": "cifar10_record, fine-tuned"}, "it begins with trained parameters"),
        ({"published": "ImageNet"}, "no DAWNBench benchmark here uses its data"),
    ):
        other = dataclasses.replace(ours, **fields)
        assert board_sources([official, other]) == [official.source]
        said = summary.conclusions(inputs.Inputs((official, other)))[0]
        assert said.startswith("Your runs cannot be compared with the official entries (")
        assert why in said


def test_own_runs_of_an_mlperf_benchmark_have_a_rank_if_their_data_are_its_own():
    fields = {"suite": "mlperf_training", "round": "v5.1", "benchmark": "llama31_8b"}
    target = Target(metric="eval_accuracy", value=3.3, direction="at_most")
    official = entry("fast", [100.0] * 3, **fields, source="x/llama31_8b", target=target)
    fields = {"suite": "dawnjax", "round": "", "source": "c4_llama31_8b/1234/gpu"}
    fields |= {"benchmark": "c4_llama31_8b", "official": "llama31_8b", "data": "c4_llama31"}
    loss = Target(metric="loss", value=3.3, direction="at_most")
    ours = entry("gpu", [50.0], **fields, target=loss)
    [board] = [b for b in boards.boards([official, ours]) if b.title.startswith("MLPerf")]
    rows = boards.board_table(board).records()
    assert [(row["source"], row["rank"]) for row in rows] == [
        (official.source, 1),
        (ours.source, None),
    ]
    assert "nothing shows that its data, c4_llama31, are the benchmark's" in rows[1]["remark"]
    for other in (
        dataclasses.replace(ours, official=""),
        dataclasses.replace(ours, target=dataclasses.replace(loss, value=3.4)),
        dataclasses.replace(ours, benchmark="c4_llama31_8b, fine-tuned"),
    ):
        [board] = [b for b in boards.boards([official, other]) if b.title.startswith("MLPerf")]
        assert len(board.rows) == 1
    for named, why in (("", "is none"), ("bert", "is bert, but no entry here belongs to it")):
        other = dataclasses.replace(ours, official=named)
        said = boards.why_none_is_comparable([official, other])
        assert f"(c4_llama31_8b: the mlperf_benchmark of its experiment {why})" in said
    resnet = Target(metric="eval_accuracy", value=0.759, unit="fraction")
    official = dataclasses.replace(official, benchmark="resnet", target=resnet)
    on_it = Target(metric="top_1_accuracy", value=0.759, unit="fraction")
    ours = dataclasses.replace(ours, official="resnet", target=on_it, published="ImageNet")
    [board] = [b for b in boards.boards([official, ours]) if b.title.startswith("MLPerf")]
    assert [row.entry.source for row in board.rows] == [ours.source, official.source]


def test_a_run_stands_among_entries_with_two_targets_if_it_has_both():
    both = Target(
        metric="BBOX",
        value=0.377,
        unit="fraction",
        others=(Target(metric="SEGM", value=0.339),),
    )
    fields = {"suite": "mlperf_training", "round": "v3.1", "benchmark": "maskrcnn"}
    official = entry("fast", [100.0] * 5, **fields, source="x/maskrcnn", target=both)
    mask = Target(metric="mask_ap", value=0.339)
    ours_both = Target(metric="box_ap", value=0.377, unit="fraction", others=(mask,))
    fields = {"suite": "dawnjax", "round": "", "benchmark": "x", "official": "maskrcnn"}
    ours = entry("gpu", [50.0], **fields, source="ours", target=ours_both, published="COCO 2017")
    [board] = [b for b in boards.boards([official, ours]) if b.title.startswith("MLPerf")]
    assert [row.entry.source for row in board.rows] == [ours.source, official.source]
    shown = {row["target"] for row in boards.board_table(board).records()}
    assert shown == {"BBOX at least 0.377 and SEGM at least 0.339"}
    for others in ((), (dataclasses.replace(mask, value=0.3),), (mask, mask)):
        less = dataclasses.replace(ours, target=dataclasses.replace(ours_both, others=others))
        [board] = [b for b in boards.boards([official, less]) if b.title.startswith("MLPerf")]
        assert [row.entry.source for row in board.rows] == [official.source]


def board_sources(entries: list[Entry]) -> list:
    """Sources of the board of DAWNBench's CIFAR10, in their order."""
    [board] = [b for b in boards.boards(entries) if b.title.startswith("DAWNBench CIFAR10")]
    return [row.entry.source for row in board.rows]
