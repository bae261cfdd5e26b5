"""The best model of every size."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.model_selection import KFold

import oracle
from relvec import RVC, RVR, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor, relevance_path
from relvec.app.cli import main
from relvec.plot import RelevancePathDisplay, new_figure
from relvec.solvers import Sequential

RNG = np.random.default_rng(0)
X = RNG.uniform(-8.0, 8.0, (90, 1))
Y = np.sinc(X[:, 0] / np.pi) + 0.1 * RNG.standard_normal(90)
WIDE = RNG.standard_normal((80, 200))
TARGET = WIDE[:, [3, 50, 120]] @ [3.0, -2.0, 1.0] + 0.5 * RNG.standard_normal(80) + 2.0


def reestimated(model, keep, X=X, Y=Y):
    """Evidence of some functions of a model, precisions and noise at their maximum, by the dense formulas."""
    Phi, start = model.basis_(X)[:, keep], np.log(np.append(model.alpha_[keep], 1.0 / model.noise_variance_))

    def minus(theta):
        value, beta = np.exp(np.clip(theta, -30.0, 30.0)), np.exp(np.clip(theta[-1], -30.0, 30.0))
        return -oracle.log_evidence(Phi, Y, value[:-1], beta)

    return -minimize(minus, start, method="L-BFGS-B").fun


@pytest.mark.parametrize("estimator", [None, RVR(), RVR(width=2.0)], ids=["no", "default", "width"])
def test_evidence_is_never_below_that_of_the_plain_fit_cut_down(estimator):
    path = relevance_path(X, Y, estimator, n_folds=0)
    plain = (estimator or RVR()).fit(X, Y)
    functions = np.array([name != "bias" for name in plain.atoms_])
    assert len(path.sizes) == functions.sum() and np.all(np.diff(path.log_evidence) >= 0.0)
    assert path.log_evidence[-1] >= plain.log_marginal_likelihood_ - 1e-6
    norms = np.linalg.norm(plain.basis_(X), axis=0)
    for rank in (np.abs(plain.weights_) * norms, norms**2 / plain.alpha_, plain.gamma_):
        order = [i for i in np.argsort(-rank) if functions[i]]
        for k in range(1, len(order)):
            keep = [*order[:k], *np.flatnonzero(~functions)]
            assert path.log_evidence[k - 1] >= reestimated(plain, keep) - 1e-3


def test_sizes_functions_and_densities():
    path = relevance_path(WIDE, TARGET, SparseBayesianRegressor(), max_functions=5, n_folds=4)
    assert [len(names) <= k for names, k in zip(path.functions, path.sizes, strict=True)] == [True] * 5
    assert path.functions[0] == ["x3"] and set(path.functions[2]) == {"x3", "x50", "x120"}
    assert path.log_density[2] > path.log_density[0] + 0.3 and np.isfinite(path.log_density).all()
    assert path.best is path.models[int(np.argmax(path.log_density))]
    assert str(path).splitlines()[1].split()[-1] == "x3"
    display = RelevancePathDisplay.from_path(path, ax=new_figure().subplots())
    assert display.density_ax_ is not None
    np.testing.assert_allclose(display.ax_.lines[0].get_ydata(), path.log_evidence)


def test_a_sparse_matrix_has_the_path_of_its_rows():
    dense = relevance_path(WIDE, TARGET, SparseBayesianRegressor(), max_functions=3, n_folds=0)
    found = relevance_path(sparse.csr_array(WIDE), TARGET, SparseBayesianRegressor(), max_functions=3, n_folds=0)
    assert found.functions == dense.functions
    np.testing.assert_allclose(found.log_evidence, dense.log_evidence)


@pytest.mark.parametrize("k", [1, 3, 100])
def test_a_model_of_at_most_k_functions(k):
    model = RVR(width=2.0, max_functions=k).fit(X, Y)
    assert sum(name != "bias" for name in model.atoms_) <= k
    assert model.certificate_ <= 1e-4 and model.status_ == "converged"
    plain = RVR(width=2.0).fit(X, Y)
    assert model.log_marginal_likelihood_ <= plain.log_marginal_likelihood_ + 0.5
    if k == 100:
        assert model.log_marginal_likelihood_ >= plain.log_marginal_likelihood_ - 1e-6


def test_classes():
    y = WIDE[:, [3, 50]] @ [2.0, -2.0] + 0.5 * RNG.standard_normal(80) > 0.0
    path = relevance_path(
        WIDE[:, :60], y, SparseBayesianClassifier(solver=Sequential(price=0.0)), max_functions=4, n_folds=3
    )
    assert set(path.functions[1]) == {"x3", "x50"} and np.all(np.diff(path.log_evidence) >= 0.0)
    assert path.log_density[1] > path.log_density[0] + 0.05
    plain = SparseBayesianClassifier(solver=Sequential(price=0.0)).fit(WIDE[:, :60], y)
    for k in (1, 3):  # never below the plain fit cut down, the precisions estimated again
        own = np.argsort(-np.abs(plain.coef_ / np.where(plain.selected_, plain.coef_std_, 1.0)))[:k]
        cut = SparseBayesianClassifier(solver=Sequential(price=0.0)).fit(WIDE[:, own], y)
        assert path.log_evidence[k - 1] >= cut.log_marginal_likelihood_ - 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("model", [RVC(), RVC(width=3.0)], ids=["default", "width"])
def test_several_classes_with_kernels(model):
    t = np.digitize(X[:, 0] + RNG.standard_normal(90), [-3.0, 3.0])
    path = relevance_path(X, t, model, n_folds=2)
    assert np.all(np.diff(path.log_evidence) >= 0.0) and all(
        len(names) <= k for names, k in zip(path.functions, path.sizes, strict=True)
    )


def test_learned_widths_are_those_of_the_plain_fit():
    x = np.linspace(-3.0, 3.0, 40)[:, None]
    t = np.sin(2.0 * x[:, 0]) + 0.1 * np.cos(9.0 * x[:, 0])
    plain = RVR(width="learn").fit(x, t)
    path = relevance_path(x, t, RVR(width="learn"), max_functions=3, n_folds=0)
    assert {float(model.width_) for model in path.models} == {float(plain.width_)}


def test_what_has_no_path_is_refused():
    with pytest.raises(ValueError, match="relevance path"):
        relevance_path(X, Y, RVR(likelihood="poisson"))
    with pytest.raises(ValueError, match="one target"):
        relevance_path(X, np.column_stack([Y, Y]))
    with pytest.raises(ValueError, match="max_functions"):
        RVR(max_functions=0).fit(X, Y)
    with pytest.raises(ValueError, match="relevance path"):
        relevance_path(X, Y, GPRegressor())
    with pytest.raises(ValueError, match="max_functions needs the sequential solver"):
        RVC(max_functions=2, solver="mackay").fit(X, Y > 0.0)


def test_the_command_line_bounds_the_number_of_functions(tmp_path, capsys):
    table = tmp_path / "wide.csv"
    rows = [",".join(f"{v:.6g}" for v in [*row[[3, 50, 7]], t]) for row, t in zip(WIDE, TARGET, strict=True)]
    table.write_text("\n".join(["a,b,c,y", *rows]))
    out = str(tmp_path / "m.relvec")
    assert main(["fit", str(table), "--target", "y", "-o", out, "--functions", "2", "--holdout", "0"]) == 0
    from relvec import load

    model = load(out)[-1]
    assert model.max_functions == 2 and sum(name != "bias" for name in model.atoms_) <= 2
    capsys.readouterr()


def test_processes_of_as_many_vectors_stand_beside_a_path():
    path = relevance_path(X, Y, RVR(width=3.0), max_functions=5, n_folds=2, beside_process=True)
    assert path.process_sizes.tolist() == [2, 5]
    densities = [
        GPRegressor(max_vectors=5).fit(X[train], Y[train]).log_predictive_density(X[test], Y[test])
        for train, test in KFold(2, shuffle=True, random_state=0).split(Y)
    ]
    assert path.process_log_density[1] == pytest.approx(np.mean(np.concatenate(densities)))
    display = RelevancePathDisplay.from_path(path, ax=new_figure().subplots())
    assert [len(line.get_xdata()) for line in display.density_ax_.get_lines()] == [5, 2, 1]
    with pytest.raises(ValueError, match="n_folds=2 or more"):
        relevance_path(X, Y, n_folds=0, beside_process=True)
