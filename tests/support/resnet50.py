"""A plain ResNet-50 (v1.5) train step, and its compilation for devices that are not here.

    python tests/support/resnet50.py tpu|gpu FILE

writes the text of the compiled step, with 32 images a device, to FILE. It needs libtpu, or JAX's
CUDA plugin and nvcc, and the variables of `environment`; no TPU and no GPU.
"""

import importlib.util
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

IMAGES_PER_DEVICE = 32

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84978434048
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
runtime_version { major: 12 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def environment(platform: str) -> dict[str, str]:
    """The environment in which this file compiles for a platform."""
    if platform == "tpu":
        return {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "",
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-4",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "JAX_OPTIMIZATION_LEVEL": "O1",
        }
    spec = importlib.util.find_spec("nvidia.cu13")
    assert spec is not None and spec.submodule_search_locations
    nvcc = Path(next(iter(spec.submodule_search_locations)))
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={nvcc} --xla_gpu_autotune_level=0",
        "PATH": f"{nvcc / 'bin'}:{os.environ['PATH']}",
    }


def conv(x, w, stride, pad):
    return lax.conv_general_dilated(
        x,
        w.astype(x.dtype),
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def norm(x, scale):
    x32 = x.astype(jnp.float32)
    mean = x32.mean((0, 1, 2))
    variance = jnp.square(x32).mean((0, 1, 2)) - jnp.square(mean)
    return ((x32 - mean) * lax.rsqrt(variance + 1e-5) * scale).astype(x.dtype)


def layers():
    yield "stem", 7, 3, 64
    width = 64
    for stage, (blocks, mid) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            name = f"stage_{stage}_block_{block}"
            yield name + "/a", 1, width, mid
            yield name + "/b", 3, mid, mid
            yield name + "/c", 1, mid, 4 * mid
            if block == 0:
                yield name + "/project", 1, width, 4 * mid
            width = 4 * mid


def init():
    params = {
        name: (jnp.zeros((size, size, in_width, out_width)), jnp.ones(out_width))
        for name, size, in_width, out_width in layers()
    }
    return params | {"head": (jnp.zeros((2048, 1000)), jnp.zeros(1000))}


def forward(params, x):
    def conv_norm(name, x, stride, pad):
        with jax.named_scope(name):
            kernel, scale = params[name]
            return norm(conv(x, kernel, stride, pad), scale)

    x = jax.nn.relu(conv_norm("stem", x, 2, 3))
    pads = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            name = f"stage_{stage}_block_{block}"
            stride = 2 if stage and block == 0 else 1
            y = jax.nn.relu(conv_norm(name + "/a", x, 1, 0))
            y = jax.nn.relu(conv_norm(name + "/b", y, stride, 1))
            y = conv_norm(name + "/c", y, 1, 0)
            if block == 0:
                x = conv_norm(name + "/project", x, stride, 0)
            x = jax.nn.relu(x + y)
    x = x.mean((1, 2)).astype(jnp.float32)
    with jax.named_scope("head"):
        return x @ params["head"][0] + params["head"][1]


def loss(params, images, labels, dtype=jnp.bfloat16):
    logits = forward(params, images.astype(dtype))
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def step(params, images, labels, dtype=jnp.bfloat16):
    value, gradients = jax.value_and_grad(loss)(params, images, labels, dtype)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def compiled_text(platform: str) -> str:
    """Text of the step that is compiled for four TPUs v5e or eight H100."""
    if platform == "tpu":
        topology = topologies.get_topology_desc("v5e:2x2", "tpu")
    else:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=H100, topology="1x1x8"
        )
    mesh = Mesh(np.array(topology.devices).reshape(-1), ("data",))
    whole = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("data"))
    batch = IMAGES_PER_DEVICE * mesh.devices.size
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole),
        jax.eval_shape(init),
    )
    images = jax.ShapeDtypeStruct((batch, 224, 224, 3), jnp.uint8, sharding=split)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32, sharding=split)
    compiled = (
        jax.jit(step, donate_argnums=0, out_shardings=(whole, whole))
        .lower(params, images, labels)
        .compile()
    )
    return compiled.as_text() or ""


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(compiled_text(sys.argv[1]))
