"""Counting compiled programs: by hand, and against the compiler."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

from dawnjax.profile.device_groups import first_group, group_stride
from dawnjax.profile.hlo import analyze
from dawnjax.profile.hlo_text import ProgramTextError, parse_module, scope_of
from dawnjax.profile.model_flops import product_flops

ADD = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
"""


def program(body: str, computations: str = "", header: str = ""):
    return analyze(
        f"HloModule jit_test{header}\n{ADD}{computations}\nENTRY %main () -> f32[] {{\n{body}\n}}\n"
    )


def test_a_matrix_product_and_its_bytes():
    counted = program("""
  %x = f32[8,32]{1,0} parameter(0)
  %y = bf16[4,32,16]{2,1,0:T(8,128)(2,1)} parameter(1)
  %z = bf16[4,8,32]{2,1,0} parameter(2)
  ROOT %dot.1 = bf16[4,8,16]{2,1,0} dot(%z, %y), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={1}, metadata={op_name="jit(f)/layer/dot_general"}""")
    op = counted.ops["dot.1"]
    assert op.product_flops == 2 * 4 * 8 * 16 * 32
    assert op.num_bytes == 2 * (4 * 8 * 32 + 4 * 32 * 16 + 4 * 8 * 16)
    assert op.product_dtype == "bf16" and op.scope == "layer"
    assert set(counted.ops) == {"dot.1"}


def test_float32_products_on_a_tpu_are_made_in_passes():
    counted = program("""
  %x = f32[8,8]{1,0} parameter(0)
  %a = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %b = f32[8,8]{1,0} dot(%a, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
operand_precision={high,high}
  ROOT %c = f32[8,8]{1,0} dot(%b, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
operand_precision={highest,highest}""")
    assert [counted.ops[name].passes for name in "abc"] == [1, 3, 6]


SCATTER = """
%all-reduce-scatter.1 (p: f32[8,64]) -> f32[8,16] {
  %p = f32[8,64]{1,0} parameter(0)
  %all-reduce.1 = f32[8,64]{1,0} all-reduce(%p), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %zero = s32[] constant(0)
  ROOT %part = f32[8,16]{1,0} dynamic-slice(%all-reduce.1, %zero, %zero), dynamic_slice_sizes={8,16}
}
"""


@pytest.mark.parametrize("is_sliced", [True, False])
def test_a_tpu_s_fusion_of_a_sum_and_a_slice_is_a_reduce_scatter(is_sliced):
    computation, shape = SCATTER, "f32[8,16]"
    if not is_sliced:
        last = "  ROOT %twice = f32[8,64]{1,0} add(%all-reduce.1, %all-reduce.1)"
        computation = re.sub("  ROOT .*dynamic-slice.*", last, SCATTER).replace(shape, "f32[8,64]")
        shape = "f32[8,64]"
    counted = program(
        f"""
  %x = f32[8,64]{{1,0}} parameter(0)
  ROOT %fusion.1 = {shape}{{1,0}} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1""",
        computation,
    )
    [collective] = counted.collectives.values()
    assert collective.kind == ("reduce-scatter" if is_sliced else "all-reduce")
    assert (collective.name, collective.num_bytes, collective.group_size) == (
        *("fusion.1", 8 * 64 * 4),
        4,
    )


CONVOLUTION = """
  %x = f32[2,8,8,3]{3,2,1,0} parameter(0)
  %k = f32[3,3,3,16]{3,2,1,0} parameter(1)
  ROOT %c = f32[2,4,4,16]{3,2,1,0} convolution(%x, %k), window={size=3x3 stride=2x2 pad=0_1x0_1}, \
dim_labels=b01f_01io->b01f"""


def test_a_convolution_and_the_gradient_of_its_input_have_the_same_products():
    forward = 2 * (2 * 4 * 4 * 16) * (3 * 3 * 3)
    assert program(CONVOLUTION).product_flops == forward
    # The gradient dilates the cotangent by the stride; three of four taps meet a hole.
    gradient = """
  %g = f32[2,4,4,16]{3,2,1,0} parameter(0)
  %k = f32[3,3,3,16]{3,2,1,0} parameter(1)
  ROOT %c = f32[2,8,8,3]{3,2,1,0} convolution(%g, %k), \
window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f"""
    assert program(gradient).product_flops == forward


def test_a_depthwise_convolution_sums_over_its_own_channel_alone():
    body = """
  %x = f32[1,8,8,32]{3,2,1,0} parameter(0)
  %k = f32[3,3,1,32]{3,2,1,0} parameter(1)
  ROOT %c = f32[1,8,8,32]{3,2,1,0} convolution(%x, %k), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_01io->b01f, feature_group_count=32"""
    assert program(body).product_flops == 2 * 8 * 8 * 32 * 9


@pytest.mark.parametrize(
    ("target", "operands", "result"),
    [
        ("convForward", ["f32[2,8,8,3]", "f32[16,3,3,3]"], "f32[2,4,4,16]"),
        ("convBiasActivationForward", ["f32[2,8,8,3]", "f32[16,3,3,3]"], "f32[2,4,4,16]"),
        ("convBackwardInput", ["f32[2,4,4,16]", "f32[16,3,3,3]"], "f32[2,8,8,3]"),
        ("convBackwardFilter", ["f32[2,8,8,3]", "f32[2,4,4,16]"], "f32[16,3,3,3]"),
    ],
)
def test_a_cudnn_call_is_counted_by_its_window(target, operands, result):
    counted = program(f"""
  %p = {operands[0]}{{3,2,1,0}} parameter(0)
  %q = {operands[1]}{{3,2,1,0}} parameter(1)
  ROOT %cudnn-conv.1 = ({result}{{3,2,1,0}}, u8[99]{{0}}) custom-call(%p, %q), \
window={{size=3x3 stride=2x2 pad=0_1x0_1}}, dim_labels=b01f_o01i->b01f, \
custom_call_target="__cudnn${target}", backend_config={{"a":"b"}}""")
    assert counted.product_flops == 2 * (2 * 4 * 4 * 16) * (3 * 3 * 3)


def test_an_element_of_a_tuple_is_an_operand_in_both_of_xla_s_forms():
    product = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    counted = program(f"""
  %x = f32[8,32]{{1,0}} parameter(0)
  %y = ((s32[], bf16[32,16]{{1,0}}), bf16[32,16]{{1,0:T(8,128)(2,1)}}) custom-call(%x)
  %z = bf16[32,16]{{1,0}} get-tuple-element(%y), index=1
  %long = f32[8,16]{{1,0}} dot(%x, %z), {product}
  %short = f32[8,16]{{1,0}} dot(%x, %y#1), {product}
  %nested = f32[8,16]{{1,0}} dot(%x, %y#0#1), {product}
  ROOT %copy = ((s32[], bf16[32,16]{{1,0}})) tuple(%y#0)""")
    kinds = [counted.ops[name] for name in ("long", "short", "nested")]
    assert {op.product_flops for op in kinds} == {2 * 8 * 16 * 32}
    assert {op.num_bytes for op in kinds} == {4 * 8 * 32 + 2 * 32 * 16 + 4 * 8 * 16}
    assert set(counted.ops) == {"y", "long", "short", "nested"}


def test_a_cublas_call_is_counted_by_its_dimensions():
    counted = program("""
  %p = bf16[8,32]{1,0} parameter(0)
  %q = bf16[32,16]{1,0} parameter(1)
  ROOT %g = (bf16[8,16]{1,0}, s8[4096]{0}) custom-call(%p, %q), \
custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":1,\
"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}""")
    assert counted.product_flops == 2 * 8 * 16 * 32


@pytest.mark.parametrize(
    ("operand", "is_even"),
    [
        ("bf16[8,64]{1,0}", True),
        ("bf16[8,60]{1,0:T(8,128)(2,1)}", False),  # 120 bytes
        ("f32[8,60]{1,0}", True),
        ("bf16[8,60]{0,1}", True),  # columns of 8 lie together
        ("bf16[8,64,1]{2,1,0}", True),
    ],
)
def test_rows_of_products_are_multiples_of_16_bytes_or_are_told(operand, is_even):
    depth = 60 if "60" in operand else 64
    counted = program(f"""
  %p = {operand} parameter(0)
  %q = {operand[:4].rstrip("[")}[{depth},8]{{1,0}} parameter(1)
  ROOT %d = f32[8,8]{{1,0}} dot(%p, %q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""")
    assert counted.ops["d"].has_even_rows == is_even


@pytest.mark.parametrize(
    ("kind", "mask", "window", "products", "seen"),
    [
        ("ScaleBiasSoftmax", "NO_MASK", 0, 2, 4 * 6),
        ("Softmax", "CAUSAL", 0, 2, 1 + 2 + 3 + 4),
        ("SoftmaxBackward", "CAUSAL", 2, 5, 1 + 2 + 2 + 2),
    ],
)
def test_an_attention_call_counts_the_pairs_that_are_seen(kind, mask, window, products, seen):
    counted = program(f"""
  %q = bf16[2,4,3,8]{{3,2,1,0}} parameter(0)
  %k = bf16[2,6,3,8]{{3,2,1,0}} parameter(1)
  ROOT %fmha = (bf16[2,3,4,8]{{3,1,2,0}}, u8[0]{{0}}) custom-call(%q, %k, %k), \
custom_call_target="__cudnn$fmha{kind}", backend_config={{"cudnn_fmha_backend_config": {{\
"intermediate_tensor_shape": {{"dimensions": ["2", "3", "4", "6"]}}, "mask_type": "{mask}", \
"bmm1_dot_dimension_numbers": {{"lhs_contracting_dimensions": ["3"]}}, \
"sliding_window_length": {window}}}}}""")
    assert counted.product_flops == products * 2 * (2 * 3) * seen * 8


LOOP = """
%body (p: (s32[], f32[4,4])) -> (s32[], f32[4,4]) {
  %p = (s32[], f32[4,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %m = f32[4,4]{1,0} get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %d = f32[4,4]{1,0} dot(%m, %m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[4,4]{1,0}) tuple(%next, %d)
}

%condition (p: (s32[], f32[4,4])) -> pred[] {
  %p.1 = (s32[], f32[4,4]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] BOUND
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}
"""


def loop(bound: str, config: str = "", start: str = "constant(0)", **options: int):
    body = f"""
  %constant = s32[] constant(0)
  %zero = s32[] {start}
  %x = f32[4,4]{{1,0}} parameter(0)
  %t0 = (s32[], f32[4,4]{{1,0}}) tuple(%zero, %x)
  ROOT %while.1 = (s32[], f32[4,4]{{1,0}}) while(%t0), condition=%condition, body=%body{config}"""
    entry = f"ENTRY %main () -> f32[] {{\n{body}\n}}\n"
    loops = LOOP.replace("BOUND", bound)
    return analyze(f"HloModule jit_test\n{loops}\n{entry}", **options)


def test_a_loop_s_body_counts_as_often_as_it_runs():
    iteration_flops = 2 * 4 * 4 * 4
    told = loop("parameter(1)", ', backend_config={"known_trip_count":{"n":"5"}}')
    assert told.product_flops == 5 * iteration_flops
    counted = loop("constant(3)")
    assert counted.product_flops == 3 * iteration_flops
    copied = loop("constant(3)", start="copy(%constant)")  # as compiled for TPUs
    assert copied.product_flops == 3 * iteration_flops
    unknown = loop("parameter(1)")
    assert unknown.product_flops == iteration_flops and "while.1" not in unknown.ops
    assert loop("parameter(1)", unknown_rounds=30).product_flops == 30 * iteration_flops


@pytest.mark.parametrize(
    ("text", "num_devices", "size", "stride"),
    [
        ("{{0,4,8,12},{1,5,9,13}}", 16, 4, 4),
        ("{}", 8, 8, 1),
        ("", 8, 8, 1),
        ("[16,4]<=[4,16]T(1,0)", 64, 4, 16),
        ("[2,32]<=[4,4,4]T(0,2,1)", 64, 32, 1),
        ("mesh['axis_0'=16,'axis_1'=4] {'axis_0'}", 64, 16, 4),
        ("mesh['a'=2,'b'=3,'c'=5] {'a', 'c'}", 30, 10, 2),
        ("mesh['a'=8] {'a':(2)4}", 8, 4, 1),
        ("mesh['a'=1,'b'=16,'c'=4], device_ids=([4,16]T(1,0)) {'b'}", 64, 16, 1),
        ("mesh['a'=1,'b'=16,'c'=4], device_ids=([4,16]T(1,0)) {'c'}", 64, 4, 16),
        ("mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", 4, 2, 2),
    ],
)
def test_replica_groups_in_each_of_their_syntaxes(text, num_devices, size, stride):
    group = first_group(text, "", num_devices)
    assert (len(group), group_stride(group)) == (size, stride)


def test_groups_of_devices_in_another_order_are_one_attribute():
    [computation] = parse_module("""HloModule m

ENTRY %main (p: f32[16]) -> f32[64] {
  %p = f32[16]{0} parameter(0)
  ROOT %all-gather = f32[64]{0} all-gather(%p), replica_groups=mesh['a'=4,'b'=2], \
device_ids=([2,4]T(1,0)) {'a'}, dimensions={0}, metadata={op_name="x"}
}
""").computations.values()
    gather = computation.instructions["all-gather"]
    text = gather.attribute("replica_groups")
    assert text == "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}"
    assert first_group(text, "", 8) == [0, 1, 2, 3]
    assert gather.attribute("dimensions") == "{0}"


def test_pairs_of_a_permute_are_a_ring_with_a_stride():
    ring = "{{0,4},{1,5},{4,8},{5,9},{8,12},{9,13},{12,0},{13,1}}"
    assert first_group("", ring, 16) == [0, 4, 8, 12] and group_stride([0, 4, 8, 12]) == 4
    # A shift, and one that stays.
    assert first_group("", "{{0,0},{2,3},{3,4}}", 8) == [2, 3, 4]


def test_collectives_synchronous_and_not_count_once():
    counted = program(
        """
  %x = f32[100]{0} parameter(0)
  %ar = f32[100]{0} all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add
  %ags = (f32[100]{0}, f32[400]{0}) all-gather-start(%ar), replica_groups=[1,4]<=[4], dimensions={0}
  %agd = f32[400]{0} all-gather-done(%ags)
  %rss = ((f32[400]{0}), f32[100]{0}) async-start(%agd), calls=%wrapped
  %rsd = f32[100]{0} async-done(%rss)
  %cps = (f32[100]{0}, f32[100]{0}, u32[], u32[]) collective-permute-start(%rsd), \
source_target_pairs={{0,1},{1,0}}
  ROOT %cpd = f32[100]{0} collective-permute-done(%cps)""",
        """
%wrapped (p: f32[400]) -> f32[100] {
  %p = f32[400]{0} parameter(0)
  ROOT %rs = f32[100]{0} reduce-scatter(%p), replica_groups={{0,1,2,3}}, dimensions={0}, \
to_apply=%add
}
""",
        ", num_partitions=4",
    )
    assert counted.num_devices == 4
    assert counted.collective_bytes == {
        "all-reduce": 400,
        "all-gather": 1600,
        "reduce-scatter": 1600,
        "collective-permute": 400,
    }
    assert set(counted.collectives) == {"ar", "ags", "rss", "cps"}
    assert [collective.group_size for collective in counted.collectives.values()] == [4, 4, 4, 2]


def test_what_lies_before_a_slice_in_a_fusion_is_made_of_the_slice_alone():
    counted = program(
        """
  %p = f32[10,100]{1,0} parameter(0)
  %i = s32[10]{0} parameter(1)
  ROOT %f = f32[10]{0} fusion(%p, %i), kind=kLoop, calls=%g
""",
        """
%g (a: f32[10,100], b: s32[10]) -> f32[10] {
  %a = f32[10,100]{1,0} parameter(0)
  %b = s32[10]{0} parameter(1)
  %r = f32[1000]{0} bitcast(%a)
  %m = f32[1000]{0} exponential(%r)
  ROOT %t = f32[10]{0} gather(%m, %b), offset_dims={}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1}
}""",
    )
    assert counted.num_bytes == 4 * (10 + 10 + 10)  # numbers, indices, result


def test_slices_and_updates_in_a_fusion_count_as_what_they_touch():
    counted = program(
        """
  %big = f32[1000,10]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %z = s32[] constant(0)
  %read = f32[1,10]{1,0} fusion(%big, %i), kind=kLoop, calls=%slicing
  ROOT %write = f32[1000,10]{1,0} fusion(%big, %read, %i), kind=kLoop, calls=%updating""",
        """
%slicing (b: f32[1000,10], i: s32[]) -> f32[1,10] {
  %b = f32[1000,10]{1,0} parameter(0)
  %i.1 = s32[] parameter(1)
  %z.1 = s32[] constant(0)
  %s = f32[1,10]{1,0} dynamic-slice(%b, %i.1, %z.1), dynamic_slice_sizes={1,10}
  ROOT %e = f32[1,10]{1,0} exponential(%s)
}

%updating (b: f32[1000,10], u: f32[1,10], i: s32[]) -> f32[1000,10] {
  %b.2 = f32[1000,10]{1,0} parameter(0)
  %u = f32[1,10]{1,0} parameter(1)
  %i.2 = s32[] parameter(2)
  %z.2 = s32[] constant(0)
  ROOT %d = f32[1000,10]{1,0} dynamic-update-slice(%b.2, %u, %i.2, %z.2)
}
""",
    )
    assert counted.ops["read"].num_bytes == 40 + 4 + 40
    assert counted.ops["read"].other_flops == 10
    assert counted.ops["write"].num_bytes == 40 + 4 + 2 * 40


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("jit(train)/while/body/transpose(jvp(stem))/conv/conv_general_dilated", "stem/conv"),
        ("jit(train)/while/body/transpose(jvp())/blocks/1/dot_general", "blocks/1"),
        ("jit(f)/jvp(vmap(a/b))/mul", "a/b"),
        ("jit(f)/jit(relu)/max", ""),
        ("jit(f)/checkpoint/rematted_computation/layer/tanh", "layer"),
        ("", ""),
    ],
)
def test_scopes_are_what_the_model_named(op_name, scope):
    assert scope_of(op_name) == scope


@pytest.mark.parametrize(
    "text",
    [
        *("", "module @jit_f {}", "HloModule jit_f\n\n%a (x: f32[]) -> f32[] {\n}\n"),
        # Left out, an operand would make the counts too low.
        "HloModule f\n\nENTRY %a () -> s32[] {\n  ROOT %b = s32[] abs(%c#0)\n}\n",
        "HloModule f\n\nENTRY %a () -> s8[] {\n  %b = s8[] iota()\n  ROOT %c = s8[] abs(%b#0)\n}\n",
    ],
)
def test_what_is_no_compiled_program_is_one_line(text):
    with pytest.raises(ProgramTextError) as error:
        analyze(text)
    assert "\n" not in str(error.value)


@pytest.mark.compiles
def test_a_compiled_program_against_the_compiler_s_own_count(request):
    def loss(kernels, x):
        for kernel in kernels:
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(
                    x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        return (x.reshape(len(x), -1) @ jnp.ones((x[0].size, 10))).sum()

    kernels = [jnp.ones((3, 3, 8, 32)), jnp.ones((3, 3, 32, 32))]
    # The tests compile without lines of Python; a user's programs have ten for each operation.
    limit = "jax_traceback_in_locations_limit"
    request.addfinalizer(functools.partial(jax.config.update, limit, jax.config.values[limit]))
    jax.config.update(limit, 10)
    compiled = jax.jit(loss).lower(kernels, jnp.ones((4, 16, 16, 8))).compile()
    counted, theirs = analyze(compiled.as_text() or ""), compiled.cost_analysis()
    # Without padding both count the same products.
    assert counted.product_flops == 2 * 4 * (14 * 14 * 32 * 72 + 12 * 12 * 32 * 288 + 4608 * 10)
    assert sum(op.flops for op in counted.ops.values()) == pytest.approx(theirs["flops"], rel=0.02)
    assert counted.num_bytes == pytest.approx(theirs["bytes accessed"], rel=0.05)
    ops = [op for op in counted.ops.values() if op.product_flops]
    assert all("hlo_test.py:" in op.source_line for op in ops)


@pytest.mark.compiles
def test_a_scan_counts_all_its_rounds():
    def scanned(x):
        return jax.lax.scan(lambda m, _: (jnp.tanh(m @ x), None), x, None, length=9)[0]

    x = jnp.ones((32, 32))
    text = jax.jit(scanned).lower(x).compile().as_text()
    assert analyze(text or "").product_flops == 9 * 2 * 32**3
    assert product_flops(jax.make_jaxpr(scanned)(x).jaxpr) == 9 * 2 * 32**3


@pytest.mark.compiles
def test_a_branch_that_a_trace_does_not_see_is_not_counted():
    def either(which, x):
        return jax.lax.cond(which, lambda x: jnp.tanh(x @ x @ x), lambda x: x, x @ x)

    size = 64
    text = jax.jit(either).lower(True, jnp.ones((size, size))).compile().as_text()
    program = analyze(text or "")
    (branch,) = program.branches.values()
    assert program.product_flops == 3 * 2 * size**3
    assert program.without_branches_not_seen(program.ops.keys()) == program
    less = program.without_branches_not_seen(program.ops.keys() - branch)
    assert less.product_flops == 2 * size**3
    # A trace that names nothing says nothing.
    assert program.without_branches_not_seen([]) == program
