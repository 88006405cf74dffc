"""Utilization: fractions by hand, and kernels that multiply on tensor cores by their names."""

import dataclasses

import jax
import numpy as np
import pytest
from traces import US, gpu_trace, tpu_trace

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.input_pipeline.datasets.parallel_text import pair_lengths
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.models.configs.transformer import Transformer
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import pure_model
from dawnjax.profile.hlo import analyze
from dawnjax.profile.model_flops import TRAINING_FACTOR, product_flops
from dawnjax.profile.program import Program
from dawnjax.profile.trace import read_trace
from dawnjax.profile.utilization import is_tensor_core_kernel, tensor_core_fraction
from dawnjax.tasks.translation import train_flops
from dawnjax.train_step import make_recipe


@pytest.mark.parametrize(
    ("kernel", "is_on_tensor_cores"),
    [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_TNN", True),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("turing_h1688gemm_128x128_ldg8_stages_32x1_nn", True),
        ("ampere_fp16_s16816fprop_optimized_fp16_128x128_ldg8_f2f_stages_32x5_nhwc", True),
        ("sm90_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize", True),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2>", True),
        ("flash_fwd_kernel", True),
        ("input_reduce_fusion_3", False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", False),
        ("ampere_sgemm_128x64_nn", False),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", False),
        ("implicit_convolve_sgemm", False),
        ("loop_convert_fusion_16816", False),
        ("loop_scale_gamma_fusion", False),
    ],
)
def test_kernels_that_use_tensor_cores_are_known_by_name(kernel, is_on_tensor_cores):
    assert is_tensor_core_kernel(kernel) == is_on_tensor_cores


def test_the_share_of_a_step_on_tensor_cores(tmp_path):
    read = read_trace(gpu_trace(tmp_path)).of_program("jit_train")
    window = (1 * US, 201 * US)
    # 100 us of 200 on one GPU, 130 on the other.
    program = Program("jit_train", 2, {}, {})
    assert tensor_core_fraction(read, window, program) == (pytest.approx(0.575), "")
    on_cpu = dataclasses.replace(read, platform="cpu")
    fraction, reason = tensor_core_fraction(on_cpu, window, program)
    assert fraction is None and "no tensor cores" in reason


def test_the_share_of_a_step_on_a_tpu_s_matrix_units(tmp_path):
    read = read_trace(tpu_trace(tmp_path)).of_program("jit_train")
    program = analyze(
        """HloModule jit_train

ENTRY %m (x: bf16[2,2]) -> bf16[2,2] {
  %x = bf16[2,2]{1,0} parameter(0)
  ROOT %fusion.2 = bf16[2,2]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    )
    assert tensor_core_fraction(read, (0, 100 * US), program)[0] == pytest.approx(0.19)


@pytest.mark.compiles
def test_model_flops_of_digits_by_hand():
    experiment = load_experiment("digits")
    spec = experiment.data.spec()
    # Multiply-adds of one 8x8 image: the stem, two 3x3 convolutions of 32 channels, then at half
    # the size 32 to 64, 64 to 64 and the shortcut's 1x1; the classifier. Along a side of 8 the
    # three taps meet 3 x 8 - 2 pixels, of 4 3 x 4 - 2; those that move by two, 3 x 4 - 1.
    stem = 22**2 * 1 * 32
    first = 2 * 22**2 * 32 * 32
    second = 11**2 * 32 * 64 + 10**2 * 64 * 64 + 16 * 32 * 64
    forward = stem + first + second + 64 * 10
    recipe = make_recipe(experiment, spec, make_mesh(MeshShape(), jax.devices()[:1]))
    assert recipe.train_flops_per_example() == 3 * 2 * forward


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "dilations", "multiply_adds"),
    [
        # A side of 5 and one of 7, three channels to four.
        ((3, 3), (1, 1), "SAME", {}, (3 * 5 - 2) * (3 * 7 - 2) * 3 * 4),
        ((3, 3), (1, 1), "VALID", {}, 9 * 3 * 5 * 3 * 4),
        ((1, 1), (2, 2), "VALID", {}, 3 * 4 * 3 * 4),
        # Taps at -1 to 1, 1 to 3 and 3 to 5; of the side of 7 at 5 to 7 as well.
        ((3, 3), (2, 2), [(1, 1), (1, 1)], {}, (2 + 3 + 2) * (2 + 3 + 3 + 2) * 3 * 4),
        # Taps two apart: at -2, 0, 2 for the first position.
        (
            (3, 1),
            (1, 1),
            [(2, 2), (0, 0)],
            {"rhs_dilation": (2, 1)},
            (2 + 2 + 3 + 2 + 2) * 7 * 3 * 4,
        ),
        # Zeros between the pixels, 0 to 8: three taps meet one or two pixels in turn.
        (
            (3, 1),
            (1, 1),
            [(1, 1), (0, 0)],
            {"lhs_dilation": (2, 1)},
            (5 + 4 * 2) * 7 * 3 * 4,
        ),
    ],
)
def test_multiply_adds_of_a_convolution_leave_out_its_padding(
    kernel, strides, padding, dilations, multiply_adds
):
    def convolve(image, kernel):
        order = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            image, kernel, strides, padding, dimension_numbers=order, **dilations
        )

    image = jax.ShapeDtypeStruct((2, 5, 7, 3), "float32")
    weights = jax.ShapeDtypeStruct((*kernel, 3, 4), "float32")
    forward = jax.make_jaxpr(convolve)(image, weights)
    assert product_flops(forward.jaxpr) == 2 * 2 * multiply_adds

    def gradients(image, weights):
        result, back = jax.vjp(convolve, image, weights)
        return back(result)

    # Each gradient multiplies the pairs of the forward pass, once more.
    backward = jax.make_jaxpr(gradients)(image, weights)
    assert product_flops(backward.jaxpr) == TRAINING_FACTOR * 2 * 2 * multiply_adds


def test_model_flops_of_packed_sentences_by_hand():
    model = Transformer(num_layers=1, width=4, hidden_width=6, num_heads=2)
    # A row of two pairs, of 2 + 3 and 1 + 1 tokens, one token of padding on each side.
    lengths = pair_lengths(np.array([[1, 1, 2, 0]]), np.array([[1, 1, 1, 2, 0]]))
    assert [side.tolist() for side in lengths] == [[2, 1], [3, 1]]
    # Encoder, 3 tokens: 4 projections of 4 x 4, 4 x 6 and 6 x 4; 2 x 2 + 1 x 1 scores of 4 channels
    # and as many products with values.
    encoder = 3 * (64 + 48) + 2 * 5 * 4
    # Decoder, 4 tokens: as much again, 3 x 3 + 1 x 1 scores; to the source 2 projections of each of
    # its own tokens and 2 of each of the source's 3, and 3 x 2 + 1 x 1 scores.
    decoder = 4 * (64 + 48) + 2 * 10 * 4 + 4 * 32 + 3 * 32 + 2 * 7 * 4
    logits = 4 * 4 * 11
    assert train_flops(model, *lengths, 11) == 3 * 2 * (encoder + decoder + logits)


@pytest.mark.compiles
def test_model_flops_of_multi30k_against_the_compiler_and_the_traced_model():
    """One unpadded pair a row: then the program makes the products of the mathematics alone."""
    model = load_experiment("multi30k_transformer").model
    assert isinstance(model, Transformer)
    rows, source, target, vocabulary = 2, 62, 64, 8000
    execution = Execution(platform="tpu", compute_dtype="float32", batch_norm_group_size=1)
    pure = pure_model(
        lambda rngs: model.build(vocabulary_size=vocabulary, execution=execution, rngs=rngs)
    )
    params, _ = jax.eval_shape(pure.init, jax.random.key(0))
    tokens = [jax.ShapeDtypeStruct((rows, n), "int32") for n in (source, source, target, target)]

    def loss(params, source, source_segments, inputs, segments):
        module = pure.bind(params, {})
        hidden = module(source, source_segments, inputs, segments)
        return module.loss_and_count(hidden, inputs, segments > 0, 0.1)[0]

    flops = train_flops(model, np.full(rows, source), np.full(rows, target), vocabulary)
    forward = jax.make_jaxpr(loss)(params, *tokens)
    assert flops == TRAINING_FACTOR * product_flops(forward.jaxpr)
    cost = jax.jit(jax.grad(loss)).lower(params, *tokens).cost_analysis()
    assert isinstance(cost, dict)
    print(f"by hand {flops:,}, by the compiler {cost['flops']:,.0f}")
    assert flops == pytest.approx(cost["flops"], rel=0.03)
