"""Compile the programs of every observation that plans learn from or are held against; keep them.

    python -m benchmarks plan_extracts

It needs `pip install -e '.[plan]'`, no accelerator and no data, and writes
`dawnjax/plan/extracts.json`. Programs in the cache of `dawnjax plan` are not compiled again. Run it
after a change of models, steps or counting of FLOPs and bytes.
"""

import argparse
import concurrent.futures
import importlib.metadata
import json
import sys

from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import RunError
from dawnjax.plan import compiled, observations

VERSIONS = ("jax", "libtpu", "jax-cuda12-plugin")


def main() -> int:
    """Writes the file; an observation that cannot be compiled is named, and ends it."""
    argparse.ArgumentParser(prog=sys.argv[0], description=__doc__).parse_args()
    rows = (*observations.observations(), *observations.held_out())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = dict(zip((row.name for row in rows), pool.map(_answer, rows), strict=True))
    failed = [name for name, answer in answers.items() if answer is None]
    if failed:
        print(f"not compiled: {', '.join(failed)}")
        return 1
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    lines = [f"  {json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    body = ",\n".join(lines)
    observations.EXTRACTS.write_text(
        f'{{"versions": {json.dumps(versions)}, "programs": {{\n{body}\n}}}}\n'
    )
    print(observations.EXTRACTS)
    return 0


def _answer(row: observations.PublishedResult) -> dict | None:
    try:
        request, _ = parse_request("plan", list(row.argv))
        data = compiled.identity_of_data(request.experiment.data)
        answer = compiled.answer_of(row.argv, compiled.identity_of(row.argv, data), row.system)
    except RunError as error:
        print(f"{row.name}: {error}", flush=True)
        return None
    print(row.name, flush=True)
    return answer


if __name__ == "__main__":
    sys.exit(main())
