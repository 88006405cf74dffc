"""List the benchmarks, or run one: `python -m benchmarks [NAME [--help | ARGUMENTS]]`."""

import ast
import os
import runpy
import sys
from pathlib import Path

from benchmarks import workers

_NOT_BENCHMARKS = (
    *("__init__", "__main__", "harness", "compared", "workers", "step_settings", "our_steps"),
    *("pytorch_steps", "pytorch_images", "pytorch_settings", "pytorch_optimizers", "pytorch_trial"),
    *("recipe_import", "machine_load"),
)


def main() -> int:
    folder = Path(__file__).parent
    names = sorted(p.stem for p in folder.glob("*.py") if p.stem not in _NOT_BENCHMARKS)
    if len(sys.argv) < 2 or sys.argv[1] in ("--help", "-h"):
        print(__doc__ or "")
        for name in names:
            doc = ast.get_docstring(ast.parse((folder / f"{name}.py").read_text())) or ""
            print(f"  {name:18} {doc.splitlines()[0]}")
        return 0
    name = sys.argv[1]
    if name not in names:
        print(f"benchmarks: no benchmark {name!r}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    # Without kept bytecode each process compiles all that it imports, and the side with more of it
    # would seem slow to start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    try:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    except workers.SideFailed as failure:
        sys.exit(f"{name}: a side failed: {failure}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.exit(f"{name}: PyTorch is not installed: pip install torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
