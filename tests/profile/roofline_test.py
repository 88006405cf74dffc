"""Roofline and losses, with answers by hand."""

import pytest
from traces import tpu_trace

from dawnjax.profile.hlo import analyze
from dawnjax.profile.roofline import (
    OpTime,
    largest_losses,
    op_times,
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
    assert largest_losses(all_ops) == []


def test_a_result_keeps_the_longest_ops():
    def op(number, kind=""):
        seconds = 1e-3 / (1 + number)
        return OpTime(f"op.{number}", seconds, 0.0, 1e6, 1e5, None, None, "", "", kind)

    kept = to_json([op(number) for number in range(300)], 1e12, None, "")
    assert [row["op"] for row in kept["ops"][:2]] == ["op.0", "op.1"] and len(kept["ops"]) == 20
    assert kept["ops"][0]["flops_per_byte"] == 10 and kept["ops"][0]["flops_per_second"] == 1e9
    assert kept["peak_source"] is None
    assert to_json([op(0, "all-reduce")], 1e12, 1e11, "x")["ops"] == []
