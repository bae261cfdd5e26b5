"""Write the tests that take more than a second to tests/long.txt, from what pytest printed of their durations.

python -m pytest -n 2 -m 'not slow and not browser' --durations=0 -vv > log; python tools/long_tests.py log
"""

import re
import sys
from pathlib import Path

LONG = Path(__file__).parents[1] / "tests" / "long.txt"
SECONDS = 1.0  # of a core; those of all others together are what `make test` takes
LINE = re.compile(r"^(\d+\.\d+)s (?:call|setup)\s+(\S.*?)\s*$", re.MULTILINE)


def long_tests(log: str, seconds: float = SECONDS) -> list[str]:
    """Return the names of tests that took longer.

    >>> long_tests("3.20s call     tests/a.py::test_b[c d]\\n0.10s call     tests/a.py::test_e")
    ['tests/a.py::test_b[c d]']
    """
    return sorted({name for spent, name in LINE.findall(log) if float(spent) > seconds})


if __name__ == "__main__":
    LONG.write_text("\n".join(long_tests(Path(sys.argv[1]).read_text())) + "\n")
