"""MLPerf's compliance checker on one log, in a process of its own: `RULESET FILE SECONDS BYTES`.

Prints JSON: [rule, line or null, text] of each broken rule, and of each remark. The checker runs
the code of its rules on a stranger's values, such as `v['value'] * 1152` on a text, and keeps a
global queue of rules; hence the process and its limits.
"""

import json
import logging
import os
import re
import resource
import sys

from mlperf_logging.compliance_checker import mlp_compliance, mlp_parser

FOLDER = f"{os.path.dirname(mlp_compliance.__file__)}/"
_NAMES_A_FILE = ("submission_division", "submission_benchmark", "submission_status", "opt_name")
_FAILED = re.compile(r"CHECK for '.*' failed in line (\d+):\n.*\nfailed test: (.*)")


def main(ruleset: str, file: str, most_seconds: str, most_bytes: str) -> None:
    logging.disable()
    resource.setrlimit(resource.RLIMIT_CPU, (int(most_seconds), int(most_seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (int(most_bytes), int(most_bytes)))
    mark = ":::MLL" if ruleset == "0.6.0" else ":::MLLOG "
    # The checker counts marked lines alone; it reads a log in this encoding too.
    with open(file, encoding="latin-1") as lines:
        numbers = [number for number, line in enumerate(lines, 1) if mark in line]

    def told(rule: str | None, message: str) -> tuple[str, int | None, str]:
        text = message.split("\ncurrent ")[0].replace(FOLDER, "")
        failed = _FAILED.match(text)
        line = None if failed is None else numbers[int(failed[1])]
        text = text if failed is None else f"{failed[2].strip()} does not hold"
        return rule or "whole log", line, " ".join(text.split())[:2000]

    checker = mlp_compliance.make_checker("training", ruleset, False, False)
    broken = []
    try:
        records, errors = mlp_parser.parse_file(file, ruleset=ruleset)
        broken += [("form", None, f"{error}: {line[:200]}") for line, error in errors[:10]]
        # Such a value becomes part of the name of a file of rules, which are code.
        if any("/" in str(r.value["value"]) for r in records if r.key in _NAMES_A_FILE):
            raise ValueError(f"a value of {', '.join(_NAMES_A_FILE)} has a slash")
        checker.check_loglines(records, f"training_{ruleset}/common.yaml")
    except FileNotFoundError:  # the checker has a message on the rules that it lacks
        pass
    except Exception as error:  # of any kind: it expects the right fields in every line
        broken.append(("form", None, f"the checker stops at {type(error).__name__}: {error}"[:200]))
    broken += [told(*each) for each in checker.overwritable.items()]
    broken += [told(None, message) for message in checker.not_overwritable]
    json.dump([broken, [told(*each) for each in checker.warnings.items()]], sys.stdout)


main(*sys.argv[1:])
