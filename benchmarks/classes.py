"""Log loss, error and calibration of classifiers as they come, beside tuned ones, over public tables.

    RELVEC_DATA=FOLDER python benchmarks/classes.py --sets banana,german --splits 3 --methods relvec,svc

Tables are FOLDER/<name>.npz (see DATASETS.md there), those of scikit-learn, regression tables of FOLDER/tables whose
target is cut at its quantiles (`--sets cut`), and drawn ones (`--sets drawn`). Published splits where the file has
them, ten draws, or ten stratified folds, seed 0. Missing values are the median of the training rows, inputs
standardised, for all alike. Prints a Markdown table: means over the splits of log loss, error, expected calibration
error (ten bins of the probability of the class predicted), vectors (of `RVC()` all functions but the constant) and
CPU seconds of the fit; then how often each method is the best. `--cache FILE` keeps what was measured, a line a split
and method, and does not measure it again: leave out the lines of a method that changed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # CPU seconds are compared

import numpy as np  # noqa: E402
from sklearn import datasets  # noqa: E402
from sklearn.model_selection import GridSearchCV, StratifiedKFold  # noqa: E402

FILES = ("banana", "breast-cancer", "german", "image", "titanic", "waveform", "pima", "pima_ripley", "ripley",
         "australian", "bupa", "credit_approval", "hepatitis", "usps")  # fmt: skip
MADE = ("digits", "iris", "wine", "tumours", "rings", "eight")
CUT = {"autompg": 3, "autos": 2, "breastcancer": 2, "concreteslump": 2, "forest": 2, "machine": 3, "pendulum": 2,
       "servo": 2, "skillcraft": 2, "solar": 2, "stock": 4}  # fmt: skip
DRAWN = ("rare", "many", "noisy", "idle", "categories", "wide", "plane", "tiny", "copies", "squares", "rates", "moons")
SETS = (*FILES, *MADE, *CUT, *DRAWN)
DRAWN_TESTS = 1000  # rows that a drawn table is tested on
GPC_MOST = 1000  # training rows

Predict = Callable[[np.ndarray], np.ndarray]


def load(name: str) -> tuple[np.ndarray, np.ndarray, list | None]:
    """X (n, d), labels (n,) from 0, and published splits or None."""
    if name in FILES:
        with np.load(Path(os.environ["RELVEC_DATA"]) / f"{name}.npz") as file:
            found = {key: file[key] for key in file.files}
        if "X_train" in found:
            n = len(found["X_train"])
            X = np.concatenate([found["X_train"], found["X_test"]]).astype(float)
            y = np.concatenate([found["y_train"], found["y_test"]])
            splits = [(np.arange(n), np.arange(n, len(X)))]
        else:
            X, y = found["X"], found["y"]
            splits = list(zip(found["train_splits"], found["test_splits"])) if "train_splits" in found else None
        return X, np.unique(y, return_inverse=True)[1], splits
    if name in CUT:
        with np.load(Path(os.environ["RELVEC_DATA"]) / "tables" / f"{name}.npz") as file:
            X, y, fold = file["X"], file["y"], file["fold"]
        edges = np.quantile(y, np.arange(1, CUT[name]) / CUT[name])
        label = np.unique((y[:, None] > edges).sum(axis=1), return_inverse=True)[1]
        return X, label, [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(10)]
    if name in DRAWN:
        parts = [draw(name, seed) for seed in range(10)]
        n = len(parts[0][0]) - DRAWN_TESTS
        splits = [(k * (n + DRAWN_TESTS) + np.arange(n), k * (n + DRAWN_TESTS) + n + np.arange(DRAWN_TESTS))
                  for k in range(10)]  # fmt: skip
        return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts]), splits
    if name == "rings":
        X, y = datasets.make_circles(400, noise=0.15, factor=0.5, random_state=0)
        X = np.c_[X, np.random.default_rng(0).normal(size=(400, 6))]
    elif name == "eight":
        X, y = datasets.make_classification(
            261, 10, n_informative=6, n_classes=8, n_clusters_per_class=1, random_state=0
        )
    else:
        known = {"tumours": "breast_cancer"}
        X, y = getattr(datasets, f"load_{known.get(name, name)}")(return_X_y=True)
    return X, y, None


def draw(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training rows, then DRAWN_TESTS rows of the same kind: X (n, d), labels (n,)."""
    rng, made = np.random.default_rng(seed), datasets.make_classification
    n = DRAWN_TESTS + {"many": 450, "wide": 100, "tiny": 30, "plane": 200}.get(name, 300)
    if name == "rare":  # one row in twenty
        return made(n, 8, n_informative=4, weights=[0.95], random_state=seed, class_sep=1.5)
    if name == "many":
        return made(n, 12, n_informative=8, n_classes=15, n_clusters_per_class=1, random_state=seed, class_sep=1.5)
    if name == "noisy":  # labels of two rows in five are drawn anew
        return made(n, 6, n_informative=4, flip_y=0.4, random_state=seed, class_sep=1.5)
    if name == "idle":
        return made(n, 30, n_informative=3, n_redundant=0, random_state=seed)
    if name == "wide":
        return made(n, 90, n_informative=10, random_state=seed)
    if name == "moons":
        return datasets.make_moons(n, noise=0.25, random_state=seed)
    X = rng.normal(size=(n, 5))
    if name in ("plane", "tiny"):
        return X, (rng.logistic(size=n) < X @ [1.5, -1.0, 0.5, 0.0, 0.0]).astype(int)
    if name == "squares":  # a board of four by four
        X = rng.uniform(size=(n, 2))
        return X, (np.floor(4 * X).sum(axis=1) % 2).astype(int)
    if name == "rates":  # skewed inputs of very different spread, a product decides
        X = rng.lognormal(sigma=1.0, size=(n, 4)) * [1.0, 100.0, 1e-3, 1e4]
        return X, (np.log(X[:, 0] * X[:, 1] / 100.0) + rng.logistic(size=n) > 0).astype(int)
    levels = rng.integers(0, 5, size=(n, 4)) if name == "categories" else rng.integers(0, 2, size=(n, 5))
    effect = np.random.default_rng(1).normal(size=(4, 5)) * 1.5
    if name == "categories":  # one-hot; two of the four features act together
        odds = effect[0, levels[:, 0]] + effect[1, (levels[:, 1] + levels[:, 2]) % 5]
        return np.eye(5)[levels].reshape(n, -1), (rng.logistic(size=n) < odds).astype(int)
    odds = 2.0 * (levels[:, 0] ^ levels[:, 1]) - 1.0 + 0.7 * levels[:, 2]  # "copies": 32 distinct rows
    return levels.astype(float), (rng.logistic(size=n) < odds).astype(int)


def splits_of(name: str, most: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """(X, y, X_test, y_test) of the first splits."""
    X, y, splits = load(name)
    if splits is None:
        splits = list(StratifiedKFold(10, shuffle=True, random_state=0).split(X, y))
    for train, test in splits[:most]:
        Z = np.where(np.isnan(X), np.nanmedian(X[train], axis=0), X)
        scale = Z[train].std(axis=0)
        Z = (Z - Z[train].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        yield Z[train], y[train], Z[test], y[test]


def relvec(X: np.ndarray, y: np.ndarray) -> tuple[Predict, int]:
    """`GPClassifier()` as it comes."""
    from relvec import GPClassifier

    model = GPClassifier(verbose=False).fit(X, y)
    return model.predict_proba, len(model.vectors_)


def rvm(X: np.ndarray, y: np.ndarray) -> tuple[Predict, int]:
    """`RVC()` as it comes."""
    from relvec import RVC

    model = RVC(verbose=False).fit(X, y)
    return model.predict_proba, sum(name != "bias" for name in model.atoms_)


def logistic(X: np.ndarray, y: np.ndarray) -> tuple[Predict, int]:
    """Logistic regression, its penalty by five folds."""
    from sklearn.linear_model import LogisticRegressionCV

    return LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=1000).fit(X, y).predict_proba, 0


def svc(X: np.ndarray, y: np.ndarray) -> tuple[Predict, int]:
    """A support vector machine: 20 settings by five folds, then sigmoid calibration by five folds."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    d = X.shape[1]
    grid = {"C": [0.1, 1, 10, 100], "gamma": [0.03 / d, 0.1 / d, 0.3 / d, 1 / d, 3 / d]}
    best = GridSearchCV(SVC(), grid, cv=5).fit(X, y)
    model = CalibratedClassifierCV(SVC(**best.best_params_), method="sigmoid", cv=5).fit(X, y)
    return model.predict_proba, int(best.best_estimator_.n_support_.sum())


def gpc(X: np.ndarray, y: np.ndarray) -> tuple[Predict, int] | None:
    """scikit-learn's Gaussian process with one width, up to GPC_MOST rows."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    if len(X) > GPC_MOST:
        return None
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(X.shape[1]))
    return GaussianProcessClassifier(kernel, random_state=0).fit(X, y).predict_proba, len(X)


def fastrvm(X: np.ndarray, y: np.ndarray) -> tuple[Predict, int] | None:
    """The package of that name, as it comes, where it is installed."""
    try:
        from fastrvm import RVC
    except ImportError:
        return None
    model = RVC().fit(X, y)
    return model.predict_proba, len(getattr(model, "relevance_", []))


METHODS = {f.__name__: f for f in (relvec, rvm, logistic, svc, gpc, fastrvm)}
OURS = ("relvec", "rvm")


def calibration_error(P: np.ndarray, y: np.ndarray) -> float:
    """Mean distance of the probability of the class predicted from how often it is right, over ten equal bins."""
    sure, right = P.max(axis=1), P.argmax(axis=1) == y
    place = np.minimum((10 * sure).astype(int), 9)
    gap = np.abs(np.bincount(place, sure, 10) - np.bincount(place, right, 10))
    return float(gap.sum() / len(y))


def measure(task: tuple[str, int, str]) -> tuple[tuple[str, int, str], tuple[list[float], np.ndarray] | None]:
    """Log loss, error, calibration error, vectors, CPU seconds of one method on one split, and its wrong rows (n,)."""
    name, split, method = task
    X, y, Z, z = list(splits_of(name, split + 1))[split]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.process_time()
        made = METHODS[method](X, y)
        spent = time.process_time() - begin
        if made is None:
            return task, None
        P = np.concatenate([made[0](part) for part in np.array_split(Z, max(1, len(Z) // 1000))])
    loss = -np.mean(np.log(np.clip(P[np.arange(len(z)), z], 1e-12, 1.0)))
    wrong = P.argmax(axis=1) != z
    return task, ([loss, wrong.mean(), calibration_error(P, z), made[1], spent], wrong)


def measure_all(tasks: list[tuple[str, int, str]], jobs: int, cache: Path | None) -> dict:
    """What `measure` says of every task, from the cache where it has it."""
    results = {}
    if cache is not None and cache.exists():
        for line in cache.read_text().splitlines():
            task, values, wrong = json.loads(line)
            results[tuple(task)] = None if values is None else (values, np.array(wrong, dtype=bool))
    with ProcessPoolExecutor(jobs) as pool:
        for task, found in pool.map(measure, [task for task in tasks if task not in results]):
            results[task] = found
            if cache is not None:
                values, wrong = (None, None) if found is None else (found[0], found[1].astype(int).tolist())
                with cache.open("a") as file:
                    print(json.dumps([task, values, wrong]), file=file)
    return {task: results[task] for task in tasks}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", default="files,made", help=f"of files,made,cut,drawn,{','.join(SETS)}")
    parser.add_argument("--splits", type=int, default=10, help="at most so many a set (default 10)")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"of {','.join(METHODS)}; default all")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--cache", type=Path, help="file of results, read first and added to")
    options = parser.parse_args()
    named = {"files": FILES[:-1], "made": MADE, "cut": tuple(CUT), "drawn": DRAWN}
    sets = [name for word in options.sets.split(",") for name in named.get(word, (word,))]
    methods = options.methods.split(",")
    tasks = []
    for name in sets:
        stored = load(name)[2]
        count = min(options.splits, 10 if stored is None else len(stored))
        tasks += [(name, i, method) for i in range(count) for method in methods]
    results = measure_all(tasks, options.jobs, options.cache)
    table, wrong = {}, {}
    for name in sets:
        for method in methods:
            found = [v for (s, _, m), v in results.items() if s == name and m == method and v is not None]
            if found:
                table[name, method] = np.mean([values for values, _ in found], axis=0)
                wrong[name, method] = np.concatenate([rows for _, rows in found])
    show(table, sets, [m for m in methods if any((s, m) in table for s in sets)])
    for own in [m for m in OURS if m in methods]:
        compare(table, wrong, sets, own, [m for m in methods if m not in OURS])


def show(table: dict, sets: list[str], methods: list[str]) -> None:
    """A row a set and method, and means over the sets."""
    print("| set | method | log loss | error | calibration error | vectors | CPU s |\n|---|---|---|---|---|---|---|")
    for name in sets:
        for method in methods:
            if (name, method) in table:
                print_row(name, method, table[name, method])
    for method in methods:
        rows = np.array([table[s, method] for s in sets if (s, method) in table])
        print_row(f"mean of {len(rows)}", method, rows.mean(axis=0))


def print_row(name: str, method: str, values: np.ndarray) -> None:
    """A row of the table."""
    loss, error, ece, vectors, spent = values
    print(f"| {name} | {method} | {loss:.3f} | {error:.3f} | {ece:.3f} | {vectors:.0f} | {spent:.2f} |")


def compare(table: dict, wrong: dict, sets: list[str], own: str, peers: list[str]) -> None:
    """How far a method is behind the best of the others, and which differences in error are more than chance.

    Differences are paired by row; twice the standard error of their mean counts as chance.
    """
    losses, errors, times = {}, {}, {}
    for s in sets:
        there = [m for m in peers if (s, m) in table]
        if not there or (s, own) not in table:
            continue
        losses[s] = table[s, own][0] - min(table[s, m][0] for m in there)
        best = min(there, key=lambda m: table[s, m][1])
        apart = wrong[s, own].astype(float) - wrong[s, best]
        errors[s] = best, apart.mean(), apart.std() / np.sqrt(len(apart))
        if "svc" in there:
            times[s] = table[s, own][4] / table[s, "svc"][4]
    if not losses:
        return
    L, worst = np.array(list(losses.values())), max(losses, key=lambda s: losses[s])
    print(f"\n{own}: log loss no worse than the best peer's on {(L <= 0).sum()} of {len(L)} sets, within .005 on "
          f"{(L <= 0.005).sum()}, within .01 on {(L <= 0.01).sum()}; furthest behind on {worst}, by "
          f"{losses[worst]:.3f} nats")  # fmt: skip
    behind = {s: e for s, e in errors.items() if e[1] > 0.0}
    beyond = [f"{s} by {gap:.3f} +- {se:.3f} ({best})" for s, (best, gap, se) in behind.items() if gap > 2 * se]
    mean, fair = np.mean([gap for _, gap, _ in errors.values()]), len(errors) - len(behind)
    print(f"error no worse than the least of the peers' on {fair}, {mean:.4f} above it on average; worse by chance on "
          f"{len(behind) - len(beyond)}, by more on {len(beyond)}: {', '.join(beyond) or 'none'}")  # fmt: skip
    if times:
        slow = max(times, key=lambda s: times[s])
        print(f"CPU time over that of the support vector machine: {np.mean(list(times.values())):.1f} on average, "
              f"{times[slow]:.1f} at most, on {slow}")  # fmt: skip


if __name__ == "__main__":
    main()
