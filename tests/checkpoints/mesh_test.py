"""A run that was saved on one mesh continues on another."""

import numpy as np
import pytest
from task_table import TABLE, cut_off, train, trained_run
from trained import result_of

FSDP_MODEL = ("--mesh.fsdp=2", "--mesh.model=2")
CONTEXT = ("--mesh.fsdp=1", "--mesh.model=1", "--mesh.context=2")


@pytest.mark.compiles
def test_a_run_that_resumes_on_another_mesh_ends_as_one_that_stayed(
    tmp_path, tmp_path_factory, compile_cache
):
    row, run_dir = TABLE["llama"], tmp_path / "cut"
    assert row.mesh == FSDP_MODEL
    whole = result_of(trained_run(tmp_path_factory, "llama", compile_cache))
    with cut_off(row):
        assert train("llama", run_dir, compile_cache) == 1
    assert train("llama", run_dir, compile_cache, *CONTEXT) == row.status
    resumed = result_of(run_dir)
    assert resumed["interruptions"] == 1 and resumed["steps"] == row.steps
    # Sums in another order.
    np.testing.assert_allclose(resumed["first_losses"], whole["first_losses"], atol=1e-5)
    last, wanted = resumed["evaluations"][-1], whole["evaluations"][-1]
    assert last["loss"] == pytest.approx(wanted["loss"], abs=2e-5)
