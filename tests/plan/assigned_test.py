"""A program that XLA has not compiled to the end: its text, its memory, and its failures."""

import json
import re
import subprocess
import sys
import time

import pytest

from dawnjax.errors import RunError
from dawnjax.plan.compiling import compilers
from dawnjax.plan.compiling.assigned import assigned
from dawnjax.plan.hardware.systems import parse_system

ASSIGNMENT = """BufferAssignment:
allocation 0: size 400, parameter 8, shape |f32[100]| at ShapeIndex {}, maybe-live-out:
 value: <1 param.24 @0> (size=400,offset=0): f32[100]{0}
allocation 1: size 64, output shape is |(s32[], f32[100])|, maybe-live-out:
allocation 2: size 4, maybe-live-out:
allocation 3: size 32, constant:
allocation 4: size 4, thread-local:
allocation 5: size 1000, preallocated-temp:
 value: <2 fusion.3{1} @0> (size=512,offset=0): bf16[3,5]{1,0:T(8,128)(2,1)}
 value: <3 copy.7 @0> (size=60,offset=512): f32[3,5]{1,0}
 value: <4 gone @0> (size=900,offset=0): f32[225]{0}
allocation 6: size 8, color 6, preallocated-temp:
"""

REPORT = """Memory Space: default (color=0)
Total bytes: 1504 (1.5KiB)
  cumulative_size;       size
Memory Space: color 6
Total bytes: 8 (8B)
"""
TEXT = """HloModule jit_single

ENTRY %main.1 {
  %param.24 = f32[100]{0} parameter(8), metadata={op_name="state.params[\\'stem\\'][\\'kernel\\']"}
  %fusion.3 = (f32[2]{0}, bf16[3,5]{1,0}) fusion(), metadata={op_name="jit(call)/jvp(stem)/dot"}
  ROOT %a = f32[2]{0} parameter(0)
}

"""


RANGES = """HloLiveRange (max 9):
  InstructionSequence:
    0:param
  Live ranges at 5 (peak):
    param.24{}: 400 bytes (cumulative: 400 bytes)
    copy.7{}: 60 bytes (cumulative: 460 bytes)
    fusion.3{1}: 30 bytes (cumulative: 490 bytes)
  Stack trace breakdown for peak usage: 490 bytes
    main (100.0%, total: 490 bytes)
"""


class Lowered:
    """A function in JAX's form; a thread compiles it and writes XLA's files."""

    def __init__(self, files=(), seconds: float = 0.0, failure: Exception | None = None):
        self.files, self.seconds, self.failure = files, seconds, failure

    def compile(self, options):
        for name, text in self.files:
            with open(f"{options['xla_dump_to']}/{name}", "w") as file:
                file.write(text)
        time.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure


NAME = "module_1.jit_single.gpu_after_optimizations"
FILES = (
    (f"{NAME}.txt", TEXT),
    (f"{NAME}-memory-usage-report.txt", REPORT),
    (f"{NAME}-buffer-assignment.txt", ASSIGNMENT),
    (f"{NAME}-live-range.txt", RANGES),
)


@pytest.mark.parametrize(
    "later", ["m.0.ir-no-opt.ll", "m.after_optimizations_after_buffer_assignment.txt"]
)
def test_kernels_are_not_waited_for(later, tmp_path):
    lowered = Lowered((*FILES, (later, "")), seconds=60, failure=ValueError("too late"))
    found = assigned(lowered, {}, tmp_path / "new")
    assert (found.text, found.num_bytes) == (TEXT, 1476)


def test_a_program_without_kernels_is_read_when_it_is_compiled(tmp_path):
    assert assigned(Lowered(FILES), {}, tmp_path / "new").num_bytes == 1476
    # As XLA of jax 0.12 writes it.
    files = [(name, re.sub(r"(: size \d+)", r"\1, page 0", text)) for name, text in FILES]
    found = assigned(Lowered(files), {}, tmp_path / "newer")
    assert (found.num_bytes, found.argument_bytes) == (1476, 400)


def test_the_largest_arrays_at_the_peak_have_their_padding_and_the_names_of_their_ops(tmp_path):
    found = assigned(Lowered(FILES), {}, tmp_path / "new")
    assert found.argument_bytes == 400
    assert found.buffers == (
        ("jvp(stem)/dot", "bf16[3,5]", 512),
        ("state.params/stem/kernel", "f32[100]", 400),
        ("copy.7", "f32[3,5]", 60),
    )


def test_a_compiler_that_fails_is_said_to(tmp_path):
    with pytest.raises(ValueError, match="out of memory"):
        assigned(Lowered(FILES, failure=ValueError("out of memory")), {}, tmp_path / "a")


@pytest.mark.parametrize(("file", "end"), [(0, 50), (1, 0), (2, 90)])
def test_files_that_are_cut_short_are_no_program(file, end, tmp_path):
    files = [(name, text[:end] if i == file else text) for i, (name, text) in enumerate(FILES)]
    with pytest.raises(RunError, match="incomplete: is the disk"):
        assigned(Lowered(files), {}, tmp_path / "cut")
    with pytest.raises(RunError, match="incomplete"):
        assigned(Lowered(), {}, tmp_path / "none")


TO_THE_END = """
import dataclasses, json, sys
from pathlib import Path
from dawnjax.feed import InputShapes
from dawnjax.plan.compiling import worker
from dawnjax.plan.hardware.systems import parse_system

compiled = []
def both(lowered, options, folder):
    compiled.append(lowered.compile(options))
    return in_part(lowered, options, folder)

in_part, worker.assigned = worker.assigned, both
recipes, batch, _ = worker.recipes_of(["--experiment=digits"], parse_system(sys.argv[1]))
shapes = InputShapes(recipes[0].experiment, recipes[0].spec, "host", batch)
part = worker.train_program(recipes[0], shapes, Path(sys.argv[2]))
memory = compiled[0].memory_analysis()
used = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
whole = dataclasses.replace(part, text=compiled[0].as_text())
print(json.dumps([
    worker._extract(part, 1) == worker._extract(whole, 1),
    part.num_bytes,
    used + memory.temp_size_in_bytes,
]))
worker.leave()
"""


@pytest.mark.processes
@pytest.mark.parametrize("system", ["v5e:8", "h100:8"])
def test_kernels_change_no_op_and_no_byte(system, tmp_path):
    try:
        environment = compilers.environment(parse_system(system).accelerator.device.platform)
    except RunError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-c", TO_THE_END, system, str(tmp_path / "new")]
    answer = subprocess.run(command, env=environment, capture_output=True, check=True)
    is_same, in_part, to_the_end = json.loads(answer.stdout.splitlines()[-1])
    assert is_same
    # A TPU's kernels have a memory of their own beside the arrays'.
    assert in_part == to_the_end if system == "h100:8" else 0 <= to_the_end - in_part < 4 * 2**20
