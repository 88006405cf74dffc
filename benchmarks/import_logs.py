"""Reading official MLPerf logs with their values, against a bare regex scan of every line.

    python -m benchmarks import_logs --archive=mlperf_v0.5_results.tar.xz

Both sides get the logs decompressed, in memory, in one process. Ours makes of every log its trial:
every record with its value decoded, the clock, the evaluations, the epochs. The scan looks for the
marker with one compiled expression in each line and does nothing with it. The figure is CPU seconds
for all logs; rounds alternate, and the ratio is given with its interval. The most memory
that reading one log takes beyond the log itself is given too.
"""

import argparse
import re
import sys
import time
import tracemalloc
from pathlib import Path

from benchmarks import harness
from dawnjax.official import mlperf, mlperf_log, sources
from dawnjax.official.mlperf_trial import read_trial

_MARKED = re.compile(rb":::MLPv0\.5\.0 (\w+) (\d+(?:\.\d+)?) \(([^)]*)\) (\w+)(?: *: *(.*))?")


def main() -> int:
    """Measures, prints a table and writes `results/import_logs.json`."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    logs = [
        file.read(sources.LOG_BYTES)
        for file in sources.files(arguments.archive)
        if mlperf.RESULT_FILE.fullmatch(file.name.rsplit("/", 1)[-1])
    ]
    num_bytes = sum(map(len, logs))
    num_records = sum(len(mlperf_log.parse(log).records) for log in logs)

    def ours() -> float:
        started = time.process_time()
        for log in logs:
            read_trial(log)
        return time.process_time() - started

    def scan() -> float:
        started = time.process_time()
        count = 0
        for log in logs:
            for line in log.split(b"\n"):
                count += _MARKED.search(line) is not None
        assert count == num_records
        return time.process_time() - started

    rounds = harness.alternate(ours, scan, arguments.rounds, unit="CPU seconds for all logs")
    memory = max(map(_memory_beyond, logs))
    largest = max(map(len, logs))
    first, second = rounds.medians
    print(
        harness.table(
            [
                ["logs", "MB", "records", "ours, CPU s", "scan, CPU s", "ratio", "95 % interval"],
                [
                    str(len(logs)),
                    f"{num_bytes / 1e6:.1f}",
                    f"{num_records:,}",
                    f"{first:.3f}",
                    f"{second:.3f}",
                    f"{rounds.ratio.value:.2f}",
                    rounds.ratio.ends_text(2),
                ],
            ]
        )
    )
    print(f"the largest log has {largest:,} bytes; reading one log takes {memory:,} more at most")
    record = {
        "logs": len(logs),
        "bytes": num_bytes,
        "records": num_records,
        "largest_log_bytes": largest,
        "most_memory_bytes_beyond_a_log": memory,
        **rounds.to_json(),
    }
    print(harness.write("import_logs", record))
    return 0


def _memory_beyond(log: bytes) -> int:
    """Measures the most memory that reading a log takes beyond the log itself."""
    tracemalloc.start()
    read_trial(log)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    sys.exit(main())
