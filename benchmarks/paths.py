"""Seconds from a table to a decision: fit, predict, evaluate, report and export on six tables, messy and long ones too.

Run `python benchmarks/paths.py`. Each command is a process of its own, start of Python included. A fit of 1,000 rows
should take less than 10 s on two cores, and no command more than 60 s; of the 40,000 rows fit and report have 300 s.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_friedman1

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import messy

COMMANDS = ("fit", "predict", "evaluate", "report", "export")
MANY = 40_000  # rows of the longest table


def friedman(n: int) -> bytes:
    """Return rows of Friedman's first function of ten inputs, of which five matter, as CSV."""
    X, y = make_friedman1(n, noise=1.0, random_state=0)
    lines = [",".join(f"{value:.5g}" for value in (*row, target)) for row, target in zip(X, y, strict=True)]
    return "\n".join([",".join([*(f"x{i}" for i in range(X.shape[1])), "y"]), *lines, ""]).encode()


def make_tables() -> dict[str, tuple[str, bytes]]:
    """Return the target and the file of every table."""
    rng = np.random.default_rng(0)
    return {
        "diabetes": ("progression", messy.plain(load_diabetes(), "progression", 442, rng)),
        "cancer": ("benign", messy.plain(load_breast_cancer(), "benign", 569, rng)),
        "wine": ("cultivar", messy.plain(load_wine(), "cultivar", 178, rng)),
        "houses, messy": ("Price", messy.houses(220)),
        "cars, messy": ("Preis", messy.cars(400)),
        f"friedman, {MANY:,} rows": ("y", friedman(MANY)),
    }


def time_command(command: str, target: str, folder: str) -> tuple[float, float]:
    """Return wall and CPU seconds of a command on t.csv in the folder."""
    words = {"fit": ["t.csv", "--target", target, "-o", "m.relvec"],
             "report": ["m.relvec", "t.csv"], "evaluate": ["m.relvec", "t.csv"],
             "predict": ["m.relvec", "t.csv", "-o", "p.csv"],
             "export": ["m.relvec", "--onnx"]}[command]  # fmt: skip
    places = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(str(Path(place).resolve()) for place in places)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "relvec", command, *words], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a row for each table: wall seconds, and CPU seconds in brackets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", help="only tables whose names begin with one of these")
    arguments = parser.parse_args()
    print(f"| table | {' | '.join(COMMANDS)} |\n|---|{'---|' * len(COMMANDS)}")
    for name, (target, data) in make_tables().items():
        if arguments.tables and not name.startswith(tuple(arguments.tables)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "t.csv").write_bytes(data)
            cells = [f"{wall:.1f} ({cpu:.1f})" for wall, cpu in
                     (time_command(command, target, folder) for command in COMMANDS)]  # fmt: skip
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
