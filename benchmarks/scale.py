"""Large data on one machine: time, peak memory and error of single fits, each in its own process with all cores.

    python benchmarks/scale.py                                  # all of it: about half an hour on two quiet cores
    python benchmarks/scale.py --parts sinc --sizes 10000,100000
    python benchmarks/scale.py --parts classes memory table

Parts:

- sinc: TF03's two-dimensional sinc (x uniform in [-10, 10]^2, noise 0.1, width 2.5), every row a candidate; the slope
  is that of log time against log N. Writes scale.png.
- classes: Ripley's mixture (T01 4.2), width 0.5, every row a candidate.
- memory: the sinc, twelve features, a kernel given as a function, and classes under memory limits: what the fit took
  besides its data.
- defaults: GPRegressor() and GPClassifier() under 30 MB, on rows of KIN40K in memory (needs RELVEC_DATA) and on 100,000
  rows of 12 features, for regression from disk: what the fit took besides its data, or the limit it asks for (Linux).
- disk: the sinc from a memory map on disk.
- table: RVR() on 12 features, 5 of them of use (Friedman #1): learned widths.
- parquet: the same table, a million rows in a Parquet file, by the command `relvec fit --model gp`. The peak is that of
  the command.
- kin40k: KIN40K, 36,000 rows against 4,000 (needs RELVEC_DATA): GPRegressor() as it comes and with at most 4,096
  vectors, beside sparse processes of the literature (plain PyTorch) and boosted trees; --device says where relvec and
  the sparse processes work, --peer-seconds how long the latter learn.
- growth: KIN40K subsampled, or repeated with noise, from 2,000 to 200,000 rows at the same number of vectors, for
  several splits into training and test rows (--draws); means over the splits with their standard errors at the end.
- peers: fastrvm beside relvec at N = 10,000, regression and classes (needs fastrvm).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

PARTS = ("sinc", "classes", "memory", "defaults", "disk", "table", "parquet", "kin40k", "growth", "peers")
KIN40K_METHODS = ("relvec", "relvec4096", "sgpr300", "sgpr1000", "svgp1000", "trees")
GROWTH = (2_000, 6_000, 20_000, 60_000, 200_000)
GROWTH_VECTORS = 500
DEFAULTS = (1_000, 5_000, 20_000, 100_000)
SIZES = (10_000, 31_623, 100_000, 316_228, 1_000_000)
LIMITS = (
    ("gaussian", 100_000, 1e8), ("gaussian", 100_000, 3e8), ("gaussian", 100_000, 1e9), ("gaussian", 20_000, 1e8),
    ("features", 20_000, 2e8), ("function", 10_000, 1e8), ("function", 10_000, 3e8), ("classes", 50_000, 3e8),
    ("classes", 50_000, 1e9),
)  # fmt: skip


def sinc(n: int, rng: np.random.Generator) -> tuple:
    """TF03 5.1: rows, targets, test rows and the function there."""
    X, X_test = rng.uniform(-10, 10, (n, 2)), rng.uniform(-10, 10, (5000, 2))
    f, f_test = (np.sinc(np.linalg.norm(Z, axis=1) / np.pi) for Z in (X, X_test))
    return X, f + 0.1 * rng.standard_normal(n), X_test, f_test


def ripley(n: int, rng: np.random.Generator) -> tuple:
    """T01 4.2: rows, labels, test rows and labels."""
    centres = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])

    def drawn(m: int) -> tuple:
        y = rng.integers(0, 2, m)
        return centres[y, rng.integers(0, 2, m)] + np.sqrt(0.03) * rng.standard_normal((m, 2)), y

    return *drawn(n), *drawn(20_000)


def friedman(n: int, rng: np.random.Generator) -> tuple:
    """Friedman #1 with seven idle features: rows, targets, test rows and the function there."""
    X, X_test = rng.uniform(size=(n, 12)), rng.uniform(size=(5000, 12))
    f, f_test = (
        10 * np.sin(np.pi * Z[:, 0] * Z[:, 1]) + 20 * (Z[:, 2] - 0.5) ** 2 + 10 * Z[:, 3] + 5 * Z[:, 4]
        for Z in (X, X_test)
    )
    return X, f + rng.standard_normal(n), X_test, f_test


def kin40k(n: int, seed: int = 0) -> tuple:
    """Standardised KIN40K: the customary 10,000 rows for training, or n drawn at random; the others for the test."""
    data = np.load(Path(os.environ["RELVEC_DATA"]) / "kin40k.npz", allow_pickle=False)
    X, y = (np.concatenate([data[f"{name}_train"], data[f"{name}_test"]]) for name in "Xy")
    order = np.arange(len(X)) if n == len(data["X_train"]) else np.random.default_rng(seed).permutation(len(X))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = (y - y[order[:n]].mean()) / y[order[:n]].std()
    return X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]]


def repeated_kin40k(n: int, seed: int) -> tuple:
    """N of 36,000 rows of KIN40K, or those again and again with a little noise in inputs and targets."""
    (X, y, X_test, y_test), rng = kin40k(36_000, seed), np.random.default_rng(seed)
    some = np.arange(n) % len(X)
    again = (np.arange(n) >= len(X))[:, None]
    X = X[some] + 0.02 * again * rng.standard_normal((n, X.shape[1]))
    return X, y[some] + 0.02 * again[:, 0] * rng.standard_normal(n), X_test, y_test


def robot_arm(who: str, device: str | None, seconds: float) -> dict:
    """One method on KIN40K, 36,000 rows against 4,000: NLL and error of the standardised target."""
    X, y, X_test, y_test = kin40k(36_000)
    steps: int | str = ""
    if device is not None:  # the first use of a device takes seconds
        import torch

        torch.linalg.cholesky(torch.eye(64, dtype=torch.float64, device=device))
    began, cpu = time.perf_counter(), time.process_time()
    if who.startswith("relvec"):
        from relvec import GPRegressor

        model = GPRegressor(max_vectors=int(who[len("relvec") :]) if who != "relvec" else None, verbose=False)
        fit(model, *((X, y) if device is None else (torch.as_tensor(part, device=device) for part in (X, y))))
        predict, vectors = (lambda Z: model.predict(Z, return_std=True)), len(model.vectors_)
        steps = model.status_
    elif who == "trees":
        from sklearn.ensemble import HistGradientBoostingRegressor

        # the last tenth of the rows tells the spread of what the trees miss
        cut = len(X) * 9 // 10
        trees = HistGradientBoostingRegressor(max_iter=1000, random_state=0).fit(X[:cut], y[:cut])
        spread = float(np.std(y[cut:] - trees.predict(X[cut:])))
        predict, vectors = (lambda Z: (trees.predict(Z), np.full(len(Z), spread))), 0
    else:
        from harness import sparse_processes

        vectors = int(who[4:])
        found, steps = getattr(sparse_processes, who[:4])(X, y, vectors, seconds, device or "cpu")

        def predict(Z):
            mean, variance = found(Z)
            return mean, np.sqrt(variance)

    row = {"method": who, "seconds": time.perf_counter() - began, "CPU s": time.process_time() - cpu}
    began = time.perf_counter()
    mean, std = predict(X_test)
    z = (y_test - mean) / std
    nll = float(np.mean(0.5 * np.log(2.0 * np.pi * std**2) + 0.5 * z**2))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**row, "NLL": nll, "RMSE": float(np.sqrt(np.mean((mean - y_test) ** 2))),
            "90 % interval covers": float(np.mean(np.abs(z) < 1.6449)), "vectors": vectors,
            "predict s": time.perf_counter() - began, "peak MB": peak, "status or steps": steps}  # fmt: skip


def parquet(n: int) -> dict:
    """Run the command `relvec fit` on a Parquet file."""
    import pyarrow
    from pyarrow.parquet import write_table

    from relvec import load

    X, y, X_test, f_test = friedman(n, np.random.default_rng(0))
    command = "from relvec.app.cli import main; raise SystemExit(main())"
    with tempfile.TemporaryDirectory() as folder:
        columns = {f"x{i + 1}": column for i, column in enumerate(X.T)} | {"y": y}
        write_table(pyarrow.table(columns), f"{folder}/table.parquet", row_group_size=100_000)
        del X, y, columns
        began = time.perf_counter()
        arguments = ["fit", f"{folder}/table.parquet", "--target", "y", "--model", "gp", "-o", f"{folder}/m.relvec"]
        subprocess.run([sys.executable, "-c", command, *arguments], check=True, capture_output=True)
        seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        pipeline = load(f"{folder}/m.relvec")
    model = pipeline[-1]
    mean = pipeline.predict({f"x{i + 1}": column for i, column in enumerate(X_test.T)})
    return {"N": n, "seconds": seconds, "CPU s": used.ru_utime + used.ru_stime,
            "peak MB": used.ru_maxrss / 1024, "RMSE": float(np.sqrt(np.mean((mean - f_test) ** 2))),
            "log evidence": f"{model.log_marginal_likelihood_:.6f}", **told(model)}  # fmt: skip


def defaults(n: int, kind: str, limit: str) -> dict:
    """A default fit under a limit: the peak of the resident memory above what there was, or the least that would do."""
    from relvec import GPClassifier, GPRegressor

    status = Path("/proc/self/status")

    def resident(name: str) -> float:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name)) / 1024

    X, y, *_ = kin40k(36_000) if n <= 36_000 else friedman(n, np.random.default_rng(0))
    X, y = X[:n].copy(), y[:n].copy()
    for make, few in (
        (GPRegressor, y[:60]),
        (GPClassifier, y[:60] > np.median(y[:60])),
    ):  # what is imported at first use
        make().fit(X[:60], few)
    with tempfile.TemporaryDirectory() as folder:
        where = "disk" if kind == "values" and n > 36_000 else "memory"
        if where == "disk":
            np.save(f"{folder}/X.npy", X)
            X = np.load(f"{folder}/X.npy", mmap_mode="r")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = resident("VmRSS")
        model = (GPRegressor if kind == "values" else GPClassifier)(memory_limit=limit, verbose=False)
        try:
            row = fit(model, X, y if kind == "values" else y > np.median(y))
            vectors, ended = len(model.vectors_), model.status_
        except ValueError as refusal:
            row, vectors, ended = {"CPU s": 0.0}, "", str(refusal).rpartition("set it to ")[2]
        taken = resident("VmHWM") - before
    return {"rows with": kind, "N": n, "features": X.shape[1], "in": where, "limit": limit,
            "taken MB": 1.048576 * taken, "CPU s": row["CPU s"], "vectors": vectors,
            "status, or limit asked for": ended}  # fmt: skip


def rmse(model, X, truth) -> float:
    """Root of the mean square of what predictions miss."""
    return float(np.sqrt(np.mean((model.predict(X) - truth) ** 2)))


def fit(model, X, y) -> dict:
    """Fit once: seconds, CPU seconds, and bytes taken besides what was there before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status is printed
        model.fit(X, y)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "CPU s": cpu, "peak MB": peak / 1024, "taken MB": (peak - before) / 1024}


def told(model) -> dict:
    """What a fitted model says of itself."""
    rows = getattr(model, "vectors_", getattr(model, "relevance_", ()))
    return {"vectors": len(rows), "candidates": getattr(model, "n_candidates_", ""),
            "status": getattr(model, "status_", "")}  # fmt: skip


def child(part: str, n: int, extra: str) -> dict:
    """One fit."""
    from relvec import RVC, RVR, GPRegressor

    rng = np.random.default_rng(0)
    warm = sinc(200, rng)
    RVR(width=2.5).fit(*warm[:2])
    if part == "sinc":
        X, y, X_test, f_test = sinc(n, rng)
        model = RVR(width=2.5, verbose=False)
        row = fit(model, X, y)
        rank = model.fitted_.compression.rank if model.fitted_.compression else n
        return {"N": n, **row, "rank": rank, "RMSE": rmse(model, X_test, f_test), **told(model)}
    if part == "classes":
        X, y, X_test, y_test = ripley(n, rng)
        model = RVC(width=0.5, verbose=False)
        row = fit(model, X, y)
        return {"N": n, **row, "error %": 100 * float(np.mean(model.predict(X_test) != y_test)), **told(model)}
    if part == "memory":
        kind, limit = extra.split()
        X, y, *_ = (friedman if kind == "features" else sinc)(n, rng)
        if kind == "classes":
            model, y = RVC(width=2.5, memory_limit=float(limit), verbose=False), y > 0.2
        else:
            kernel = {"gaussian": {"width": 2.5}, "features": {"width": 4.0}, "function": {"kernel": function}}[kind]
            model = RVR(**kernel, memory_limit=float(limit), verbose=False)
        row = fit(model, X, y)
        share = {"limit MB": float(limit) / 1e6, "taken / limit": row["taken MB"] * 1.048576e6 / float(limit)}
        evidence = {"log evidence": f"{model.log_marginal_likelihood_:.3f}", "candidates": model.n_candidates_}
        return {"dictionary": kind, "N": n, **share, **row, **told(model), **evidence}
    if part == "disk":
        with tempfile.TemporaryDirectory() as folder:
            mapped = np.memmap(Path(folder) / "X", "float64", "w+", shape=(n, 2))
            X, y, X_test, f_test = sinc(n, rng)
            mapped[:] = X
            mapped.flush()
            del X, mapped
            model = RVR(width=2.5, memory_limit=float(extra), verbose=False)
            row = fit(model, np.memmap(Path(folder) / "X", "float64", "r", shape=(n, 2)), y)
        return {"N": n, "limit MB": float(extra) / 1e6, **row, "RMSE": rmse(model, X_test, f_test), **told(model)}
    if part == "table":
        X, y, X_test, f_test = friedman(n, rng)
        model = RVR(verbose=False)
        row = fit(model, X, y)
        idle = float(model.feature_relevance_[5:].sum())
        return {"N": n, **row, "RMSE": rmse(model, X_test, f_test), "noise": float(np.sqrt(model.noise_variance_)),
                "idle features": idle, **told(model)}  # fmt: skip
    if part == "parquet":
        return parquet(n)
    if part == "defaults":
        return defaults(n, *extra.split())
    if part == "kin40k":
        who, device, seconds = extra.split()
        return robot_arm(who, None if device == "host" else device, float(seconds))
    if part == "growth":
        X, y, X_test, y_test = repeated_kin40k(n, int(extra))
        model = GPRegressor(max_vectors=GROWTH_VECTORS, verbose=False)
        row = fit(model, X, y)
        density = float(np.mean(model.log_predictive_density(X_test, y_test)))
        kernel = model.process_.components[0].structure.name
        return {"N": n, "split": int(extra), **row, "RMSE": rmse(model, X_test, y_test), "log density": density,
                "kernel": kernel, **told(model)}  # fmt: skip
    kind, who = extra.split()
    X, y, X_test, y_test = (sinc if kind == "regression" else ripley)(n, rng)
    if who == "relvec":
        model = RVR(width=2.5, verbose=False) if kind == "regression" else RVC(width=0.5, verbose=False)
    else:
        import fastrvm

        model = fastrvm.RVR(gamma=2.5**-2) if kind == "regression" else fastrvm.RVC(gamma=0.5**-2)
    row = fit(model, X, y)
    error = (
        rmse(model, X_test, y_test) if kind == "regression" else 100 * float(np.mean(model.predict(X_test) != y_test))
    )
    return {"task": kind, "who": who, "N": n, **row, "error": error, **told(model)}


def function(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A Gaussian kernel nobody knows to be positive definite."""
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / 2.5**2)


def jobs(part: str, sizes: tuple[int, ...], device: str, seconds: float, draws: int) -> list[tuple[int, str]]:
    """The fits of a part: N, and what else the child is told."""
    return {
        "sinc": [(n, "") for n in sizes],
        "classes": [(n, "") for n in (10_000, 31_623, 100_000)],
        "memory": [(n, f"{kind} {limit}") for kind, n, limit in LIMITS],
        "defaults": [(n, f"{kind} 30MB") for kind in ("values", "classes") for n in DEFAULTS],
        "disk": [(1_000_000, "1e8")],
        "table": [(400_000, "")],
        "parquet": [(1_000_000, "")],
        "kin40k": [(36_000, f"{who} {device} {seconds}") for who in KIN40K_METHODS],
        "growth": [(n, str(split)) for n in GROWTH for split in range(draws)],
        "peers": [(10_000, f"{kind} {who}") for kind in ("regression", "classes") for who in ("fastrvm", "relvec")],
    }[part]


def shown(value) -> str:
    """A cell."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def measure(part: str, sizes: tuple[int, ...], limit: float, device: str, seconds: float, draws: int) -> list[dict]:
    """Run the fits of a part and print their table."""
    rows: list[dict] = []
    for n, extra in jobs(part, sizes, device, seconds, draws):
        command = [sys.executable, __file__, "--child", part, str(n), extra]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            print(f"{part} {n} {extra}: not done after {limit:.0f} s", flush=True)
            continue
        if done.returncode:
            print(f"{part} {n} {extra}: {done.stderr.splitlines()[-1] if done.stderr else done.returncode}", flush=True)
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        if not rows:
            print(f"\n{part}\n\n| {' | '.join(row)} |\n|{'---|' * len(row)}", flush=True)
        print(f"| {' | '.join(map(shown, row.values()))} |", flush=True)
        rows.append(row)
    if part in ("sinc", "classes", "growth") and len(rows) > 1:
        for name in ("seconds", "CPU s"):
            slope = np.polyfit(np.log([r["N"] for r in rows]), np.log([r[name] for r in rows]), 1)[0]
            print(f"\nslope of log {name} against log N: {slope:.2f}", flush=True)
    if part == "growth":
        print_means(rows)
    for kind in {r["task"] for r in rows if "task" in r}:
        pair = {r["who"]: r["CPU s"] for r in rows if r["task"] == kind}
        if len(pair) == 2:
            print(f"\n{kind}: CPU time of fastrvm over relvec's: {pair['fastrvm'] / pair['relvec']:.1f}", flush=True)
    return rows


def print_means(rows: list[dict]) -> None:
    """Means over the splits, with standard errors; and how much the density rises from one N to the next."""
    names = ("seconds", "CPU s", "RMSE", "log density")
    sizes = sorted({row["N"] for row in rows})
    of = {n: {row["split"]: row for row in rows if row["N"] == n} for n in sizes}
    print(f"\n| N | {' | '.join(names)} | density gained since the N before |\n|{'---|' * (len(names) + 2)}")
    for before, n in zip((None, *sizes), sizes):
        cells = [shown_mean([row[name] for row in of[n].values()]) for name in names]
        both = set(of[n]) & set(of.get(before, {}))
        gained = shown_mean([of[n][s]["log density"] - of[before][s]["log density"] for s in both]) if both else ""
        print(f"| {n} | {' | '.join(cells)} | {gained} |", flush=True)


def shown_mean(values: list[float]) -> str:
    """A mean with its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.4g} ± {error:.2g}"


def draw(rows: list[dict], path: Path) -> None:
    """Time, memory and error against N."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    N = np.array([r["N"] for r in rows])
    for axis, names in zip(axes, (("seconds", "CPU s"), ("peak MB",), ("RMSE",)), strict=True):
        for name in names:
            axis.loglog(N, [r[name] for r in rows], "o-", label=name)
        axis.set_xlabel("N")
        axis.legend()
    axes[0].loglog(N, rows[0]["seconds"] * N / N[0], ":", color="grey")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run the parts and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--time-limit", type=float, default=1800.0, help="seconds a fit may take")
    parser.add_argument("--draws", type=int, default=5, help="splits of the growing table")
    parser.add_argument("--device", default="host", help="where the fits to KIN40K work, such as cuda")
    parser.add_argument("--peer-seconds", type=float, default=120.0, help="seconds of learning of each sparse process")
    parser.add_argument("--out", type=Path, default=Path("relvec-bench"), help="folder of the picture")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        part, n, extra = args.child
        print(json.dumps(child(part, int(n), extra)))
        return
    for part in args.parts:
        sizes = tuple(map(int, args.sizes.split(",")))
        rows = measure(part, sizes, args.time_limit, args.device, args.peer_seconds, args.draws)
        if part == "sinc" and len(rows) > 1:
            args.out.mkdir(exist_ok=True)
            draw(rows, args.out / "scale.png")


if __name__ == "__main__":
    main()
