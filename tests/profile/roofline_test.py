"""Roofline, losses and distributions over time, with answers by hand."""

import pytest
from traces import tpu_trace

from dawnjax.profile.hlo import analyze
from dawnjax.profile.roofline import (
    OpTime,
    largest_losses,
    op_times,
    peak_use_cdf,
    throughput_cdf,
    to_json,
)
from dawnjax.profile.trace import read_trace

PROGRAM_TEXT = """HloModule jit_train

ENTRY %m (x: bf16[100,100]) -> f32[1000] {
  %x = bf16[100,100]{1,0} parameter(0)
  %y = f32[1000]{0} parameter(1)
  %fusion.1 = bf16[100,100]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(train)/layer/dot_general" source_file="/a/b/c.py" source_line=7}
  ROOT %fusion.2 = f32[1000]{0} exponential(%y)
}
"""


def ops(tmp_path, peak=None, bandwidth=None):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    return {op.name: op for op in op_times(read, 1, analyze(PROGRAM_TEXT), peak, bandwidth)}


def test_each_op_against_its_own_roofline(tmp_path):
    by_name = ops(tmp_path, peak=1e11, bandwidth=1e9)
    product = by_name["fusion.1"]
    assert product.seconds == pytest.approx(40e-6)
    assert product.product_flops == 2_000_000 and product.num_bytes == 60_000
    # 20 us of products, but 60 us of bytes: faster than this memory, so nothing was lost.
    assert product.roofline_seconds == pytest.approx(60e-6) and product.lost_seconds == 0
    assert product.peak_fraction == pytest.approx(2e6 / 40e-6 / 1e11)
    assert product.source_line == "/a/b/c.py:7" and product.scope == "layer"
    plain = by_name["fusion.2"]
    assert plain.lost_seconds == pytest.approx(19e-6 - 8e-6)
    assert [op.name for op in largest_losses(list(by_name.values()))] == ["fusion.2", "fusion.1"]
    assert by_name["all-reduce-start.2"].lost_seconds is None  # no roofline for a collective


def test_without_peaks_there_is_no_roofline(tmp_path):
    all_ops = list(ops(tmp_path).values())
    assert largest_losses(all_ops) == [] and peak_use_cdf(all_ops) == []
    assert throughput_cdf(all_ops)


def test_collectives_are_in_no_distribution_of_computing(tmp_path):
    points = throughput_cdf(list(ops(tmp_path).values()))
    # 40 us at 2,000,000 FLOPs and 19 us at 1000: the slower first.
    assert [value for value, _ in points] == pytest.approx([1000 / 19e-6, 2e6 / 40e-6])
    assert points[0][1] == pytest.approx(19 / 59) and points[-1][1] == pytest.approx(1.0)


def test_a_result_keeps_the_longest_ops_and_thin_distributions():
    def op(number, kind=""):
        seconds = 1e-3 / (1 + number)
        return OpTime(f"op.{number}", seconds, 0.0, 1e6, 1e5, None, None, "", "", kind)

    kept = to_json([op(number) for number in range(300)], 1e12, None, "")
    assert [row["op"] for row in kept["ops"][:2]] == ["op.0", "op.1"] and len(kept["ops"]) == 20
    assert kept["ops"][0]["flops_per_byte"] == 10 and kept["ops"][0]["flops_per_second"] == 1e9
    assert kept["peak_source"] is None and kept["peak_use_cdf"] == []
    points = kept["throughput_cdf"]
    assert len(points) <= 40 and points[-1][1] == 1.0 and points == sorted(points)
    whole = throughput_cdf([op(number) for number in range(300)])
    for value, share in whole:  # as a step function, it is nowhere wrong by more than a part
        below = max((s for v, s in points if v <= value * (1 + 1e-5)), default=0.0)
        assert share - 1 / 40 - 1e-6 <= below <= share + 1e-6
    assert to_json([op(0, "all-reduce")], 1e12, 1e11, "x")["ops"] == []
