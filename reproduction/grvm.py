"""GRVM: Bayesian kernel selection, the generalised relevance vector machine (Kropotov, Ptashko, Vetrov, 2005)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.svm import SVC

from relvec import RVC
from relvec.basis import Basis, Bias, Concat, KernelBasis
from relvec.design import DenseDesign
from relvec.hyperparameters import grvm, grvm_widths
from relvec.hyperparameters.targets import LaplaceTarget
from relvec.hyperparameters.widths import WidthProblem
from relvec.inference.likelihoods import Bernoulli
from relvec.kernels import Gaussian
from relvec.plot import LINE, VECTOR, new_figure
from relvec.runtime.clock import Clock
from relvec.runtime.machine import one_thread
from relvec.solvers.laplace.problem import LaplaceProblem
from reproduction._classes import PAPERS, percent_wrong
from reproduction._experiment import Context, Experiment, Outcome, Published, stacked

FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # widths that are cross-validated, in units of sqrt(d)
PENALTIES = (0.1, 1.0, 10.0, 100.0)  # C of the support vector machine
_LOO_FROM = 7  # draws from this one on are judged by exact leave-one-out, those before by ten folds

# Table 1 ------------------------------------------------------------------------------------------------------------


def split(X: np.ndarray, y: np.ndarray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Rows to learn from and to test on: missing cells get the median, inputs mean 0 and variance 1, of the former."""
    order = rng.permutation(len(X))
    a, b = order[:size], order[size:]
    X = np.where(np.isnan(X), np.nanmedian(X[a], axis=0), X)
    deviation = X[a].std(axis=0)
    X = (X - X[a].mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return X[a], y[a], X[b], y[b]


def groups(n: int, exact: bool, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows left out together: each by itself, or ten folds."""
    return list(np.arange(n)[:, None]) if exact else np.array_split(rng.permutation(n), 10)


def left_out(X: np.ndarray, y: np.ndarray, width: float, left: list[np.ndarray]) -> np.ndarray:
    """Log-odds (n,) of every row under the relevance vector machine fitted without its group.

    Each fit starts from the one with all rows, and searches on until no move gains a hundredth of a nat.
    """
    n = len(X)
    Phi = np.column_stack([Gaussian(width=width)(X, X), np.ones(n)])

    def searched(rows: np.ndarray, start: Any) -> tuple[Any, np.ndarray]:
        """Return the model on some rows, whose atoms are numbered as the rows, and its weights (n + 1,)."""
        atoms = np.append(rows, n)
        problem = LaplaceProblem(DenseDesign(np.zeros((1, 0))), y[rows].astype(float), np.ones(len(rows)),
                                 Bernoulli(), np.zeros(0, dtype=np.intp))  # fmt: skip
        target = LaplaceTarget(problem, len(atoms))
        if start is not None:
            kept = np.isin(start[0], atoms)
            start = (np.searchsorted(atoms, start[0][kept]), start[1][kept]) if kept.any() else None
        design = DenseDesign(Phi[np.ix_(rows, atoms)], overwrite=True)
        active, alpha = target.search(design, np.arange(len(atoms)), start, Clock())
        used = np.unique(active)
        own, weights = target.posterior(design.columns(used), (active, alpha)), np.zeros(n + 1)
        weights[atoms[used[own.places]]] = own.mean / design.scale[used[own.places]]
        return (atoms[active], alpha), weights

    odds = np.empty(n)
    with one_thread():
        start, _ = searched(np.arange(n), None)
        for rows in left:
            _, weights = searched(np.setdiff1d(np.arange(n), rows), start)
            odds[rows] = Phi[rows] @ weights
    return odds


def rvm_by_validation(X: np.ndarray, y: np.ndarray, left: list[np.ndarray]) -> RVC:
    """Return the machine at the width of fewest rows wrong when left out; equals are told apart by their log loss."""
    widths = [float(f * np.sqrt(X.shape[1])) for f in FACTORS]
    sign, scores = 2 * y - 1, []
    for width in widths:
        odds = left_out(X, y, width, left)
        scores.append((np.mean((odds > 0) != y), np.mean(np.logaddexp(0.0, -sign * odds))))
    return RVC(width=widths[min(range(len(widths)), key=scores.__getitem__)], solver=PAPERS).fit(X, y)


def svm_left_out(X: np.ndarray, y: np.ndarray, C: float, gamma: float, left: list[np.ndarray]) -> np.ndarray:
    """Which rows (n,) the support vector machine fitted without their group gets wrong.

    Leaving out a row that is no support vector changes nothing, so such rows are not refitted one by one.
    """
    model = SVC(C=C, gamma=gamma).fit(X, y)
    wrong, vectors = model.predict(X) != y, set(model.support_.tolist())
    for rows in left:
        if len(rows) > 1 or int(rows[0]) in vectors:
            keep = np.setdiff1d(np.arange(len(X)), rows)
            wrong[rows] = SVC(C=C, gamma=gamma).fit(X[keep], y[keep]).predict(X[rows]) != y[rows]
    return wrong


def svm_by_validation(X: np.ndarray, y: np.ndarray, left: list[np.ndarray]) -> SVC:
    """Return the support vector machine at the width and C of fewest rows wrong when left out, the widest of equals."""
    choices = [(C, 1.0 / (factor**2 * X.shape[1])) for factor in FACTORS[::-1] for C in PENALTIES]
    C, gamma = min(choices, key=lambda choice: float(svm_left_out(X, y, choice[0], choice[1], left).mean()))
    return SVC(C=C, gamma=gamma).fit(X, y)


def table_draw(X: np.ndarray, y: np.ndarray, size: int, exact: bool, rng: np.random.Generator) -> dict[str, float]:
    """One split of a data set."""
    X, y, X_test, y_test = split(X, y, size, rng)
    left = groups(size, exact, rng)
    me = RVC(width="grvm", solver=PAPERS).fit(X, y)
    models = {
        "RVM LOO": rvm_by_validation(X, y, left),
        "SVM LOO": svm_by_validation(X, y, left),
        "RVM ME": me,
        "GRVM": RVC(width=me.width_, centres="grvm", solver=PAPERS).fit(X, y),
        "GRVM by evidence": RVC(width=me.width_, centres="move", solver=PAPERS).fit(X, y),
        "RVM ME, section 5": RVC(width="grvm-diagonal", solver=PAPERS).fit(X, y),
    }
    values = {f"error, {name}": percent_wrong(model, X_test, y_test) for name, model in models.items()}
    values |= {f"vectors, {name}": float(n_vectors(model)) for name, model in models.items()}
    return values | {"error, the larger class": 100.0 * float(min(np.mean(y_test == c) for c in (0, 1)))}


def n_vectors(model: Any) -> int:
    """Return the number of support vectors, or of kernels."""
    return len(model.support_) if isinstance(model, SVC) else len(model.centres_)


def setting(X: np.ndarray, y: np.ndarray, width: Any = "scale") -> tuple[Basis, WidthProblem]:
    """Return a dictionary of Gaussians and a constant on the rows X, and two classes to learn from."""
    dictionary = Concat((KernelBasis(Gaussian(width=width)), Bias())).bind(X)
    problem = LaplaceProblem(DenseDesign(np.zeros((1, 0))), y.astype(float), np.ones(len(X)), Bernoulli(),
                             np.zeros(0, dtype=np.intp))  # fmt: skip
    target = LaplaceTarget(problem, dictionary.n_atoms)
    return dictionary, WidthProblem.of(dictionary, X, [target], np.ones(1, dtype=bool))


def table_row(name: str, size: int, context: Context) -> Outcome:
    """Every draw of one data set; the last ones by exact leave-one-out."""
    data = context.data(name)
    values = stacked(context.parts({
        f"draw {i}": partial(table_draw, data["X"], data["y"], size, i >= _LOO_FROM, context.rng(i))
        for i in range(context.draws)
    }))  # fmt: skip
    done = len(values["error, RVM ME"])
    loo = max(0, done - _LOO_FROM)
    notes = [f"width and C by ten folds in {done - loo} draws, by exact leave-one-out in {loo}"]
    if name == "hepatitis":
        larger = values["error, the larger class"].mean()
        notes.append(
            f"the published errors of 32% to 36% are worse than to call everyone a survivor, which is wrong in "
            f"{larger:.1f}% of our test rows (20.6% of all patients)"
        )
    return Outcome(values, notes=tuple(notes), explained=split_spread(name, values))


def split_spread(name: str, values: dict[str, np.ndarray]) -> dict[str, str]:
    """Compare the errors of single splits: their range over ours, and our machines beside the SVM on them."""
    errors = dict(zip(_MACHINES, map(float, _TABLE[name][3]), strict=True))
    svm, explained = values["error, SVM LOO"], {}
    for machine in ("RVM LOO", "RVM ME"):
        own = values[f"error, {machine}"]
        beside, left = own - svm, _TABLE[name][1] - _TABLE[name][2]
        explained[f"error, {machine}"] = (
            f"published is one split of {left} test rows; ours range from {own.min():.1f} to {own.max():.1f}, the "
            f"support vector machine's from {svm.min():.1f} to {svm.max():.1f}: beside it on the same splits we are "
            f"{beside.mean():+.1f} ± {beside.std(ddof=1) / np.sqrt(len(beside)):.1f} points, published "
            f"{errors[machine] - errors['SVM LOO']:+.1f}"
        )
    return explained


# Figures ------------------------------------------------------------------------------------------------------------


def figure_1(context: Context) -> Outcome:
    """Three objects, each under its own Gaussian: what a changed weight and a shifted centre do to the likelihood."""
    X, t = np.array([[-2.0], [0.0], [2.0]]), np.array([1.0, 0.0, 1.0])
    values = {}
    for name, sigma in (("narrow", 0.2), ("wide", 1.5)):
        base, weight, shift = (log_likelihood(X, t, sigma, *change) for change in ((0.0, 0.0), (0.2, 0.0), (0.0, 0.6)))
        values[f"log likelihood lost by a fifth of a weight, {name}"] = base - weight
        values[f"log likelihood lost by a shift of 0.6, {name}"] = base - shift
    return Outcome(values, {"stability": partial(stability_figure, X, t)})


def latent(X: np.ndarray, centres: np.ndarray, weights: np.ndarray, sigma: float) -> np.ndarray:
    """Sum of Gaussians of GRVM's sigma."""
    return Gaussian(width=float(np.sqrt(2.0) * sigma))(X, centres) @ weights


def log_likelihood(X: np.ndarray, t: np.ndarray, sigma: float, change: float, shift: float) -> float:
    """Of weights that give every object log-odds of +-4, the second weight or centre changed."""
    sign = 2.0 * t - 1.0
    weights = np.linalg.solve(Gaussian(width=float(np.sqrt(2.0) * sigma))(X, X), 4.0 * sign)
    weights[1] *= 1.0 - change
    moved = X + np.array([[0.0], [shift], [0.0]])
    return float(-np.logaddexp(0.0, -sign * latent(X, moved, weights, sigma)).sum())


def stability_figure(X: np.ndarray, t: np.ndarray) -> Any:
    """Latent functions before and after the changes, narrow and wide."""
    figure = new_figure(9.0, 3.2)
    grid = np.linspace(-4.0, 4.0, 400)[:, None]
    for axes, (name, sigma) in zip(figure.subplots(1, 2, sharey=True), (("narrow", 0.2), ("wide", 1.5)), strict=True):
        sign = 2.0 * t - 1.0
        weights = np.linalg.solve(Gaussian(width=float(np.sqrt(2.0) * sigma))(X, X), 4.0 * sign)
        axes.plot(grid, latent(grid, X, weights, sigma), color=LINE, label="fitted")
        changed, moved = weights * [1.0, 0.8, 1.0], X + np.array([[0.0], [0.6], [0.0]])
        axes.plot(grid, latent(grid, X, changed, sigma), ":", color="0.3", label="a fifth less weight")
        axes.plot(grid, latent(grid, moved, weights, sigma), "--", color=VECTOR, label="centre shifted by 0.6")
        axes.plot(X[:, 0], 4.0 * sign, "o", color="0.2")
        axes.set(title=f"{name}: sigma {sigma}", xlabel="x")
    axes.legend()
    return figure


def at_factor(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, factor: float) -> list[float]:
    """Sigma, the evidences (exact, section 5, weights alone) and the test error at one width."""
    width = float(factor * np.sqrt(X.shape[1]))
    with one_thread():
        placed = grvm_widths.train_at_width(*setting(X, y, width))
        found = [grvm.grvm_evidence(placed).total, grvm.diagonal_evidence(placed).total]
    model = RVC(width=width, solver=replace(PAPERS, restarts=0)).fit(X, y)
    return [width / np.sqrt(2.0), *found, model.log_marginal_likelihood_, percent_wrong(model, X_test, y_test)]


def figure_2(context: Context) -> Outcome:
    """Evidence and test error over sigma, one split of the Pima data."""
    data = context.data("pima")
    X, y, X_test, y_test = split(data["X"], data["y"], 537, context.rng())
    tasks = {f"factor {f}": partial(at_factor, X, y, X_test, y_test, f) for f in FACTORS}
    rows = [part.value for part in context.parts(tasks, all_needed=True)]
    sigma, exact, diagonal, weights, error = np.array(rows).T
    values = {
        "sigma of most evidence": sigma[exact.argmax()],
        "sigma of most evidence, section 5": sigma[diagonal.argmax()],
        "sigma of most evidence, weights alone": sigma[weights.argmax()],
        "sigma of least test error": sigma[error.argmin()],
        "least test error": error.min(),
        "test error at most evidence": error[exact.argmax()],
    }
    return Outcome(values, {"evidence": partial(evidence_figure, sigma, exact, diagonal, error)})


def evidence_figure(sigma: np.ndarray, exact: np.ndarray, diagonal: np.ndarray, error: np.ndarray) -> Any:
    """Both evidences and the test error over sigma."""
    figure = new_figure(6.0, 4.0)
    left = figure.subplots()
    left.plot(sigma, exact, "o-", color=LINE, label="log evidence")
    left.plot(sigma, diagonal, "o:", color=LINE, label="log evidence, section 5")
    left.set(xlabel="sigma", xscale="log", ylabel="log evidence")
    right = left.twinx()
    right.plot(sigma, error, "s--", color=VECTOR, label="test error")
    right.set_ylabel("test error, %")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def mixture(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of two Gaussians each: (n, 2), (n,)."""
    y = np.arange(n) % 2
    centres = np.array([[[-2.5, -1.0], [2.0, 1.5]], [[-0.5, 2.0], [1.5, -2.0]]])
    return centres[y, rng.integers(0, 2, n)] + 0.92 * rng.normal(size=(n, 2)), y


def mixture_models(X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return the three machines of figures 3 to 5 at sigma = 1."""
    width = float(np.sqrt(2.0))
    return {
        "SVM": SVC(C=1.0, gamma=0.5).fit(X, y),
        "RVM": RVC(width=width, solver=PAPERS).fit(X, y),
        "GRVM": RVC(width=width, centres="grvm", solver=PAPERS).fit(X, y),
    }


def mixture_draw(rng: np.random.Generator) -> dict[str, float]:
    """One draw of 200 objects."""
    X, y = mixture(200, rng)
    X_test, y_test = mixture(5000, rng)
    models = mixture_models(X, y)
    values = {f"vectors, {name}": float(n_vectors(model)) for name, model in models.items()}
    return values | {f"error, {name}": percent_wrong(model, X_test, y_test) for name, model in models.items()}


def figures_3_to_5(context: Context) -> Outcome:
    """Every draw; the pictures show the first."""
    values = context.repeat(mixture_draw)
    return Outcome(values, {"boundaries": partial(mixture_figure, context)})


def mixture_figure(context: Context) -> Any:
    """Return the machines on the first draw: boundaries, and vectors as circles."""
    X, y = mixture(200, context.rng())
    low, high = X.min(axis=0) - 0.2, X.max(axis=0) + 0.2
    a, b = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
    grid = np.column_stack([a.ravel(), b.ravel()])
    figure = new_figure(13.0, 4.4)
    models = mixture_models(X, y)
    for axes, (name, model) in zip(figure.subplots(1, 3, sharey=True), models.items(), strict=True):
        axes.contour(a, b, model.decision_function(grid).reshape(a.shape), levels=[0.0], colors="0.3")
        for label, marker, colour in zip((0, 1), "x.", (VECTOR, LINE), strict=True):
            axes.plot(*X[y == label].T, marker, color=colour, ms=5, alpha=0.8)
        vectors = model.support_vectors_ if isinstance(model, SVC) else model.centres_
        axes.plot(*vectors.T, "o", ms=11, mfc="none", mec="0.1", mew=1.4)
        axes.set_title(f"{name}: {len(vectors)} vectors")
    return figure


# data set: rows, those to learn from, errors and vectors of RVM LOO, SVM LOO and RVM ME
_TABLE = {
    "australian": ("Australian", 690, 482, ("14.9", "11.54", "10.58"), ("37", "188", "19")),
    "bupa": ("Bupa", 345, 241, ("25", "26.92", "21.15"), ("6", "179", "7")),
    "credit_approval": ("Credit", 690, 482, ("16.35", "15.38", "15.87"), ("57", "217", "36")),
    "hepatitis": ("Hepatitis", 155, 108, ("36.17", "31.91", "31.91"), ("34", "102", "11")),
    "pima": ("Pima", 768, 537, ("22.08", "21.65", "21.21"), ("29", "309", "13")),
}
_MACHINES = ("RVM LOO", "SVM LOO", "RVM ME")
_ASSUMED = (
    "the published figures are one split, of 70% of the rows as the table has it, not the 67% of the text: errors of "
    "47 to 231 test rows have a binomial standard error of 3 to 7 points",
    "missing cells get the median of the training rows; inputs are standardised; categories are numbers, as in the "
    "files",
    "widths 0.5 to 4 sqrt(d) and C from 0.1 to 100 by leave-one-out errors, equals told apart by log loss (RVM) or the "
    "wider kernel (SVM): the paper prints neither grid",
    "RVM ME by the exact Hessian over weights and centres, centres uniform over the training box; 'section 5' is the "
    "published diagonal one; GRVM has its centres moved at the width of RVM ME, by section 4 or by evidence",
)

EXPERIMENTS = (
    Experiment(
        name="GRVM-figure-1",
        title="A narrow Gaussian does not mind its weight but its place",
        source="GRVM figure 1",
        published={},
        run=figure_1,
        assumptions=("three objects at -2, 0 and 2 with log-odds of 4: the paper prints no numbers",),
    ),
    Experiment(
        name="GRVM-figure-2",
        title="Evidence and test error over the width, Pima",
        source="GRVM figure 2",
        published={},
        run=figure_2,
        data=("pima",),
        assumptions=("the paper does not say which data set it shows",),
    ),
    Experiment(
        name="GRVM-figures-3-5",
        title="200 objects of two mixtures of Gaussians, sigma 1",
        source="GRVM section 6, figures 3 to 5",
        published={
            "vectors, SVM": Published("65", "figure 3"),
            "vectors, RVM": Published("30", "section 6, near to 30"),
            "vectors, GRVM": Published("5", "figure 5"),
        },
        run=figures_3_to_5,
        quick=2,
        full=20,
        assumptions=(
            "the mixtures are not printed: class 0 around (-2.5, -1) and (2, 1.5), class 1 around (-0.5, 2) and "
            "(1.5, -2), standard deviation 0.92, so that the support vector machine keeps about as many as published",
        ),
    ),
    *(
        Experiment(
            name=f"GRVM-table-1-{title.lower()}",
            title=f"{title}, {size} training rows",
            source="GRVM table 1",
            published={
                **{
                    f"error, {m}": Published(v, "table 1", cases=rows - size)
                    for m, v in zip(_MACHINES, errors, strict=True)
                },
                **{f"vectors, {m}": Published(v, "table 1") for m, v in zip(_MACHINES, vectors, strict=True)},
            },
            run=partial(table_row, name, size),
            quick=1,
            full=10,
            seconds=60.0,
            data=(name,),
            assumptions=_ASSUMED,
        )
        for name, (title, rows, size, errors, vectors) in _TABLE.items()
    ),
)
