"""Write the tables of the docs from the result files.

    python -m benchmarks tables

A table stands in a page of `docs/` between `<!-- table NAME -->` and `<!-- end of table -->`. The
command replaces what lies between with what the files in `benchmarks/results/` hold, every file and
every failed trial included. `tests/pages_test.py` fails while a page differs from its files.
"""

import argparse
import dataclasses
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
END = "<!-- end of table -->"
_BLOCK = re.compile(rf"(<!-- table (\w+) -->\n).*?({END})", re.DOTALL)

H100_BYTES_PER_SECOND = 3.35e12
"""Memory bandwidth of an H100 SXM. Source: NVIDIA H100 Tensor Core GPU data sheet."""

MISSED = "**missed**"

NOT_ITS_BEST = "not its best settings"
"""Says of an older file that neither PyTorch's other modes nor cuDNN's search were tried."""

Record = dict[str, Any]
Rows = list[list[str]]


class UnknownTable(ValueError):
    """A page names a table that there is not."""


def main() -> int:
    """Write every table of every page."""
    argparse.ArgumentParser(
        prog=sys.argv[0], description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args()
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        try:
            new = filled(text)
        except UnknownTable as error:
            print(f"benchmarks tables: {page}: {error}", file=sys.stderr)
            return 2
        if new != text:
            page.write_text(new)
            print(f"{page}: written")
    return 0


def filled(page: str) -> str:
    """A page with each of its tables made anew.

    Args:
      page: Its Markdown.

    Raises:
      UnknownTable: The page names a table that there is not.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match[2]
        if name not in TABLES:
            raise UnknownTable(f"no table {name!r}; there are {', '.join(TABLES)}")
        return f"{match[1]}{TABLES[name].text()}\n{match[3]}"

    return _BLOCK.sub(replaced, page)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of what some result files hold.

    Attributes:
      patterns: Globs of the files, in the order of their rows.
      rows: Makes all rows, the head first, from the files' names and contents; a short row is
        filled up with empty cells.
    """

    patterns: tuple[str, ...]
    rows: Callable[[list[tuple[str, Record]]], Rows]

    def files(self) -> list[Path]:
        """The result files, in the order of `patterns` and then by name."""
        return [file for pattern in self.patterns for file in sorted(RESULTS.glob(pattern))]

    def text(self) -> str:
        """The table as Markdown, and below it the files that it is made from."""
        files = self.files()
        records = [(file.stem, json.loads(file.read_text())) for file in files]
        rows = self.rows(records)
        width = len(rows[0])
        head, *body = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in rows]
        lines = [head, "|" + "---|" * width, *body]
        if files:
            remarks = [f"`{name}`: {r['note']}" for name, r in records if "note" in r]
            names = ", ".join(f"`{file.name}`" for file in files)
            lines += ["", " ".join([f"From {names}.", *remarks])]
        return "\n".join(lines)


def each(head: str, rows: Callable[[str, Record], Iterator[list[str]]]) -> Callable:
    """Rows of all files below a head, whose cells stand between bars."""
    cells = head.split(" | ")
    return lambda files: [cells, *(row for name, record in files for row in rows(name, record))]


# What a cell says.


def machine(name: str, record: Record) -> str:
    """The hardware of a result: its accelerators, or else cores and processor.

    A load above the number of cores is told. A file whose name ends in `_zen5` was measured on an
    EPYC of family 26, which the processor's own name does not say.
    """
    facts = record.get("environment")
    if facts is None:
        return f"{record['num_devices']} x {record['device_kind']}"
    accelerators = facts.get("accelerators", [])
    if accelerators:
        return f"{len(accelerators)} x {accelerators[0].split(',')[0]}"
    processor = facts["processor"].replace("(R)", "").removesuffix(" Processor")
    processor += " (Zen 5)" if name.endswith("_zen5") else ""
    load = facts.get("load_before", 0)
    is_busy = f", load {load:g} before" if load > facts["cores"] else ""
    return f"{facts['cores']} cores of {processor}{is_busy}"


def when(record: Record, *names: str) -> str:
    """The day of a result, and the versions of the named packages."""
    facts = record.get("environment") or record
    installed = [(name, facts["versions"].get(name)) for name in names]
    versions = ", ".join(
        f"{name} {version.split('+')[0]}" for name, version in installed if version
    )
    return facts["date"][:10] + (f"; {versions}" if versions else "")


def interval(low: float, high: float, digits: int = 3) -> str:
    """Both ends of an interval."""
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def earlier(name: str) -> str:
    """A remark on results whose file name says that they are from before a change."""
    return ", earlier code" if name.endswith("_before") else ""


def spread(values: list[float], digits: int) -> str:
    """Mean, population standard deviation and extremes; `none` of no values."""
    if not values:
        return "none"
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    return (
        f"{mean:,.{digits}f} (sd {deviation:.{digits}f}; "
        f"{interval(min(values), max(values), digits)})"
    )


def present(rows: list[Record], field: str) -> list[float]:
    """The values of a field where it has one."""
    return [row[field] for row in rows if row.get(field) is not None]


# The tables.


def trials(files: list[tuple[str, Record]]) -> Rows:
    """A column for each file of `benchmarks/seeds.py`."""
    rows: Rows = [
        ["experiment"],
        ["hardware"],
        ["date; versions"],
        ["trials that reached the target"],
        ["time to accuracy, s"],
        ["total from the program's start to the target, s"],
        ["epochs"],
        ["accuracy at the end"],
        ["training, s"],
        ["evaluations, s"],
        ["run start to the last evaluation, s"],
        ["compilation, s: first trial; median of the others"],
        ["examples a second"],
    ]
    for name, record in files:
        all_trials = record["trials"]
        times = [t["time_to_accuracy_seconds"] for t in all_trials if t["reached"]]
        cv = f", CV {record['time_to_accuracy_cv']:.2f}" if times else ""
        compilation = present(all_trials, "compile_seconds")
        wanted = record["trials_wanted"]
        short = "" if len(all_trials) == wanted else f"; {wanted} were wanted"
        cells = [
            f"`{record['experiment']}`",
            machine(name, record),
            when(record, "python", "jax"),
            f"{record['num_reached']} of {record['num_trials']}{short}",
            spread(times, 3) + cv,
            spread(present(all_trials, "total_seconds_to_accuracy"), 2),
            spread(present(all_trials, "epochs"), 1),
            spread(present(all_trials, "last"), 4),
            spread(present(all_trials, "train_seconds"), 3),
            spread(present(all_trials, "eval_seconds"), 3),
            spread(present(all_trials, "run_seconds"), 3),
            "; ".join(
                f"{statistics.median(part):.1f}"
                for part in (compilation[:1], compilation[1:])
                if part
            ),
            spread(present(all_trials, "examples_per_second"), 0),
        ]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return rows


def digits_pytorch(name: str, record: Record) -> Iterator[list[str]]:
    """Each ratio of means, or why there is none."""
    sides = ("dawnjax", "pytorch")
    reached = [f"{record[side]['num_reached']} of {record[side]['num_trials']}" for side in sides]
    where = [machine(name, record), when(record, "jax", "torch"), " and ".join(reached)]
    if not record["ratios"]:
        yield [*where, "no ratio: a trial did not reach"]
    for quantity, ratio in record["ratios"].items():
        yield [
            *where,
            quantity,
            f"{ratio['dawnjax_mean']:.3f}",
            f"{ratio['pytorch_mean']:.3f}",
            f"{ratio['ratio']:.3f}",
            interval(*ratio["interval_95"]),
        ]
        where = [""] * 3


def evaluation_negatives(name: str, record: Record) -> Iterator[list[str]]:
    """Each protocol and metric: how it spreads over draws and over seeds."""
    titles = {"hit_rate_at_10": "HR@10", "ndcg_at_10": "NDCG@10"}
    where = f"{record['num_seeds']} seeds, {record['draws']} draws; {when(record, 'jax')}"
    for row in record["protocols"]:
        yield [
            f"{titles[row['metric']]} among {row['num_negatives']}",
            f"{row['mean']:.4f}",
            f"{row['std_over_draws']:.4f}",
            f"{row['std_over_seeds']:.4f}",
            interval(*row["least_and_most_draw_mean"], digits=4),
            where,
        ]
        where = ""
    for metric, values in record["all_items"].items():
        mean, deviation = statistics.fmean(values), statistics.pstdev(values)
        yield [f"{titles[metric]} among all items", f"{mean:.4f}", "none", f"{deviation:.4f}"]
    trials = record["trials"]
    reached = [trial["epochs"] for trial in trials if trial["reached"]]
    yield [
        "epochs to the target, seed 0",
        f"{statistics.fmean(reached):.1f}",
        f"{statistics.pstdev(reached):.1f}",
        "one seed",
        interval(min(reached), max(reached), digits=0),
        f"{len(reached)} of {len(trials)} draws reach it",
    ]


def pytorch_settings(record: Record) -> str:
    """How PyTorch ran: the fastest of the ways that were tried, or the one way of older files."""
    pytorch = record.get("pytorch", {})
    fastest = record.get("pytorch_settings") or pytorch.get("fastest")
    mode = record.get("pytorch_mode") or pytorch.get("mode")
    if fastest or not mode:
        return fastest or "none"
    return f"{'compiled' if mode in ('default', 'compile') else mode}, {NOT_ITS_BEST}"


def pytorch_ways(name: str, record: Record) -> Iterator[list[str]]:
    """Each way in which PyTorch was tried, beside the fastest before it."""
    tried = record.get("tried") or record.get("pytorch", {}).get("tried", {})
    network = record.get("network") or record.get("pytorch", {}).get("model")
    title = f"`{network or record.get('experiment', 'digits')}`"
    for way, facts in tried.items():
        cells = [title, way]
        if "failed" in facts:
            cells.append("failed: " + str(facts["failed"])[:80])
        elif "seconds_an_epoch" in facts:
            cells.append(f"{facts['seconds_an_epoch']:.3f} s an epoch")
        elif "against" in facts:
            low, high = facts["ratio_interval_95"]
            ratio = f"{facts['ratio_median']:.3f} ({interval(low, high)})"
            cells.append(f"{ratio} of the time of: {facts['against']}")
        else:
            cells.append("the first")
        is_fastest = way == pytorch_settings(record)
        yield [*cells, "**compared with ours**" if is_fastest else ""]
        title = ""


STEPS_HEAD = (
    "step | PyTorch | hardware | date; versions | rounds | DawnJAX | PyTorch's | "
    "times as fast (95 %) | MFU"
)


def steps(name: str, record: Record) -> Iterator[list[str]]:
    """Each variant of a step, also one that failed or was not run."""
    where = [machine(name, record), when(record, "jax", "torch")]
    if "network" in record:
        times = record["float32"]
        low, high = record["float32"]["ratio_interval_95"]
        yield [
            f"`{record['network']}` network, {record['batch_size']:,} images, float32, "
            f"{record.get('dawnjax', {}).get('fastest', 'memory kept where large')}",
            pytorch_settings(record),
            *where,
            str(len(times["first"])),
            f"{times['first_median']:,.1f} ms",
            f"{times['second_median']:,.1f} ms",
            f"{1 / times['ratio_median']:.3f} ({interval(1 / high, 1 / low)})",
        ]
        return
    for variant, facts in record["variants"].items():
        if "units_per_second" not in facts:
            reason = facts.get("failed") or f"not run: {facts['not_run']}"
            model = record.get("pytorch", {}).get("model", name)
            yield [f"`{model}`, {variant}{earlier(name)}", "", *where, "0", reason]
            continue
        pytorch, against = record.get("pytorch", {}), facts.get("against_pytorch", {})
        label = ("" if variant == "base" else f", {variant}") + earlier(name)
        examples = "images" if record["unit"] == "images" else "rows"
        ratio = ""
        if "ratio_median" in against:
            low, high = against["ratio_interval_95"]
            ratio = f"{against['ratio_median']:.3f} ({interval(low, high)})"
        yield [
            f"`{facts['model']}`{label}, {facts['batch']} {examples}, {facts['dtype']}",
            pytorch.get("failed") or pytorch_settings(record),
            *where,
            str(len(facts["rounds"])),
            f"{facts['units_per_second']:,.0f} {record['unit']}/s "
            f"({interval(min(facts['rounds']), max(facts['rounds']), 0)})",
            f"{against['second_median']:,.0f} {record['unit']}/s" if ratio else "",
            ratio or against.get("not_the_same", ""),
            "" if facts["mfu"] is None else f"{facts['mfu']:.3f}",
        ]


def record_mode(name: str, record: Record) -> Iterator[list[str]]:
    """Our seeds, then each peer of the same job."""
    parts = record.get("dawnjax", [record])
    seeds = [seed for part in parts for seed in part.get("seeds", [])]
    failed = "".join(f"; {part['failed']}" for part in parts if "failed" in part)
    experiment = next((part["experiment"]["name"] for part in parts if "experiment" in part), name)
    where = [machine(name, record), when(record, "jax", "torch")]
    compilation = "; ".join(
        f"{part['compile_seconds']:.1f} ({part['compile_cache']})"
        for part in parts
        if "compile_seconds" in part
    )
    accuracies = [seed["metrics"]["top_1_accuracy"] for seed in seeds]
    times = [seed["time_seconds"] for seed in seeds]
    program = f"`{experiment}`{earlier(name)}{failed}"
    figures = [spread(times, 4), spread(accuracies, 4), compilation]
    yield [program, *where, str(len(seeds)), *figures]
    for peer in record.get("peers", {}).values():
        compared = record.get("comparisons", {}).get(peer["script"].removesuffix(".py"), {})
        ratio, difference = "", ""
        if compared:
            ratio = f"{compared['ratio_of_means']:.3f} ({interval(*compared['ratio_interval_95'])})"
            error = compared["accuracy_difference_standard_error"]
            difference = f"{compared['accuracy_difference']:+.4f} ({error:.4f})"
        failed = f": {peer['failed']}" if "failed" in peer else ""
        yield [
            f"`{peer['script']}`{failed}",
            "the same job",
            "",
            str(len(peer["runs"])),
            spread(present(peer["runs"], "time_seconds"), 4),
            spread(present(peer["runs"], "top_1_accuracy"), 4),
            "",
            ratio,
            difference,
        ]


def compared_row(name: str, record: Record, what: str, facts: Record, digits: int) -> list[str]:
    """The row of a comparison: both medians and their ratio."""
    places = 0 if facts["ratio_median"] >= 100 else 3
    medians = [f"{facts[field]:,.{digits}f}" for field in ("first_median", "second_median")]
    ends = interval(*facts["ratio_interval_95"], digits=places)
    ratio = f"{facts['ratio_median']:.{places}f} ({ends})"
    where = [machine(name, record), when(record, "jax")]
    return [what, *where, str(len(facts["first"])), *medians, ratio]


def loop_overhead(name: str, record: Record) -> Iterator[list[str]]:
    """Both settings of `benchmarks/loop_overhead.py`."""
    for setting, facts in record.items():
        if isinstance(facts, dict) and "ratio_median" in facts:
            yield compared_row(name, record, setting, facts, 0)


def image_input(name: str, record: Record) -> Iterator[list[str]]:
    """What a core decodes and feeds in a second."""
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
    """Whole processes, and a second run against a first."""
    for command, facts in record["commands"].items():
        yield compared_row(name, record, f"`{command}` against {facts['against']}", facts, 3)
    again = record["second_runs"]
    for field, what in (("compile_seconds", "compilation"), ("process_seconds", "whole process")):
        title = f"{what} of a second run of `{again['experiment']}` against the first"
        yield compared_row(name, record, title, again[field], 1)


def import_logs(name: str, record: Record) -> Iterator[list[str]]:
    """All official logs, against a scan of their text."""
    what = f"{record['logs']} logs, {record['bytes'] / 1e6:.1f} MB, {record['records']:,} records"
    yield compared_row(name, record, f"{what}, CPU s", record, 3)


def profile_cost(name: str, record: Record) -> Iterator[list[str]]:
    """What the spans, a sample and a traced step cost."""
    loop, window = record["loop"], record["window"]
    middle, *ends = record["spans_microseconds_a_call"]
    sample, trace = record["sample_cpu_microseconds"], record["trace_bytes_a_step"]
    added = f"{record['added_microseconds_a_call']:.0f}"
    yield ["hardware; date", f"{machine(name, record)}; {when(record, 'jax')}"]
    yield ["spans of a call, CPU us", f"{middle:.2f}", interval(*ends, digits=2)]
    yield ["a sample of the host, one a second, CPU us", f"{sample:.0f}"]
    ends = interval(*record["added_interval_95"], digits=0)
    what = "a call of the loop with both, less one without, CPU us"
    yield [what, added, ends, str(len(loop["first"]))]
    ends = interval(*window["ratio_interval_95"], digits=2)
    what = "time of a traced step / of one that is not"
    yield [what, f"{window['ratio_median']:.2f}", ends, str(len(window["first"]))]
    yield ["trace of a step, kB", f"{trace / 1e3:.0f}"]


def compilation(_: str, record: Record) -> Iterator[list[str]]:
    """Each compiled step, or why there is none."""
    for row in record["rows"]:
        first = [f"`{row['experiment']}`", row["target"]]
        if "reason" in row:
            yield [*first, "", "", "", row["reason"], "", "", when(record, "jax")]
            continue
        is_text = "transformer" in row["experiment"]
        yield [
            *first,
            str(row["devices"]),
            f"{row['batch_per_device']}{' rows' if is_text else ''}",
            "" if is_text else str(row["crop_pixels"] or 32),  # CIFAR-10's images are not cropped
            f"{row['compile_seconds']:.1f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
            str(sum(row["collectives"].values())),
            when(record, "jax"),
        ]


def moved_bytes(_: str, record: Record) -> Iterator[list[str]]:
    """What a compiled step reads and writes."""
    for row in record["rows"]:
        moved, batch = row["moved_bytes"], row["batch_per_device"]
        is_h100 = row["target"] == "h100"
        seconds = moved / H100_BYTES_PER_SECOND
        yield [
            f"`{row['experiment']}`, {row['variant']}",
            f"{row['devices']} x {row['target']}",
            str(batch),
            f"{moved / 1e9:.1f}",
            f"{seconds * 1e3:.1f}" if is_h100 else "",
            f"{batch / seconds:,.0f}" if is_h100 else "",
            f"{row['peak_bytes'] / 1e9:.2f}",
            when(record, "jax"),
        ]


def faults(name: str, record: Record) -> Iterator[list[str]]:
    """A campaign of tests/campaign.py: what was tried, and how often its promise held."""
    tried, held = record["tried"], record["held"]
    count = f"{held:,} of {tried:,}" if held == tried else f"**{held:,}** of {tried:,}"
    largest = ", ".join(f"{value:,.3g} {unit}" for unit, value in record["largest"].items())
    where = [machine(name, record), when(record, "jax")]
    yield [record["what"], record["promise"], count, largest, *where]


def study_stopping(_: str, record: Record) -> Iterator[list[str]]:
    """Each case and way of looking: what was told apart, and after how many trials."""
    for row in record["rows"]:
        share = f"{100 * row['told_apart']:.1f} % (± {100 * row['half_interval_95']:.1f})"
        truth = "equal" if row["ratio"] == 1 else f"B takes {row['ratio']:g} of A's time"
        cells = [f"{row['cv']:g}", f"{row['reach']:g}", truth, row["way"], share]
        yield [*cells, f"{row['trials_mean']:g} of {record['seeds']}"]


def study_trials(name: str, record: Record) -> Iterator[list[str]]:
    """A step in a study and alone, and how long all trials took."""
    where = [machine(name, record), when(record, "jax"), str(record["trials"])]
    steps = record["step_milliseconds"]
    low, high = steps["ratio_interval_95"]
    ratio = f"{steps['ratio_median']:.3f} ({interval(low, high)})"
    sides = [f"{steps[side]:.2f} ms" for side in ("first_median", "second_median")]
    yield [*where, "a step", *sides, ratio]
    study, loop = record["study_seconds"], record["loop_seconds"]
    yield ["", "", "", "all trials", f"{study:.1f} s", f"{loop:.1f} s", f"{study / loop:.3f}"]


def fine_tuning(name: str, record: Record) -> Iterator[list[str]]:
    """Accuracy on classes that the source has not seen: from anew, fine-tuned, the difference."""
    rows = record["rows"]
    sides = [[row[f"{side}_accuracy"] for row in rows] for side in ("source", "anew", "tuned")]
    gains = [tuned - anew for tuned, anew in zip(sides[2], sides[1], strict=True)]
    yield [
        record["experiment"],
        machine(name, record),
        when(record, "jax"),
        f"{len(rows)} seeds, epochs: {record['epochs']:g}",
        *(_changed(flags) for flags in (record["flags"], record["tuned_flags"].split())),
        *(mean_with_interval(side) for side in [*sides, gains]),
    ]


def _changed(flags: list[str]) -> str:
    return ", ".join(f"`{flag.removeprefix('--')}`" for flag in flags) or "-"


def mean_with_interval(values: list[float]) -> str:
    """A mean with the 95 % t interval of it, in percent."""
    if len(values) < 3:
        return f"{100 * statistics.fmean(values):.1f} %"
    from scipy.stats import t

    error = statistics.stdev(values) / math.sqrt(len(values))
    half = float(t.ppf(0.975, len(values) - 1)) * error
    return f"{100 * statistics.fmean(values):.1f} % (± {100 * half:.1f})"


def notes(kind: str) -> Callable[[str, Record], Iterator[list[str]]]:
    """Rows of one kind of `notes.json`, which is written by hand."""

    def rows(_: str, record: Record) -> Iterator[list[str]]:
        for note in record[kind]:
            yield [note["what"], note["figure"], note["hardware"], note["date"]]

    return rows


@dataclasses.dataclass(frozen=True)
class Figure:
    """A measured value that a goal is about.

    Attributes:
      value: The value.
      runs: How many rounds or trials it is from.
      interval: Its 95 % interval, or None where it has none.
      against: What it is compared with.
    """

    value: float
    runs: str
    interval: tuple[float, float] | None = None
    against: str = ""

    def __str__(self) -> str:
        """The value and its interval, with the digits that the value needs."""
        digits = 0 if self.value >= 1000 else 3 if self.value >= 0.01 else 4
        ends = f" ({interval(*self.interval, digits)})" if self.interval else ""
        return f"{self.value:,.{digits}f}{ends}"


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal, and the figures that meet or miss it.

    Attributes:
      title: In words.
      pattern: Glob of the result files; each is a row.
      figure: Reads the figure from a result.
      least: The figure is to be this or more; None where `most` is the goal.
      most: The figure is to be this or less.
    """

    title: str
    pattern: str
    figure: Callable[[Record], Figure]
    least: float | None = None
    most: float | None = None

    def state(self, figure: Figure) -> str:
        """`met` or `missed`, and whether the interval holds the limit."""
        limit = self.most if self.least is None else self.least
        assert limit is not None
        is_met = figure.value <= limit if self.least is None else figure.value >= limit
        is_open = figure.interval and figure.interval[0] <= limit <= figure.interval[1]
        return ("met" if is_met else MISSED) + (", limit in the interval" if is_open else "")

    def needed(self) -> str:
        """The limit, with the side on which the figure must lie."""
        side, limit = ("at most", self.most) if self.least is None else ("at least", self.least)
        return f"{side} {limit:,g}"


def _comparison(record: Record, *path: str) -> tuple[Record, str]:
    """A comparison that lies at `path`, and how many rounds it has."""
    for key in path:
        record = record[key]
    return record, f"{len(record['first'])} rounds"


def _ratio(field: str, against: str) -> Callable[[Record], Figure]:
    """Our figure over that of another library."""

    def figure(record: Record) -> Figure:
        facts, rounds = _comparison(record, field)
        return Figure(facts["ratio_median"], rounds, facts["ratio_interval_95"], against)

    return figure


def _median(*path: str) -> Callable[[Record], Figure]:
    """Our median of a comparison."""

    def figure(record: Record) -> Figure:
        facts, rounds = _comparison(record, *path)
        return Figure(facts["first_median"], rounds)

    return figure


def _convolution_speed(record: Record) -> Figure:
    """PyTorch's time over ours."""
    facts, rounds = _comparison(record, "float32")
    low, high = facts["ratio_interval_95"]
    against = f"PyTorch, {pytorch_settings(record)}"
    return Figure(1 / facts["ratio_median"], rounds, (1 / high, 1 / low), against)


def _step_speed(record: Record) -> Figure:
    """Our throughput over PyTorch's; on a CPU of the faster of our two ways to hold memory."""
    ours = max(
        (record["variants"].get(way, {}) for way in ("base", "memory_kept")),
        key=lambda way: way.get("units_per_second", 0.0),
    )
    facts, rounds = _comparison(ours, "against_pytorch")
    against = f"PyTorch, {pytorch_settings(record)}"
    return Figure(facts["ratio_median"], rounds, facts["ratio_interval_95"], against)


def _step(field: str) -> Callable[[Record], Figure]:
    """A figure of our step alone."""

    def figure(record: Record) -> Figure:
        facts = record["variants"]["base"]
        return Figure(facts[field], f"{len(facts['rounds'])} rounds")

    return figure


def _peer(record: Record) -> tuple[Record, str, str]:
    """The comparison of record mode with the peer of its job, how many runs, and the peer."""
    ((peer, facts),) = record["comparisons"].items()
    return facts, f"{facts['first_rounds']} and {facts['second_rounds']} runs", f"`{peer}.py`"


def _record_time(record: Record) -> Figure:
    """Our mean time over the peer's."""
    facts, runs, peer = _peer(record)
    return Figure(facts["ratio_of_means"], runs, facts["ratio_interval_95"], peer)


def _record_accuracy(record: Record) -> Figure:
    """Our mean accuracy less the peer's, and 1.96 standard errors to either side."""
    facts, runs, peer = _peer(record)
    mean, error = facts["accuracy_difference"], 1.96 * facts["accuracy_difference_standard_error"]
    return Figure(mean, runs, (mean - error, mean + error), peer)


def _digits_time(record: Record) -> Figure:
    """Our mean time to accuracy over PyTorch's."""
    ratio = record["ratios"]["time to accuracy, s"]
    runs = f"{record['dawnjax']['num_trials']} and {record['pytorch']['num_trials']} trials"
    return Figure(
        ratio["ratio"], runs, ratio["interval_95"], f"PyTorch, {pytorch_settings(record)}"
    )


def _input_wait(record: Record) -> Figure:
    """The mean share of time that a paced consumer waited."""
    fractions = record["paced"]["input_wait_fractions"]
    return Figure(statistics.fmean(fractions), f"{len(fractions)} rounds")


_SPEEDRUN = "record_cifar10_nvidia_h200_beside_speedrun.json"
_AIRBENCH = "record_cifar10_nvidia_h200.json"
_RESNET50 = "steps_resnet50_nvidia_h200.json"
_AMOEBANET = "steps_amoebanet_d_nvidia_h200.json"
_TRANSFORMER = "steps_transformer_big_nvidia_h200.json"
_TEXT = "steps_multi30k_transformer"
_STEP = "convolution_steps"
_RESIZED = _ratio("decode_for_training", "Pillow's RandomResizedCrop")
_HELP = _median("commands", "dawnjax --help")
_ANALYSIS = _median("commands", "import dawnjax.analysis")

GOALS = (
    Goal("CIFAR-10 in record mode: our time / the best peer's", _SPEEDRUN, _record_time, most=0.5),
    Goal("the same / that of the recipe's own program", _AIRBENCH, _record_time, most=0.5),
    Goal("our mean accuracy less the best peer's", _SPEEDRUN, _record_accuracy, least=0.0),
    Goal("the same less that of the recipe's own program", _AIRBENCH, _record_accuracy, least=0.0),
    Goal("ResNet-50 step, images/s", _RESNET50, _step("units_per_second"), least=12000),
    Goal("the same, times as fast as `torch.compile`", _RESNET50, _step_speed, least=2.0),
    Goal("AmoebaNet-D N6 F256 step / 7,800 images/s", _AMOEBANET, _step("share_of_limit"), 0.9),
    Goal("Transformer big step, MFU", _TRANSFORMER, _step("mfu"), least=0.55),
    Goal("the same, times as fast as compiled PyTorch with SDPA", _TRANSFORMER, _step_speed, 1.3),
    Goal("`digits`: our time to accuracy / PyTorch's", "digits_*.json", _digits_time, most=0.67),
    Goal(
        "`movielens_ml100k_neumf`: our time to accuracy / PyTorch's",
        "recommendation_pytorch*.json",
        _digits_time,
        most=1.0,
    ),
    Goal(
        "`digits` step, times PyTorch's speed",
        f"{_STEP}_digits*.json",
        _convolution_speed,
        least=1.5,
    ),
    Goal(
        "CIFAR-10 record net, float32 step, times PyTorch's speed",
        f"{_STEP}_record*.json",
        _convolution_speed,
        least=0.9,
    ),
    Goal(
        "ResNet-18, float32 step, times PyTorch's speed",
        f"{_STEP}_resnet18*.json",
        _convolution_speed,
        least=0.9,
    ),
    Goal(
        "Multi30K Transformer, float32 step, times PyTorch's speed",
        f"{_TEXT}_cpu*.json",
        _step_speed,
        least=1.4,
    ),
    Goal(
        "the same in bfloat16, PyTorch under autocast (a yardstick of our own)",
        f"{_TEXT}_bfloat16_cpu*.json",
        _step_speed,
        least=1.0,
    ),
    Goal(
        "photograph to a square of 256, times Pillow's speed",
        "image_input.json",
        _ratio("decode", "Pillow"),
        least=1.6,
    ),
    Goal("the same to what a training step needs", "image_input.json", _RESIZED, least=1.6),
    Goal("prepared squares a second and core", "image_input.json", _median("feed"), least=14000),
    Goal("input wait of a consumer of 12,000 images/s", "image_input.json", _input_wait, most=0.01),
    Goal("`dawnjax --help`, s", "start_up.json", _HELP, most=0.3),
    Goal("`import dawnjax.analysis`, s", "start_up.json", _ANALYSIS, most=0.5),
)


def goals(_: list[tuple[str, Record]]) -> Rows:
    """Each goal with each figure that there is, met or missed."""
    head = "goal | needed | measured (95 %) | state | against | runs | hardware | date; versions"
    rows: Rows = [list(head.split(" | "))]
    for goal in GOALS:
        title, needed = goal.title, goal.needed()
        for file in sorted(RESULTS.glob(goal.pattern)):
            record = json.loads(file.read_text())
            where = [machine(file.stem, record), when(record, "jax")]
            try:
                figure = goal.figure(record)
                state = goal.state(figure)
                cells = [str(figure), state, figure.against, figure.runs]
            except (KeyError, ValueError):  # a side failed, so that the file has no such figure
                cells = ["none: a side failed", MISSED, "", ""]
            rows.append([title, needed, *cells, *where])
            title = needed = ""
    return rows


_COMPARED = "hardware | date; versions | rounds | ours | theirs | ratio (95 %)"
_WHERE = "hardware | date; versions"
_NOTES = ("notes.json",)
_COMPILED = "flagship_compile_"


def plan_validation(_: list[tuple[str, Record]]) -> Rows:
    """Each official result beside its prediction, computed anew from what plans learn from."""
    from dawnjax.plan import validation

    checks = validation.checks()
    rows = [["result", "quantity", "predicted, s", "published, s", "error"]]
    for check in checks:
        figures = (f"{check.predicted:.4g}", f"{check.published:.4g}")
        rows.append([check.name, check.quantity, *figures, f"{100 * check.error:+.0f} %"])
    for bound in (0.15, 0.30):
        near = sum(check.is_within(bound) for check in checks)
        rows.append([f"within {100 * bound:.0f} %", f"{near} of {len(checks)}"])
    return rows


TABLES = {
    "goals": Table((), goals),
    "trials": Table(("seeds_*.json",), trials),
    "digits_pytorch": Table(
        ("digits_pytorch*.json",),
        each(
            f"{_WHERE} | reached, of both sides | mean of the trials | DawnJAX | PyTorch | ratio | "
            "95 %",
            digits_pytorch,
        ),
    ),
    "recommendation_pytorch": Table(
        ("recommendation_pytorch*.json",),
        each(
            f"{_WHERE} | reached, of both sides | mean of the trials | DawnJAX | PyTorch | ratio | "
            "95 %",
            digits_pytorch,
        ),
    ),
    "evaluation_negatives": Table(
        ("evaluation_negatives*.json",),
        each(
            "metric | mean | deviation over draws | over seeds | least and most mean of a draw | "
            "from",
            evaluation_negatives,
        ),
    ),
    "pytorch_ways": Table(
        (
            *("convolution_steps_*.json", "steps_*_cpu*.json"),
            *("digits_pytorch*.json", "recommendation_pytorch*.json"),
        ),
        each("benchmark | PyTorch | measured | ", pytorch_ways),
    ),
    "cpu_steps": Table(("convolution_steps_*.json", "steps_*_cpu*.json"), each(STEPS_HEAD, steps)),
    "gpu_steps": Table(("steps_*_nvidia_*.json",), each(STEPS_HEAD, steps)),
    "record_mode": Table(
        ("record_*.json",),
        each(
            f"program | {_WHERE} | runs | seconds | top-1 accuracy | compilation, s | "
            "ours / its time (95 %) | our accuracy less its (error)",
            record_mode,
        ),
    ),
    "faults": Table(
        ("faults_*.json",),
        each(f"what was tried | what must hold | held | at most | {_WHERE}", faults),
    ),
    "plan_validation": Table((), plan_validation),
    "fine_tuning": Table(
        ("fine_tuning_*.json",),
        each(
            f"experiment | {_WHERE} | trials | changed in all | in the fine-tuned alone | "
            "source, its classes | other classes from anew | fine-tuned | gain",
            fine_tuning,
        ),
    ),
    "study_trials": Table(
        ("study_trials*.json",),
        each(f"{_WHERE} | trials | what | in a study | single runs | ratio (95 %)", study_trials),
    ),
    "study_stopping": Table(
        ("study_stopping.json",),
        each("CV | chance to reach | arms | way | told apart | trials of each arm", study_stopping),
    ),
    "loop_overhead": Table(
        ("loop_overhead*.json",), each(f"a call of | {_COMPARED}", loop_overhead)
    ),
    "profile_cost": Table(
        ("profile_cost.json",), each("quantity | value | 95 % | rounds", profile_cost)
    ),
    "image_input": Table(("image_input.json",), each(f"work | {_COMPARED}", image_input)),
    "import_logs": Table(("import_logs.json",), each(f"work | {_COMPARED}", import_logs)),
    "start_up": Table(("start_up.json",), each(f"process | {_COMPARED}", start_up)),
    "compilation": Table(
        tuple(f"{_COMPILED}{target}.json" for target in ("tpu_v5e", "tpu_v4", "h100")),
        each(
            "experiment | target | devices | a device | pixels | compile s | GB a device | "
            "collectives | date; versions",
            compilation,
        ),
    ),
    "moved_bytes": Table(
        (f"{_COMPILED}*_on_1*.json", f"{_COMPILED}tpu_v5e_variants.json"),
        each(
            "step, variant | target | examples a device | GB moved | ms at 3.35 TB/s | "
            "examples a second at that | GB a device | date; versions",
            moved_bytes,
        ),
    ),
    "single_runs": Table(_NOTES, each("what | seen | hardware | date", notes("single_runs"))),
    "repeats": Table(_NOTES, each("benchmark | seen | hardware | date", notes("repeats"))),
    "kept": Table(_NOTES, each("change | effect | hardware | date", notes("kept"))),
}


if __name__ == "__main__":
    sys.exit(main())
