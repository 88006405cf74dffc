"""Costs around a step: the loop, input, start-up, import, the profile."""

from collections.abc import Iterator

from benchmarks.harness import Rounds
from benchmarks.result_tables.cells import compared_row, interval, machine, when
from benchmarks.result_tables.result_files import Record
from dawnjax.statistics.interval import mean


def loop_overhead(name: str, record: Record) -> Iterator[list[str]]:
    """One row for each of the two settings."""
    for setting, facts in record.items():
        if isinstance(facts, dict) and "first" in facts:
            yield compared_row(name, record, setting, facts, 0)


def image_input(name: str, record: Record) -> Iterator[list[str]]:
    """Examples that a core decodes and feeds in a second."""
    for field, what in (
        ("decode", "photograph to a square of 256"),
        ("decode_for_training", "photograph to what a training step needs"),
        ("feed", "prepared square to what a training step needs"),
    ):
        yield compared_row(name, record, f"{what}, images", record[field], 0)
    what, where = "packed text to what a training step needs, tokens", machine(name, record)
    text = record["text"]
    yield [what, where, when(record, "jax"), str(len(text["rates"])), f"{text['median']:,.0f}"]


def start_up(name: str, record: Record) -> Iterator[list[str]]:
    """Seconds of whole processes, and of a second run against a first."""
    for command, facts in record["commands"].items():
        yield compared_row(name, record, f"`{command}` against {facts['against']}", facts, 3)
    again = record["second_runs"]
    for field, what in (("compile_seconds", "compilation"), ("process_seconds", "whole process")):
        title = f"{what} of a second run of `{again['experiment']}` against the first"
        yield compared_row(name, record, title, again[field], 1)


def import_logs(name: str, record: Record) -> Iterator[list[str]]:
    """Seconds to read all official logs, against a scan of their text."""
    what = f"{record['logs']} logs, {record['bytes'] / 1e6:.1f} MB, {record['records']:,} records"
    yield compared_row(name, record, f"{what}, CPU s", record, 3)


def profile_cost(name: str, record: Record) -> Iterator[list[str]]:
    """Cost of the spans, a sample and a traced step."""
    loop, window = record["loop"], record["window"]
    middle, *ends = record["spans_microseconds_a_call"]
    sample, trace = record["sample_cpu_microseconds"], record["trace_bytes_a_step"]
    pairs = zip(loop["first"], loop["second"], strict=True)
    added = mean([first - second for first, second in pairs])
    yield ["hardware; date", f"{machine(name, record)}; {when(record, 'jax')}"]
    spread = f"95 % of repetitions: {interval(*ends, digits=2)}"
    yield ["spans of a call, CPU us", f"{middle:.2f}", spread]
    yield ["a sample of the host, one a second, CPU us", f"{sample:.0f}"]
    what = "a call of the loop with both, less one without, CPU us"
    yield [what, f"{added.value:.0f}", added.ends_text(0), str(added.trials)]
    ratio = Rounds.of(window).ratio
    what = "time of a traced step / of one that is not"
    yield [what, f"{ratio.value:.2f}", ratio.ends_text(2), str(ratio.trials)]
    yield ["trace of a step, kB", f"{trace / 1e3:.0f}"]
