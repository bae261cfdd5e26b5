"""Print which branches the tests took: `make coverage` runs them, then `python tools/branches.py` counts.

Python's branches are those of coverage.py. The compiled modules are built with the counters of gcc
(`RELVEC_COUNTED=1`) and imported from that build by `counted/sitecustomize.py`. Of the C code that Cython writes, only
the branches count that stand in the source: each side of a condition and of its parts, and each loop. The rest asks
Python whether a call has failed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "counted"
NATIVE = "relvec/solvers/_native/"
PLACE = re.compile(rf'\s*/\* "(?:{NATIVE})?(\w+\.\w+|[^"]*)":(\d+)')
WORDS = re.compile(r"\b(if|elif|while|for|and|or)\b")
BRANCH = re.compile(r"\s*(for \(|if \(!?(unlikely\()?!?__pyx_[tv]_\w+(->\w+)*\)?\) (\{|break;))")
Place = tuple[str, int, int]  # file, line, and which branch of the line


def source_lines(path: Path) -> Iterator[tuple[str, int] | None]:
    """For each line of a C file the file and the line it was made from, where it is a branch of the source."""
    if path.suffix == ".h":
        yield from ((path.name, number) for number, _ in enumerate(path.read_text().splitlines(), 1))
        return
    sources = {p.name: p.read_text().splitlines() for p in (ROOT / "src" / NATIVE).glob("*.p[yx][xd]")}
    place: tuple[str, int] | None = None
    for line in path.read_text().splitlines():
        if found := PLACE.match(line):
            place = (found[1], int(found[2]))
        wanted = place is not None and place[0] in sources and WORDS.search(sources[place[0]][place[1] - 1])
        yield place if wanted and BRANCH.match(line) else None


def native_branches() -> dict[Place, int]:
    """How often each branch of the compiled modules was taken."""
    taken: dict[Place, int] = defaultdict(int)
    for data in sorted(BUILD.rglob("*.gcda")):
        told = subprocess.run(["gcov", "-b", "-j", "-t", data], cwd=ROOT, capture_output=True, check=True).stdout
        for file in json.loads(told)["files"]:
            if "_native" not in file["file"]:
                continue
            made_from, count = list(source_lines(ROOT / file["file"])), defaultdict[tuple[str, str, int], int](int)
            for line in file["lines"]:
                if (place := made_from[line["line_number"] - 1]) is not None:
                    for branch in line["branches"]:  # functions that are compiled twice come twice
                        key = (line.get("function_name", ""), *place)
                        taken[(*place, count[key])] += max(branch["count"], 0)
                        count[key] += 1
    return dict(taken)


def python_branches() -> tuple[int, int]:
    """The branches of Python that were taken, and all there are."""
    import coverage

    measured, report = coverage.Coverage(), ROOT / "build" / "coverage.json"
    measured.load()
    measured.json_report(outfile=str(report))
    totals = json.loads(report.read_text())["totals"]
    return totals["covered_branches"], totals["num_branches"]


def main() -> None:
    """Print branches of the compiled modules that were not taken, and how many of all were."""
    native, counts = native_branches() if shutil.which("gcov") else {}, {"Python": python_branches()}
    missing: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (file, line, branch), times in native.items():
        if not times:
            missing[file, line].append(branch)
    for (file, line), branches in sorted(missing.items()):
        text = (ROOT / "src" / NATIVE / file).read_text().splitlines()[line - 1].strip()
        print(f"{file}:{line}: branch {', '.join(map(str, branches))} of {text}")
    counts["native"] = sum(times > 0 for times in native.values()), len(native)
    counts["together"] = tuple(map(sum, zip(*counts.values(), strict=True)))  # type: ignore[assignment]
    for name, (taken, all_) in counts.items():
        share = f"{taken / all_:.2%}" if all_ else "none: they need gcc and gcov"
        print(f"branches, {name}: {taken} of {all_} ({share})")


if __name__ == "__main__":
    main()
