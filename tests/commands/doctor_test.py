"""`dawnjax doctor`: the whole on this machine's CPU, and what it says of broken ones."""

import subprocess
from pathlib import Path

import pytest
from quick_compilation import QUICK, flags_with
from told import told

from dawnjax import doctor

H200 = {"platform": "gpu", "kind": "NVIDIA H200", "dtype": "bfloat16"}

SMALL = ("--model.width=32", "--model.mlp_width=64", "--model.num_layers=1", "--model.num_heads=2")
SMALL += ("--model.num_kv_heads=2", "--global_batch_size=48", "--data.num_train_tokens=16384")


def devices(*rates: tuple[float, float], memory: float = 140e9) -> list:
    return [{**H200, "rates": rate, "memory_bytes": memory} for rate in rates]


def machine(root: Path, *files: str) -> Path:
    (root / "dev").mkdir()
    for name in files:
        (root / "dev" / name).touch()
    return root


@pytest.mark.processes
def test_a_cpu_works_and_has_nothing_to_compare_with(capsys, monkeypatch, compile_cache):
    monkeypatch.setenv("XLA_FLAGS", flags_with(QUICK, "", num_devices=2))
    monkeypatch.setattr(doctor, "RUN", (*doctor.RUN, *SMALL, compile_cache))
    found = {row["part"]: row for row in told(capsys, "doctor")["parts"]}
    states = {part: row["state"] for part, row in found.items()}
    assert states == {
        "devices": "right",
        "memory": "unknown",
        "float32 product": "unknown",
        "memory copy": "unknown",
        "step": "right",
        "profile": "right",
        "checkpoint": "right",
    }
    assert found["devices"]["text"] == "2 x cpu"
    assert "on 2 devices of 1 host, " in found["step"]["text"]
    assert found["float32 product"]["figures"]["FLOP/s"] > 1e9


def test_figures_stand_beside_the_data_sheet():
    found = doctor.of_products(devices((788e12, 4.29e12)))
    # 788 of 989.4 TFLOP/s, and 4.29 of 4.8 TB/s.
    assert found.state == "right" and "788 TFLOP/s, 80% of the data sheet's 989 T" in found.text
    assert "89% of the data sheet's 4.80 TB/s" in doctor.of_bandwidth(devices((1.0, 4.29e12))).text
    slow = doctor.of_products(devices((300e12, 4e12)))
    assert slow.state == "wrong" and "power limited?" in slow.text
    # 143,771 MiB, of which JAX takes three quarters.
    assert "93% of 151 GB" in doctor.of_memory(devices((1.0, 1.0))).text
    held = doctor.of_memory(devices((1.0, 1.0), memory=60e9))
    assert held.state == "wrong" and held.text.endswith("another program holds the rest")


def test_a_device_that_is_slower_than_the_others_is_named():
    found = doctor.of_products(devices((788e12, 4e12), (600e12, 4e12), (790e12, 4e12)))
    assert found.state == "wrong"
    assert found.text.startswith("device 1 makes 600 TFLOP/s, 76% of the fastest device's")


def test_an_unknown_device_is_compared_with_nothing():
    found = doctor.of_products([{**devices((1e12, 1e12))[0], "kind": "Some GPU"}])
    assert found.state == "unknown" and "no data sheet is known here" in found.text


def test_gpus_that_jax_does_not_see_are_wrong(tmp_path):
    cpu = [{"platform": "cpu", "kind": "cpu"}]
    root = machine(tmp_path, "nvidia0", "nvidia1")
    found = doctor.of_devices(cpu, {}, root)
    assert (found.state, found.text) == (
        "wrong",
        'this machine shows 2 NVIDIA GPUs, and JAX has 1 x cpu: pip install "dawnjax[gpu]"',
    )
    told = doctor.of_devices(cpu, {"JAX_PLATFORMS": "cpu"}, root).text
    assert told.endswith("or unset JAX_PLATFORMS")
    assert doctor.of_devices(devices((1, 1)), {}, root).state == "wrong"
    assert doctor.of_devices(devices((1, 1), (1, 1)), {}, root).state == "right"


def test_chips_that_jax_does_not_see_are_wrong(tmp_path):
    found = doctor.of_devices([{"platform": "cpu", "kind": "cpu"}], {}, machine(tmp_path, "accel0"))
    assert found.state == "wrong" and 'pip install "dawnjax[tpu]"' in found.text


def test_a_loss_that_does_not_fall_is_wrong():
    trial = {"num_devices": 8, "num_hosts": 1, "steps": 20, "first_losses": ["nan", "nan"]}
    assert doctor.of_step(trial).state == "wrong"
    assert doctor.of_step({**trial, "first_losses": [5.5, 5.6]}).state == "wrong"


def test_another_loss_after_a_restore_is_wrong():
    trial = {"evaluations": [{"step": 20, "loss": 2.5}], "phases": {"checkpoint": 0.1}}
    told = '{"result": {"step": 20, "own": {"metrics": {"loss": 2.5}}}}'
    assert doctor.of_checkpoint(trial, told, "").state == "right"
    found = doctor.of_checkpoint(trial, told.replace("2.5", "2.6"), "")
    assert found.text == "restored, with loss 2.5 before and 2.6 after"
    assert doctor.of_checkpoint(trial, "", "no space left").state == "wrong"


def test_a_driver_that_does_not_start_is_one_line(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "a traceback\nCUDA_ERROR_SYSTEM_NOT_READY\n")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: failed)
    (found,) = doctor.findings()
    assert found.text == "JAX does not start: CUDA_ERROR_SYSTEM_NOT_READY"

    def hang(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    (found,) = doctor.findings()
    assert found.text == "JAX does not start: no answer within 300 s"
