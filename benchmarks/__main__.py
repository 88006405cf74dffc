"""List the benchmarks, or run one: `python -m benchmarks [NAME [--help | ARGUMENTS]]`."""

import ast
import os
import runpy
import sys
from pathlib import Path

from benchmarks import workers

_SIDES_OF_STEPS = ("our_steps", "pytorch_steps")


def main() -> int:
    texts = {path.stem: path.read_text() for path in Path(__file__).parent.glob("[a-z]*.py")}
    runnable = sorted(name for name, text in texts.items() if '== "__main__":' in text)
    names = [name for name in runnable if name not in _SIDES_OF_STEPS]
    if len(sys.argv) < 2 or sys.argv[1] in ("--help", "-h"):
        print(__doc__ or "")
        for name in names:
            doc = ast.get_docstring(ast.parse(texts[name])) or ""
            print(f"  {name:22} {doc.splitlines()[0]}")
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
