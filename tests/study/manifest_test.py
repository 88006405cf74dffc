"""The manifest of the docs that runs a study's trials on Kubernetes."""

from pathlib import Path

import pytest

from dawnjax.__main__ import main

DOCS = Path(__file__).resolve().parents[2] / "docs" / "studies.md"


def test_the_manifest_of_the_docs_is_a_job_whose_command_runs_one_trial(tmp_path, compile_cache):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate: no schema")
    import yaml

    [text] = [part.partition("```")[0] for part in DOCS.read_text().split("```yaml\n")[1:]]
    job = yaml.safe_load(text)
    validate.validate(job, "1.30", strict=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    program, *command = container["command"]
    assert program == "dawnjax" and f"--seeds={job['spec']['completions']}" in command
    # What Kubernetes and the mounted claim would put there.
    command = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in command]
    command = [word.replace("/study/", f"{tmp_path}/") for word in command]
    assert main([*command, "--tiny=true", compile_cache]) == 0, "a spent budget is no failed pod"
    assert [path.name for path in tmp_path.glob("digits/trials/all/*")] == ["seed_1"]
    job["spec"]["completion"] = job["spec"].pop("completions")
    with pytest.raises(validate.ValidationError):
        validate.validate(job, "1.30", strict=True)
