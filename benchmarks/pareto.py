"""What k functions buy: density and error of the sparse model at k = 10 to 200, beside sparse processes and fastrvm.

    python benchmarks/pareto.py --tables FOLDER --folds 0,1 --out pareto.csv
    python benchmarks/pareto.py --tables FOLDER --names servo,autompg --folds 0 --methods sparse,process
    python benchmarks/pareto.py --results pareto.csv --picture pareto.png

Tables and splits are those of `tables.py`. "sparse" and "process" come with at most k functions or vectors, and as
they come (k = 0 in the file); "sgpr" is Titsias' bound with k moved inputs (GPyTorch), "fastrvm" and "bayes_ridge" come
once. NLL is the mean negative log density of a normal distribution at the standardised test targets. Seconds are CPU
seconds of one thread; the kernel of "sparse" is learned once for all k, and counts in each. A peer that is not
installed is left out.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from tables import bayes_ridge, fastrvm, gpytorch_model, split, table_names

SIZES = (10, 20, 50, 100, 200)
MAX_SHARE = 1.0 / 3.0  # of the rows: no k is larger
FIELDS = ("table", "fold", "method", "k", "kept", "n", "n_test", "nll", "rmse", "inside", "cpu_s")
METHODS = ("sparse", "process", "sgpr", "fastrvm", "bayes_ridge")
SGPR_EVALUATIONS = 120


def sparse(X, y, k, earlier):
    from relvec.sparse import fit_sparse

    learned, scale = earlier or (None, None)
    model = fit_sparse(X, y, learned=learned, target=scale, max_functions=k or None)
    return (lambda new: model.predictor.moments(new, True, True)), model.n_functions, (model.learned, model.scale)


def process(X, y, k, earlier):
    from relvec import GPRegressor

    model = GPRegressor(max_vectors=k or None).fit(X, y)

    def predict(new):
        mean, deviation = model.predict(new, return_std=True)
        return mean, deviation**2

    return predict, len(model.vectors_), None


def sgpr(X, y, k, earlier):
    return (*gpytorch_model(X, y, k, SGPR_EVALUATIONS)[:2], None)


def once(method):
    def fit(X, y, k, earlier):
        return (*method(X, y)[:2], None)

    return fit


FITS = {"sparse": sparse, "process": process, "sgpr": sgpr, "fastrvm": once(fastrvm), "bayes_ridge": once(bayes_ridge)}


def sizes_of(method: str, n: int) -> list[int]:
    """The k to try, 0 for the model as it comes."""
    if method in ("fastrvm", "bayes_ridge"):
        return [0]
    return ([] if method == "sgpr" else [0]) + [k for k in SIZES if k <= MAX_SHARE * n]


def measure(folder: Path | None, name: str, fold: int, method: str) -> list[dict]:
    """One split of one table by one method, at each k."""
    X, y, X_test, y_test = split(folder, name, fold)
    found, earlier, learning = [], None, 0.0
    for k in sizes_of(method, len(y)):
        begun = time.process_time()
        predict, kept, learned = FITS[method](X, y, k, earlier)
        seconds = time.process_time() - begun
        if method == "sparse" and earlier is None:
            earlier, learning = learned, _seconds_to_learn(X, y)
            seconds -= learning
        mean, variance = predict(X_test)
        loss = 0.5 * np.log(2 * np.pi * variance) + 0.5 * (y_test - mean) ** 2 / variance
        found.append(dict(zip(FIELDS, (
            name, fold, method, k, kept, len(y), len(y_test), loss.mean(), np.sqrt(np.mean((y_test - mean) ** 2)),
            np.sum(np.abs(y_test - mean) < 1.6449 * np.sqrt(variance)), seconds + learning,
        ))))  # fmt: skip
        print("{table} {fold} {method} k={k}: {kept} kept, NLL {nll:.3f}, {cpu_s:.1f} s".format(**found[-1]),
              file=sys.stderr, flush=True)  # fmt: skip
    return found


def _seconds_to_learn(X, y) -> float:
    from relvec.gaussian_process.rows import merge_rows
    from relvec.runtime.clock import Clock
    from relvec.sparse.dictionary import learn_widths

    begun = time.process_time()
    learn_widths(merge_rows(X, y), Clock())
    return time.process_time() - begun


def summary(results: list[dict]) -> list[str]:
    """Means over the splits of each table, then over tables; how often sparse is ahead at equal k."""
    cell: dict[tuple, dict] = {}
    for table, method, k in dict.fromkeys((r["table"], r["method"], int(r["k"])) for r in results):
        some = [r for r in results if (r["table"], r["method"], int(r["k"])) == (table, method, k)]
        cell[table, method, k] = {f: float(np.mean([float(r[f]) for r in some])) for f in FIELDS[4:]}
    heads = ("k", 5), ("kept", 7), ("rows", 7), ("NLL", 9), ("RMSE", 8), ("cover", 7), ("CPU s", 8)
    lines = [f"{'table':<15}{'method':<12}" + "".join(f"{head:>{width}}" for head, width in heads)]
    for (table, method, k), m in cell.items():
        size = k or "-"
        lines.append(f"{table:<15}{method:<12}{size:>5}{m['kept']:>7.0f}{m['n']:>7.0f}{m['nll']:>9.3f}{m['rmse']:>8.4f}"
                     f"{m['inside'] / m['n_test']:>7.3f}{m['cpu_s']:>8.1f}")  # fmt: skip
    return lines + _totals(cell)


def _totals(cell: dict[tuple, dict]) -> list[str]:
    tables = list(dict.fromkeys(table for table, _, _ in cell))
    lines = [""]
    for method in METHODS:
        if all((table, method, 0) in cell for table in tables):
            own = [cell[table, method, 0] for table in tables]
            lines.append(f"{method} as it comes: mean NLL {np.mean([m['nll'] for m in own]):.3f}, median kept "
                         f"{np.median([m['kept'] for m in own]):.0f}, largest share of the rows "
                         f"{max(m['kept'] / m['n'] for m in own):.2f}")  # fmt: skip
    for other in ("process", "sgpr"):
        pairs = [(t, k) for t, m, k in cell if m == other and k and (t, "sparse", k) in cell]
        if pairs:
            better = np.array([cell[t, other, k]["nll"] - cell[t, "sparse", k]["nll"] for t, k in pairs])
            lines.append(f"sparse ahead of {other} at equal k: {np.sum(better > 0)} of {len(pairs)} pairs (table, k), "
                         f"by {np.median(better):.2f} nats at the median")  # fmt: skip
    return lines


def draw(results: list[dict], path: Path) -> None:
    """NLL against the number kept, a panel a table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tables = list(dict.fromkeys(r["table"] for r in results))
    columns = min(5, len(tables))
    rows = -(-len(tables) // columns)
    size = 2.9 * columns, 2.4 * rows
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    styles = {"sparse": ("C3", "o", 2.0), "process": ("C0", "s", 1.2), "sgpr": ("C2", "^", 1.2),
              "fastrvm": ("C1", "D", 1.2), "bayes_ridge": ("0.5", "_", 1.2)}  # fmt: skip
    for ax, table in zip(axes.flat, tables):
        ax.set_title(table, fontsize="small")
        for method, (color, marker, width) in styles.items():
            mine = [r for r in results if r["table"] == table and r["method"] == method]
            means = []
            for k in sorted({int(r["k"]) for r in mine}):
                own = [r for r in mine if int(r["k"]) == k]
                means.append([np.mean([float(r[f]) for r in own]) for f in ("kept", "nll", "k")])
            line = np.array([m for m in means if m[2]])
            if len(line):
                ax.plot(line[:, 0], line[:, 1], color=color, marker=marker, ms=3, lw=width, label=method)
            for kept, nll, _ in (m for m in means if not m[2]):
                if method == "bayes_ridge" or (method == "process" and kept > 250):
                    ax.axhline(nll, color=color, lw=0.8, ls=":")
                else:
                    ax.plot(max(kept, 1), nll, color=color, marker=marker, ms=6, mfc="none")
        ax.set_xscale("log")
        shown = [float(r["nll"]) for r in results if r["table"] == table and r["method"] in ("sparse", "process")]
        margin = 0.15 * (max(shown) - min(shown)) + 0.02
        ax.set_ylim(min(shown) - margin, min(max(shown), 2.5) + margin)
        ax.tick_params(labelsize="x-small")
    for ax in axes.flat[len(tables) :]:
        ax.axis("off")
    figure.supxlabel("functions or vectors kept (open: as it comes; dotted: all rows)", fontsize="small")
    figure.supylabel("negative log density of test targets", fontsize="small")
    handles = {line.get_label(): line for ax in axes.flat for line in ax.get_lines() if line.get_label()[0] != "_"}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run(options: argparse.Namespace) -> list[dict]:
    """The results of all cases, written as they come."""
    results, left_out = [], {}
    for name in table_names(options):
        for method in options.methods.split(","):
            for fold in options.folds.split(","):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        results += measure(options.tables, name, int(fold), method)
                except ImportError as error:
                    left_out[f"({method} left out: {error})"] = None
                if options.out:
                    with options.out.open("w", newline="") as file:
                        writer = csv.DictWriter(file, FIELDS)
                        writer.writeheader()
                        writer.writerows(results)
    print("\n".join(left_out))
    return results


def read(paths: str) -> list[dict]:
    """Results of several files; a case measured twice counts as measured last."""
    found = {}
    for path in paths.split(","):
        with Path(path).open(newline="") as file:
            found |= {(r["table"], r["method"], r["k"], r["fold"]): r for r in csv.DictReader(file)}
    return list(found.values())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=Path, help="folder of .npz tables")
    parser.add_argument("--names", help="tables, as servo,autompg; default all in the folder")
    parser.add_argument("--folds", default="0,1", help="splits; default 0,1")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"of {','.join(METHODS)}; default all")
    parser.add_argument("--out", type=Path, help="file for the raw results (CSV)")
    parser.add_argument("--results", help="files of raw results to sum up instead of measuring")
    parser.add_argument("--picture", type=Path, help="file for the picture (PNG)")
    options = parser.parse_args(arguments)
    results = read(options.results) if options.results else run(options)
    print("\n".join(summary(results)))
    if options.picture:
        draw(results, options.picture)


if __name__ == "__main__":
    main()
