"""Compile the programs of every observation that plans learn from or are held against; keep them.

    python -m benchmarks plan_extracts ["DGX-2 ssd" ...]

It needs `pip install "dawnjax[plan]"`, no accelerator and no data, and writes
`dawnjax/plan/epochs/extracts.json`. Programs in the cache of `dawnjax plan` are not compiled again.
Run it after a change of models, steps or counting of FLOPs and bytes. Without names it compiles all
results but our own steps: their program is that of the code that was measured, so name them when
they are measured again.
"""

import argparse
import concurrent.futures
import importlib.metadata
import json
import sys

from benchmarks.plan_accuracy.results import held_out
from dawnjax import records
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import RunError
from dawnjax.plan.compiling import compiled
from dawnjax.plan.epochs import observations

VERSIONS = ("jax", "libtpu", "jax-cuda13-plugin")


def main() -> int:
    """Writes the file; an observation that cannot be compiled is named, and ends it."""
    rows = {row.name: row for row in (*observations.observations(), *held_out())}
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("names", nargs="*", help="results to compile")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in rows]:
        parser.error(f"no result {unknown[0]!r}; there are {', '.join(rows)}")
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    kept = records.read_json(observations.EXTRACTS, dict[str, dict])
    official = [name for name, row in rows.items() if row.examples_per_second is None]
    chosen = {name: rows[name] for name in names or official}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        made = dict(zip(chosen, pool.map(_answer, chosen.values()), strict=True))
    failed = [name for name, answer in made.items() if answer is None]
    if failed:
        print(f"not compiled: {', '.join(failed)}")
        return 1
    new = {name: {"versions": versions, "programs": answer} for name, answer in made.items()}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(entry)}"
        for name, entry in {**kept, **new}.items()
        if name in rows
    ]
    body = ",\n".join(lines)
    observations.EXTRACTS.write_text(f"{{\n{body}\n}}\n")
    print(observations.EXTRACTS)
    return 0


def _flags(row: observations.PublishedResult) -> list[str]:
    """Flags of the measured experiment, with normalization within each device."""
    per_device = row.global_batch // row.system.num_devices
    group = [f"--batch_norm_group_size={per_device}"] if "resnet" in row.experiment else []
    batch = f"--global_batch_size={row.global_batch}"
    return [f"--experiment={row.experiment}", batch, *group, *row.flags]


def _answer(row: observations.PublishedResult) -> dict | None:
    try:
        flags = _flags(row)
        request, _ = parse_request("plan", flags)
        spec, _ = compiled.spec_of(request.experiment.data)
        programs = compiled.compiled(flags, compiled.identity_of(request, spec), row.system)
    except RunError as error:
        print(f"{row.name}: {error}", flush=True)
        return None
    print(row.name, flush=True)
    return records.plain(programs)


if __name__ == "__main__":
    sys.exit(main())
