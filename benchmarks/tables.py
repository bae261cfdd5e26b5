"""Tables, ten splits each: error, density and coverage of relvec and of what else a user could pick.

    python benchmarks/tables.py --tables FOLDER --names servo,autompg --folds 0,1 --methods relvec,exact_gp
    python benchmarks/tables.py --names friedman1000,friedman10000 --folds 0 --methods relvec,sgpr300
    python benchmarks/tables.py --names made --methods all --jobs 8 --out made.csv
    python benchmarks/tables.py --results made.csv,more.csv

FOLDER holds one `.npz` a table with `X` (n, d), `y` (n,) and `fold` (n,) of 0..9: row i is a test row of split fold[i].
Inputs and target are standardised by the training part. NLL is the mean negative log density of a normal distribution
at the standardised test targets, coverage that of 90 % intervals; seconds are CPU seconds of one thread, of the fit
and of predictions with standard deviations at 10,000 rows (the test rows repeated); KiB is the pickled model. A peer
that is not installed is left out, and says so. "made" stands for all tables of `made_tables.py`; `--results` prints the
table of results that were measured before.
"""

from __future__ import annotations

import argparse
import csv
import os
import pickle
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402 (after the number of threads)
from made_tables import MADE, make_table  # noqa: E402

PREDICTED_ROWS = 10_000
EXACT_ROWS = 2000  # of more, exact processes are left out


def moments_of(model):
    """A function of X that gives mean and variance of new targets."""

    def predict(T):
        mean, std = model.predict(T, return_std=True)
        return mean, std**2

    return predict


def relvec(X, y, **options):
    """`GPRegressor()` as it comes."""
    from relvec import GPRegressor

    model = GPRegressor(**options).fit(X, y)
    return moments_of(model), len(model.vectors_), model


def relvec_constant(X, y):
    """Error bars of one noise level everywhere."""
    return relvec(X, y, noise="constant")


def rvm(X, y):
    """`RVR()` as it comes."""
    from relvec import RVR

    model = RVR().fit(X, y)
    return moments_of(model), int(np.sum(np.asarray(model.atoms_) != "bias")), model


def one_gaussian(X, y):
    """The exact process with one Gaussian part, a width an input, by maximum likelihood: relvec's code, no priors."""
    from relvec.gaussian_process.component import exact_component
    from relvec.gaussian_process.kernel import Part, Structure
    from relvec.gaussian_process.learn import climb, default_prior, log_posterior, starts
    from relvec.gaussian_process.rows import merge_rows, standardise

    if len(y) > EXACT_ROWS:
        raise NotImplementedError(f"more than {EXACT_ROWS:,} rows")
    rows, units = standardise(merge_rows(X, y))
    structure = Structure((Part("gaussian", True),), False, rows.X.shape[1])
    prior = default_prior(structure)
    flat = replace(prior, deviation=np.full_like(prior.mean, 1e6))
    objective = log_posterior(structure, flat, rows)
    modes = [climb(objective, start, flat, 60) for start in starts(structure, prior)]
    model = exact_component(structure, max(modes, key=lambda mode: mode.value).theta, rows)

    def predict(new):
        mean, variance = model.predict(units.inputs(new))
        return units.y_mean + units.y_scale * mean, units.y_scale**2 * variance

    return predict, len(rows), model


def gpytorch_model(X, y, inducing, evaluations):
    """A Gaussian kernel with a width an input and a constant mean, by L-BFGS-B on the evidence or Titsias' bound."""
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-4))
    likelihood.noise = 0.1

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
            kernel.base_kernel.lengthscale, kernel.outputscale = np.sqrt(X.shape[1]), 1.0
            if inducing:
                start = X[torch.randperm(len(X))[:inducing]].clone()
                kernel = gpytorch.kernels.InducingPointKernel(kernel, inducing_points=start, likelihood=likelihood)
            self.covar_module = kernel

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model()
    model.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    climb(model, lambda: -objective(model(X), y), evaluations)
    model.eval()
    likelihood.eval()

    def predict(new):
        with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
            found = likelihood(model(torch.as_tensor(new)))
            return found.mean.numpy(), found.variance.numpy()

    return predict, inducing or len(X), {name: value.numpy() for name, value in model.state_dict().items()}


def climb(model, loss, evaluations):
    import torch
    from scipy.optimize import minimize

    weights = [p for p in model.parameters() if p.requires_grad]

    def place(x):
        for p, piece in zip(weights, np.split(x, np.cumsum([p.numel() for p in weights])[:-1])):
            p.data.copy_(torch.as_tensor(piece).reshape(p.shape))

    def value(x):
        place(x)
        model.zero_grad()
        try:
            out = loss()
            out.backward()
        except Exception:  # a matrix that cannot be factored: not this way
            return 1e5, np.zeros_like(x)
        slope = np.concatenate([p.grad.reshape(-1).numpy() for p in weights])
        return (out.item(), slope) if np.isfinite(slope).all() else (1e5, np.zeros_like(x))

    start = np.concatenate([p.detach().reshape(-1).numpy() for p in weights])
    options = {"maxfun": evaluations, "maxiter": evaluations}
    place(minimize(value, start, jac=True, method="L-BFGS-B", options=options).x)


def exact_gp(X, y):
    if len(y) > EXACT_ROWS:
        raise NotImplementedError(f"more than {EXACT_ROWS:,} rows")
    return gpytorch_model(X, y, None, 120)


def sgpr300(X, y):
    return gpytorch_model(X, y, 300, 200)


def ngboost(X, y):
    from ngboost import NGBRegressor

    model = NGBRegressor(verbose=False, random_state=0).fit(X, y)

    def predict(new):
        found = model.pred_dist(new)
        return found.loc, found.scale**2

    return predict, 0, model


def boosted_trees(X, y):
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    return (lambda new: (model.predict(new), np.full(len(new), np.nan))), 0, model


def svr(X, y):
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVR

    grid = {"C": [1.0, 10.0, 100.0], "gamma": np.array([0.1, 0.3, 1.0, 3.0]) / X.shape[1], "epsilon": [0.05]}
    model = GridSearchCV(SVR(), grid, cv=5).fit(X, y).best_estimator_
    return (lambda new: (model.predict(new), np.full(len(new), np.nan))), len(model.support_), model


def fastrvm(X, y):
    from fastrvm import RVR

    model = RVR().fit(X[:2000], y[:2000])
    return moments_of(model), len(model.relevance_), model


def sklearn_gp(X, y):
    """scikit-learn's exact process: a Gaussian kernel with a width an input, by maximum likelihood from two starts."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    if len(y) > EXACT_ROWS:
        raise NotImplementedError(f"more than {EXACT_ROWS:,} rows")
    widths = RBF(np.full(X.shape[1], np.sqrt(X.shape[1])), (1e-2, 1e4))
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * widths + WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0).fit(X, y)
    return moments_of(model), len(y), model


def bayes_ridge(X, y):
    from sklearn.linear_model import BayesianRidge

    model = BayesianRidge().fit(X, y)
    return moments_of(model), 0, model


METHODS = {f.__name__: f for f in (
    relvec, relvec_constant, rvm, one_gaussian, exact_gp, sgpr300, sklearn_gp, ngboost, boosted_trees, svr, fastrvm,
    bayes_ridge,
)}  # fmt: skip
FIELDS = ("table", "fold", "method", "n_test", "nll", "rmse", "inside", "vectors", "cpu_s", "kib", "predict_s")


def load(folder: Path | None, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y and the fold of each row; "friedmanN" are N training rows of Friedman's first function of eight inputs."""
    if name.startswith("friedman"):
        n, rng = int(name.removeprefix("friedman")), np.random.default_rng(0)
        X = rng.uniform(size=(n + 1000, 8))
        y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
        return X, y + rng.normal(size=len(y)), np.where(np.arange(len(y)) < n, 1, 0)
    if name in MADE:
        return make_table(name)
    if folder is None:
        raise SystemExit("--tables must name the folder of the .npz tables")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        return file["X"].astype(float), file["y"].astype(float), file["fold"]


def split(folder: Path | None, name: str, fold: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows X, y, X_test, y_test of a split, standardised by the training part."""
    X, y, folds = load(folder, name)
    test = folds == fold
    centre, scale = X[~test].mean(0), X[~test].std(0)
    X = (X - centre) / np.where(scale > 0, scale, 1.0)
    y = (y - y[~test].mean()) / y[~test].std()
    return X[~test], y[~test], X[test], y[test]


def measure(folder: Path | None, name: str, fold: int, method: str) -> dict:
    """One split of one table by one method, in the units of the standardised target."""
    X, y, X_test, y_test = split(folder, name, fold)
    begun = time.process_time()
    predict, vectors, model = METHODS[method](X, y)
    seconds = time.process_time() - begun
    mean, variance = predict(X_test)
    many = np.resize(X_test, (PREDICTED_ROWS, X.shape[1]))
    begun = time.process_time()
    predict(many)
    predicting = time.process_time() - begun
    loss = 0.5 * np.log(2 * np.pi * variance) + 0.5 * (y_test - mean) ** 2 / variance
    inside = np.abs(y_test - mean) < 1.6449 * np.sqrt(variance) if np.isfinite(variance).all() else [np.nan]
    return dict(zip(FIELDS, (
        name, fold, method, len(y_test), loss.mean(), np.sqrt(np.mean((y_test - mean) ** 2)),
        np.sum(inside), vectors, seconds, len(pickle.dumps(model)) / 1024, predicting,
    )))  # fmt: skip


def summary(results: list[dict]) -> list[str]:
    """Means over the folds, the coverage over all test rows: one line a table and method."""
    lines = [f"{'table':<15}{'method':<15}{'folds':>5}{'NLL':>9}{'RMSE':>8}{'cover':>7}{'vectors':>8}"
             f"{'CPU s':>8}{'KiB':>9}{'10k s':>7}"]  # fmt: skip
    for table, method in dict.fromkeys((r["table"], r["method"]) for r in results):
        some = [r for r in results if (r["table"], r["method"]) == (table, method)]
        mean = {field: np.mean([r[field] for r in some]) for field in FIELDS[3:]}
        cover = mean["inside"] / mean["n_test"]
        lines.append(
            f"{table:<15}{method:<15}{len(some):>5}{mean['nll']:>9.3f}{mean['rmse']:>8.4f}{cover:>7.3f}"
            f"{mean['vectors']:>8.0f}{mean['cpu_s']:>8.1f}{mean['kib']:>9.0f}{mean['predict_s']:>7.2f}"
        )
    return lines


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=Path, help="folder of .npz tables")
    parser.add_argument("--names", help="tables, as servo,autompg,made,friedman1000; default all in the folder")
    parser.add_argument("--folds", default="0,1,2,3,4,5,6,7,8,9", help="splits; default all ten")
    parser.add_argument("--methods", default="relvec", help=f"of {','.join(METHODS)}, or all; default relvec")
    parser.add_argument("--jobs", type=int, default=1, help="processes, a split of a table each; default 1")
    parser.add_argument("--out", type=Path, help="file for the raw results (CSV)")
    parser.add_argument("--results", help="files of raw results to sum up instead of measuring")
    return parser.parse_args(arguments)


def table_names(options: argparse.Namespace) -> list[str]:
    if options.names is None:
        return sorted(p.stem for p in options.tables.glob("*.npz"))
    names = [list(MADE) if name == "made" else [name] for name in options.names.split(",")]
    return [name for some in names for name in some]


def by_table(measure, options: argparse.Namespace) -> dict[str, list]:
    """What `measure((folder, name, fold))` finds for every split, by table; None is left out."""
    cases = [(options.tables, name, int(fold)) for name in table_names(options) for fold in options.folds.split(",")]
    found: dict[str, list] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for case, result in zip(cases, map(measure, cases) if options.jobs == 1 else pool.map(measure, cases)):
            if result is not None:
                found.setdefault(case[1], []).append(result)
                print(*case[1:], file=sys.stderr, flush=True)
    return found


def attempt(case: tuple[Path | None, str, int, str]) -> dict | str:
    """The results of one case, or why there are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return measure(*case)
    except (ImportError, NotImplementedError) as error:
        return f"({case[3]} left out for {case[1]}: {error})"


def run(options: argparse.Namespace) -> list[dict]:
    """The results of all cases, in the order of the options."""
    methods = list(METHODS) if options.methods == "all" else options.methods.split(",")
    folds = [int(fold) for fold in options.folds.split(",")]
    cases = [(options.tables, name, fold, m) for name in table_names(options) for m in methods for fold in folds]
    results, left_out = [], {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in map(attempt, cases) if options.jobs == 1 else pool.map(attempt, cases):
            if isinstance(found, str):
                left_out[found] = None
                continue
            results.append(found)
            print("{table} {method} {fold}: NLL {nll:.3f}".format(**found), file=sys.stderr, flush=True)
            if options.out:
                write(options.out, results)
    print("\n".join(left_out))
    return results


def write(path: Path, results: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(results)


def read(paths: str) -> list[dict]:
    """Results of several files; a case measured twice counts as measured last."""
    found = {}
    for path in paths.split(","):
        with Path(path).open(newline="") as file:
            for row in csv.DictReader(file):
                case = row["table"], row["method"], row["fold"]
                found[case] = {k: v if k in ("table", "method") else float(v) for k, v in row.items()}
    return [found[case] for case in sorted(found)]


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    print("\n".join(summary(read(options.results) if options.results else run(options))))


if __name__ == "__main__":
    main()
