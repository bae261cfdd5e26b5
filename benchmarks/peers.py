"""Fit time, memory, sparsity, evidence and error of relvec and of what else a user could pick, in one run.

    python benchmarks/peers.py --sizes 100,1000 --repeats 3 --out relvec-bench

See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

# This process imports no numpy: see harness/runner.py.
from harness.competitors import PEERS
from harness.problems import PROBLEMS


def names(known):
    def parse(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        wrong = [name for name in found if name not in known]
        if wrong or not found:
            raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {text!r}")
        return found

    return parse


def sizes(text: str) -> list[int]:
    found = [int(size) for size in text.split(",")]
    if min(found) < 2:
        raise argparse.ArgumentTypeError(f"a size is at least 2, got {text!r}")
    return found


def positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = 0.85 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    add = parser.add_argument
    add("--problems", type=names(PROBLEMS), default=list(PROBLEMS), help=f"of {','.join(PROBLEMS)}; default all")
    add("--peers", type=names(PEERS), default=list(PEERS), help=f"of {','.join(PEERS)}; default all")
    add("--sizes", type=sizes, help="training rows, as 100,1000; default: the problem's own list")
    add("--repeats", type=positive, default=5, help="fits of which the median is taken (default 5)")
    add("--repeat-below", type=float, default=2.0, help="a fit of more seconds is not repeated (default 2)")
    add("--time-limit", type=float, default=300.0, help="seconds a fit may take; larger ones are skipped (default 300)")
    add("--memory-limit", type=float, default=most, help=f"GiB a process may allocate, 0 for any (default {most:.1f})")
    add("--no-caps", action="store_true", help="also run peers at sizes they are spared by default")
    add("--threads", type=positive, default=cores, help=f"threads of a process (default {cores}, all cores)")
    add("--test-rows", type=positive, default=10000, help="rows predicted (default 10000)")
    add("--seed", type=int, default=0, help="seed of the data (default 0)")
    add("--out", type=Path, help="folder for peers.csv, fits.csv, peers.md and the plots")
    return parser.parse_args(arguments)


def heading(options, load_before: str) -> list[str]:
    packages = dict.fromkeys(["relvec", "numpy", "scipy", "scikit-learn", *(PEERS[p].package for p in options.peers)])
    return [
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores; "
        f"{options.threads} threads for every process",
        ", ".join(f"{name} {version(name)}" for name in packages),
        f"load average {load_before} at the start, {load()} at the end; "
        f"up to {options.repeats} repeats, limit {options.time_limit:g} s a fit, seed {options.seed}",
        "fit and CPU: seconds of the fit alone; log evidence: recomputed for all alike; "
        f"predict: {options.test_rows} rows",
    ]


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def progress(fit: dict) -> None:
    done = f"{fit['fit_s']:.4g} s" if fit["status"] == "ok" else fit["status"]
    print(f"{fit['problem']} N={fit['n']} {fit['peer']}: {done} {fit['note']}".rstrip(), file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    from harness import report
    from harness.runner import run_all

    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    before, text, rows = load(), "", []
    for fits in run_all(Path(__file__).resolve(), options, progress):
        rows = report.summarise(fits)
        text = report.markdown(rows, heading(options, before))
        if options.out:  # after every size: an interrupted run keeps what it has
            report.write_csv(rows, fits, options.out)
            (options.out / "peers.md").write_text(text)
    print(text)
    if options.out and not report.plot(rows, options.out):
        print("no plot: matplotlib is not installed, or no fit succeeded", file=sys.stderr)
    return 0 if any(row["status"] == "ok" for row in rows) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        from harness.measure import child

        child(json.loads(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
