"""Widths learned by evidence: gradients against differences of the dense oracle, and what a learned model must be."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectFromModel

import oracle
from problems import options_of
from relvec import RVC, RVR, GPRegressor
from relvec.basis import Bias, Concat, KernelBasis, Polynomial
from relvec.design import DenseDesign
from relvec.hyperparameters import shared_precision as tied
from relvec.hyperparameters import widths as tune
from relvec.hyperparameters.interleaving import Interleaved, evidence_and_gradient, interleave
from relvec.hyperparameters.shared_precision import Columns
from relvec.hyperparameters.targets import GaussianTarget, LaplaceTarget
from relvec.hyperparameters.widths import WidthProblem, tune_widths
from relvec.inference.laplace import laplace
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.kernels import Cauchy, Gaussian, Laplace, LinearSpline, LogDistance, Matern
from relvec.kernels import Polynomial as PolynomialKernel
from relvec.runtime.clock import Clock
from relvec.solvers import Sequential
from relvec.solvers.laplace.problem import LaplaceProblem

KERNELS = {
    "gaussian": Gaussian(width=(1.3, 0.8)),
    "one width": Gaussian(width=1.1),
    "cauchy": Cauchy(width=(1.3, 0.8)),
    "laplace": Laplace(width=(1.3, 0.8)),
    "matern": Matern(nu=2.5, width=(1.3, 0.8)),
    "log_distance": LogDistance(width=1.2),
    "polynomial": PolynomialKernel(degree=2, offset=0.7, width=(1.3, 0.8)),
    "sum": Gaussian(width=1.3) + PolynomialKernel(degree=2, offset=0.7, width=0.9),
    "product": Gaussian(width=(1.3, 0.8)) * Cauchy(width=2.0),
}


def differences(function, theta, step=1e-5):
    slope = np.empty(len(theta))
    for i in range(len(theta)):
        above, below = theta.copy(), theta.copy()
        above[i] += step
        below[i] -= step
        slope[i] = (function(above) - function(below)) / (2 * step)
    return slope


def bound(kernel, X, *others):
    return Concat((KernelBasis(kernel), *others, Bias())).bind(X)


def gaussian_setting(X, y, weights=None, **options):
    from relvec.estimators.gaussian import gaussian_problem
    from relvec.estimators.sources.base import target_units

    weights = np.ones(len(y)) if weights is None else weights
    units, variances = target_units(y[:, None], weights)
    problem = gaussian_problem(options_of(RVR(**options)), units[0], variances[0], weights.sum(), 0)
    return lambda basis: WidthProblem.of(
        basis, X, [GaussianTarget(y / units[0], weights, problem)], np.ones(len(basis.theta), bool)
    )


def laplace_setting(basis, X, target, likelihood):
    weights = np.ones(len(X))
    problem = LaplaceProblem(DenseDesign(basis(X)), target, weights, likelihood, np.arange(basis.n_atoms))
    return WidthProblem.of(basis, X, [LaplaceTarget(problem, basis.n_atoms)], np.ones(len(basis.theta), bool))


def friedman(seed, n=240):
    return make_friedman1(n, noise=1.0, random_state=seed)


class TestGradients:
    @pytest.mark.parametrize("name", KERNELS)
    def test_evidence_over_parameters(self, name):
        """At fixed precisions of the user's own columns the derivative is that of the dense evidence."""
        rng = np.random.default_rng(3)
        X = rng.normal(size=(25, 2))
        t, weights = rng.normal(size=25), rng.uniform(0.5, 2.0, 25)
        basis = bound(KERNELS[name], X, Polynomial(degree=2))
        setting = gaussian_setting(X, t, weights)(basis)
        target = setting.targets[0]
        from relvec.solvers.loop import Start

        active = np.array([3, 11, 20, basis.n_atoms - 3, basis.n_atoms - 1])
        start = Start(active, np.array([0.5, 2.0, 0.1, 1.0, 0.3]), 3.0)
        _, slope = evidence_and_gradient(basis, setting, [start], settle=False)

        def dense(theta):
            Phi = basis.with_theta(theta)(X)[:, active] * target.root[:, None]
            Phi /= np.linalg.norm(Phi, axis=0)
            return oracle.log_evidence(Phi, target.root * target.target, start.alpha, start.beta)

        assert_allclose(slope, differences(dense, basis.theta), rtol=1e-6, atol=1e-7)

    @pytest.mark.parametrize("name", ["gaussian", "cauchy", "sum"])
    def test_with_precisions_that_follow(self, name):
        """With precisions and noise at their optimum the partial derivative is the total one."""
        rng = np.random.default_rng(4)
        X = rng.normal(size=(30, 2))
        y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * rng.normal(size=30)
        basis = bound(KERNELS[name], X)
        setting = gaussian_setting(X, y)(basis)
        target = setting.targets[0]
        from relvec.basis import content_ranks
        from relvec.design import DenseDesign

        design = DenseDesign(basis(X))
        start = target.search(design, content_ranks(basis, design.scale), None, Clock())

        def settled(theta):
            return evidence_and_gradient(basis.with_theta(theta), setting, [start], settle=True)[0][0].value

        _, slope = evidence_and_gradient(basis, setting, [start], settle=True)
        assert_allclose(slope, differences(settled, basis.theta, 1e-4), rtol=2e-2, atol=2e-2)

    @pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), Categorical(3)], ids=["two", "counts", "three"])
    def test_laplace_evidence_over_columns(self, likelihood):
        """dL/dPhi with the moving mode, against differences of the refitted Laplace evidence."""
        rng = np.random.default_rng(5)
        n, k = 12, 4
        Phi, weights = rng.normal(size=(n, k)), rng.uniform(0.5, 2.0, n)
        alpha = np.array([0.3, 1.0, 2.0, 0.7])
        outputs = np.array([2, 0, 1, 0]) if likelihood.n_outputs == 3 else np.zeros(k, dtype=int)
        if likelihood.n_outputs == 3:
            t = np.eye(3)[rng.integers(3, size=n)]
        else:
            t = (
                rng.integers(2, size=n).astype(float)
                if isinstance(likelihood, Bernoulli)
                else rng.poisson(2.0, n) * 1.0
            )

        def value(flat):
            return laplace(flat.reshape(n, k), t, weights, alpha, likelihood, None, outputs).log_evidence

        slope = laplace(Phi, t, weights, alpha, likelihood, None, outputs).design_gradient(likelihood, weights)
        assert_allclose(slope.ravel(), differences(value, Phi.ravel()), rtol=1e-6, atol=1e-8)


class TestLearning:
    def test_distractors_are_suppressed(self):
        X, y = friedman(0, 150)
        assert GPRegressor().fit(X, y).feature_relevance_[:5].sum() > 0.9
        model = RVR(kernel="gaussian").fit(X, y)
        assert model.feature_relevance_[:5].sum() > 0.9
        assert_allclose(model.feature_relevance_.sum(), 1.0)
        squares = model.feature_importances_**2
        assert_allclose(squares / squares.sum(), model.feature_relevance_)
        test, truth = make_friedman1(1000, noise=0.0, random_state=99)
        fixed = RVR(width="scale").fit(X, y)
        assert np.mean((model.predict(test) - truth) ** 2) < 0.4 * np.mean((fixed.predict(test) - truth) ** 2)
        assert len(model.relevance_) < 0.5 * len(fixed.relevance_)
        assert model.status_ == "converged"
        assert SelectFromModel(model, prefit=True, threshold=1e-2).transform(X).shape[1] < 10

    def test_the_model_is_that_of_its_kernel(self):
        """The learned widths, given as numbers, are the model's: same predictions from the same basis."""
        rng = np.random.default_rng(1)
        X = rng.uniform(-3, 3, size=(60, 2))
        y = np.sin(X[:, 0]) + 0.05 * rng.normal(size=60)
        model = RVR(width="learn-per-feature").fit(X, y)
        assert model.width_.shape == (2,) and model.width_[0] < model.width_[1]
        assert model.kernel_ == Gaussian(width=tuple(model.width_))
        Phi = model.kernel_(X, model.relevance_vectors_)
        mean = Phi @ model.weights_[: len(model.relevance_)] + model.intercept_
        assert_allclose(model.predict(X), mean, rtol=1e-9)

    def test_evidence_is_not_below_the_start(self):
        rng = np.random.default_rng(2)
        X = rng.uniform(-10, 10, size=(80, 1))
        y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=80)
        learned = RVR(width="learn").fit(X, y)
        at_scale = RVR(width="scale").fit(X, y)
        assert learned.log_marginal_likelihood_ > at_scale.log_marginal_likelihood_
        assert 1.0 < learned.width_ < 8.0
        assert 0.0 < learned.tuning_.agreement <= 1.0
        best = max(learned.tuning_.trials, key=lambda trial: trial.log_evidence)
        assert learned.width_ == pytest.approx(np.exp(best.theta[0]))

    @pytest.mark.slow
    def test_four_of_many_features(self):
        """Features without a linear effect are found among many that do not matter."""
        rng = np.random.default_rng(7)
        X = rng.uniform(-1, 1, size=(300, 16))
        f = np.sin(2.5 * X[:, 3]) * X[:, 9] * 1.5 + np.cos(2 * X[:, 12]) * X[:, 9] + 0.6 * X[:, 14] * X[:, 3]
        model = RVR(width="learn-per-feature").fit(X[:250], (f + 0.1 * rng.normal(size=300))[:250])
        assert set(np.argsort(-model.feature_relevance_)[:3]) == {3, 9, 12}
        assert np.mean((model.predict(X[250:]) - f[250:]) ** 2) < 0.15 * f.var()

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(3))
    def test_four_of_thirty_two_features(self, seed):
        """Two that act alone and two that act by their product only: a climb from one start loses the product."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1400, 32))
        f = 1.5 * np.tanh(2.0 * X[:, 5]) + np.sin(2.5 * X[:, 11]) + X[:, 17] * X[:, 23]
        model = RVR(width="learn-per-feature").fit(X[:400], f[:400] + 0.2 * rng.normal(size=400))
        assert set(np.argsort(-model.feature_relevance_)[:4]) == {5, 11, 17, 23}
        assert np.mean((model.predict(X[400:]) - f[400:]) ** 2) < 0.1 * f.var()

    def test_kernel_objects(self):
        rng = np.random.default_rng(3)
        X = rng.uniform(-3, 3, size=(60, 2))
        y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
        kernel = Gaussian(width="learn-per-feature") + PolynomialKernel(degree=2, width=5.0)
        model = RVR(kernel=kernel).fit(X, y)
        gaussian, polynomial = model.kernel_.parts
        assert len(gaussian.width) == 2 and polynomial.width == pytest.approx(5.0)
        other = RVR(kernel="matern52", width="learn").fit(X, y)
        assert isinstance(other.kernel_, Matern) and other.width_ > 0
        assert RVR(kernel=LinearSpline()).fit(X, y).kernel_ == LinearSpline()
        assert RVR(kernel=Gaussian(width=2.0)).fit(X, y).width_ == 2.0

    def test_auto(self):
        """Widths are learned by default in regression, not with classes and counts, nor for kernels without one."""
        rng = np.random.default_rng(12)
        X = rng.normal(size=(30, 2))
        y = X[:, 0] + 0.1 * rng.normal(size=30)
        assert RVR(kernel="gaussian").fit(X, y).width_.shape == (2,)
        wide = RVR(kernel="gaussian", noise_variance=0.5).fit(rng.normal(size=(20, 33)), rng.normal(size=20))
        assert not hasattr(wide, "tuning_")
        assert not hasattr(RVC().fit(X, y > 0), "tuning_")
        assert not hasattr(RVR(likelihood="poisson").fit(X, rng.poisson(2.0, 30)), "tuning_")
        assert not hasattr(RVR(kernel="linear").fit(X, y), "tuning_")
        with pytest.raises(ValueError, match="leave it at 'auto'"):
            RVR(kernel=None, basis="linear", width=2.0).fit(X, y)

    def test_several_outputs_share_widths(self):
        rng = np.random.default_rng(4)
        X = rng.uniform(-3, 3, size=(50, 2))
        Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 0])]) + 0.05 * rng.normal(size=(50, 2))
        model = RVR(width="learn-per-feature").fit(X, Y)
        assert model.width_.shape == (2,) and model.score(X, Y) > 0.95

    @pytest.mark.parametrize("shift", [1e-6, 1e6])
    def test_units_of_the_columns_do_not_matter(self, shift):
        rng = np.random.default_rng(5)
        X = rng.normal(size=(50, 2))
        y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=50)
        one = RVR(width="learn-per-feature").fit(X, y)
        other = RVR(width="learn-per-feature").fit(X * [shift, 1.0], y)
        assert_allclose(other.predict(X * [shift, 1.0]), one.predict(X), atol=0.02)

    def test_same_result_again_and_for_permuted_rows(self):
        rng = np.random.default_rng(6)
        X = rng.normal(size=(60, 2))
        y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
        one, two = (RVR(width="learn").fit(X, y) for _ in range(2))
        assert one.width_ == two.width_
        order = rng.permutation(60)
        assert RVR(width="learn").fit(X[order], y[order]).width_ == pytest.approx(one.width_, rel=1e-3)

    def test_constant_targets_and_features(self):
        X = np.column_stack([np.arange(10.0), np.ones(10)])
        with pytest.warns(ConvergenceWarning, match="constant"):
            RVR(width="learn-per-feature").fit(X, np.ones(10))
        model = RVR(width="learn-per-feature").fit(X, np.sin(X[:, 0]) + 0.01 * np.arange(10) % 3)
        assert model.feature_relevance_[1] == 0.0

    def test_time_limit(self):
        X, y = friedman(1, 100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = RVR(width="learn-per-feature", time_limit=1e-9).fit(X, y)
        assert len(model.tuning_.trials) == 1  # the other starts are not tried

    def test_any_number_of_threads(self, monkeypatch):
        """Starts side by side end where they end one after another."""
        X, y = friedman(4, 60)
        one = RVR(width="learn-per-feature").fit(X, y)
        monkeypatch.setattr(tune, "n_threads", lambda: 3)
        three = RVR(width="learn-per-feature").fit(X, y)
        assert_allclose(three.width_, one.width_, rtol=1e-12)
        assert [t.log_evidence for t in three.tuning_.trials] == [t.log_evidence for t in one.tuning_.trials]

    def test_interrupted_while_starts_run_side_by_side(self, monkeypatch):
        """The interruption goes up at once, and tells the threads that go on to end."""
        basis = bound(Gaussian(width=1.0), np.arange(10.0)[:, None])
        setting = gaussian_setting(np.arange(10.0)[:, None], np.arange(10.0))(basis)

        def interrupted(basis, setting, start):
            if start[0] > 0.5:
                raise KeyboardInterrupt
            assert setting.stop.wait(20.0)

        monkeypatch.setattr(tune, "_climb_from", interrupted)
        monkeypatch.setattr(tune, "n_threads", lambda: 8)
        with pytest.raises(KeyboardInterrupt):
            tune_widths(basis, setting)
        assert setting.must_stop

    def test_no_width_no_relevance(self):
        X, y = friedman(2, 40)
        model = RVR(kernel="linear").fit(X, y)
        assert not hasattr(model, "feature_relevance_") and not hasattr(model, "feature_importances_")

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_a_weak_even_effect_among_idle_features(self):
        """Its width runs away on a few rows, and comes back alone: not together with those of the idle features."""
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(3000, 12))
        f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
        width = (
            RVR(kernel="gaussian", solver=Sequential(max_iter=1))
            .fit(X, f + 7.0 * rng.standard_normal(3000))
            .kernel_.width
        )
        assert width[2] < 3.0 and np.min(width[5:]) > 10.0

    def test_many_rows_are_thinned(self):
        """More rows and atoms than starts are compared on: the model of all of them, warm from the part."""
        rng = np.random.default_rng(8)
        X = rng.uniform(-10, 10, size=(900, 2))
        y = np.sinc(X[:, 0] / np.pi) + 0.1 * X[:, 1] + 0.1 * rng.normal(size=900)
        model = RVR(width="learn-per-feature").fit(X, y)
        assert model.feature_relevance_[0] > 0.8
        assert model.noise_variance_ == pytest.approx(0.01, rel=0.2)

    def test_two_classes(self):
        rng = np.random.default_rng(9)
        X = rng.normal(size=(120, 3))
        y = (X[:, 0] ** 2 + 0.3 * rng.normal(size=120) > 1.0).astype(int)
        model = RVC(width="learn-per-feature").fit(X, y)
        assert model.feature_relevance_.argmax() == 0 and model.feature_relevance_[0] > 0.6
        assert model.score(X, y) > 0.85

    @pytest.mark.parametrize("multi_class", ["multinomial", "ovr"])
    def test_three_classes(self, multi_class):
        rng = np.random.default_rng(10)
        centres = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
        label = rng.integers(3, size=90)
        X = centres[label] + rng.normal(size=(90, 2))
        model = RVC(width="learn", multi_class=multi_class).fit(X, label)
        assert model.score(X, label) > 0.8 and model.width_ > 0

    def test_counts(self):
        rng = np.random.default_rng(11)
        X = rng.uniform(-2, 2, size=(100, 2))
        y = rng.poisson(np.exp(1.0 + np.sin(2 * X[:, 0])))
        model = RVR(likelihood="poisson", width="learn-per-feature").fit(X, y)
        assert model.feature_relevance_[0] > 0.6 and model.score(X, y) > 0.3


class TestInterleaving:
    """T01 Appendix C, which `learn` is compared with."""

    def test_reaches_less(self):
        """The widths it ends at explain the targets worse once its own precisions are taken away."""
        X, y = friedman(3, 80)
        basis = bound(Gaussian(width="learn-per-feature"), X)
        setting = gaussian_setting(X, y)(basis)
        found = interleave(basis, setting, Interleaved(steps=2))
        plain, models = found.basis, found.models
        assert len(models[0].active) < 60
        still = replace(setting, free=np.zeros(len(basis.theta), bool))
        there = tied.climb_evidence(Columns.of(plain, np.arange(plain.n_atoms)), plain.theta, still)
        learned = tune_widths(basis, setting)
        assert max(trial.log_evidence for trial in learned.tuning.trials) > there.value + 1.0

    def test_a_machine_is_the_fixed_point_where_it_ends(self):
        """Widths, precisions and noise are those of the module; T01 eq. (16) and (18) then hold at these widths."""
        X, y = friedman(5, 60)
        model = RVR(width=Interleaved(steps=1, start=2.0), solver="mackay").fit(X[:, :3], y)
        basis = bound(Gaussian(width="learn-per-feature"), X[:, :3])
        found = interleave(basis, gaussian_setting(X[:, :3], y)(basis), Interleaved(steps=1, start=2.0))
        assert_allclose(model.width_, np.exp(found.basis.theta), rtol=1e-9)
        assert model.width_rule_ == "interleaved" and model.tuning_.size[-1] == len(found.models[0].active)
        kept = np.isin(model.relevance_, found.basis.rows[found.models[0].active])
        assert kept.mean() > 0.7 and model.status_ == "converged"  # deleted ones may come back, T01 B.1
        Phi, alpha, beta = model.basis_(X[:, :3]), model.alpha_, 1.0 / model.noise_variance_
        moved = oracle.mackay_step(Phi, y, alpha, beta)
        assert oracle.log_evidence(Phi, y, *moved) == pytest.approx(model.log_marginal_likelihood_, abs=1e-3)

    @pytest.mark.parametrize("width", ["interleaved", Interleaved()])
    def test_is_for_the_update_it_interleaves(self, width):
        X, y = friedman(5, 20)
        for model, t in ((RVR(width=width), y), (RVC(width=width, solver="mackay"), y > y.mean())):
            with pytest.raises(ValueError, match="give solver='mackay'"):
                model.fit(X, t)

    def test_says_what_it_needs(self):
        with pytest.raises(ValueError, match="steps must be"):
            Interleaved(steps=0)
        with pytest.raises(ValueError, match="start must be"):
            Interleaved(start=-1.0)


class TestTied:
    """The evidence of all functions, their precisions tied."""

    @staticmethod
    def dense(tied_, theta, logs, target):
        Phi = tied_.columns(tied_.setting.X, theta) * tied_.unit * target.root[:, None]
        return oracle.log_evidence(Phi, target.root * target.target, np.exp(logs[:-1])[tied_.group], np.exp(logs[-1]))

    @pytest.mark.parametrize("name", KERNELS)
    def test_gradients(self, name):
        """Two outputs with weights, functions with and without widths, against differences of the dense evidence."""
        rng = np.random.default_rng(3)
        X = rng.normal(size=(20, 2))
        weights = rng.uniform(0.5, 2.0, 20)
        weights *= 20 / weights.sum()  # N of them, as the oracle counts
        basis = bound(KERNELS[name], X, Polynomial(degree=2))
        one, two = (gaussian_setting(X, rng.normal(size=20), weights)(basis) for _ in range(2))
        setting = replace(one, targets=[*one.targets, *two.targets])
        all_ = tied.SharedPrecisionEvidence.of(Columns.of(basis, np.arange(basis.n_atoms)), basis.theta, setting)
        assert list(np.unique(all_.group)) == [0, 1, 2]
        logs = all_.start(basis.theta) + 0.3 * rng.normal(size=(2, 4))
        value, by_theta, by_log, determined = all_.evaluate(basis.theta, logs)

        def dense(theta, logs):
            return sum(self.dense(all_, theta, own, t) for own, t in zip(logs, setting.targets, strict=True))

        assert_allclose(value, dense(basis.theta, logs), rtol=1e-8)
        assert_allclose(by_theta, differences(lambda theta: dense(theta, logs), basis.theta), rtol=1e-5, atol=1e-6)
        slopes = differences(lambda flat: dense(basis.theta, flat.reshape(2, 4)), logs.ravel())
        assert_allclose(by_log.ravel(), slopes, rtol=1e-5, atol=1e-6)
        assert 0.0 < determined < 40.0

    @pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson()], ids=["two", "counts"])
    def test_gradients_of_the_laplace_evidence(self, likelihood):
        """With the moving mode, in the widths and in the precision."""
        rng = np.random.default_rng(6)
        X = rng.normal(size=(25, 2))
        t = (rng.integers(2, size=25) if isinstance(likelihood, Bernoulli) else rng.poisson(2.0, 25)).astype(float)
        basis = bound(Gaussian(width=(1.3, 0.8)), X)
        setting = laplace_setting(basis, X, t, likelihood)
        all_ = tied.SharedPrecisionEvidence.of(Columns.of(basis, np.arange(basis.n_atoms)), basis.theta, setting)
        logs = all_.start(basis.theta) + 0.2
        _, by_theta, by_log, _ = all_.evaluate(basis.theta, logs)
        assert_allclose(by_theta, differences(lambda theta: all_.evaluate(theta, logs)[0], basis.theta), rtol=1e-4)
        slopes = differences(lambda own: all_.evaluate(basis.theta, own[None])[0], logs[0])
        assert_allclose(by_log[0, :-1], slopes[:-1], rtol=1e-4)
        assert by_log[0, -1] == 0.0

    def test_a_climb_ends_at_the_top(self):
        """One width: where a climb ends is where the dense evidence over a grid of widths is highest."""
        rng = np.random.default_rng(2)
        X = rng.uniform(-10, 10, size=(50, 1))
        y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=50)
        basis = bound(Gaussian(width=3.0), X)
        setting = gaussian_setting(X, y)(basis)
        columns = Columns.of(basis, np.arange(basis.n_atoms))
        end = tied.climb_evidence(columns, basis.theta, setting)
        still = replace(setting, free=np.zeros(1, bool))
        grid = np.log(np.linspace(1.0, 6.0, 26))
        values = [tied.climb_evidence(columns, np.array([theta]), still).value for theta in grid]
        assert end.value >= max(values) - 0.02
        assert abs(end.theta[0] - grid[int(np.argmax(values))]) < 0.2

    def test_fixed_noise_is_kept(self):
        X, y = friedman(5, 40)
        basis = bound(Gaussian(width=3.0), X)
        setting = gaussian_setting(X, y, noise_variance=2.0)(basis)
        all_ = tied.SharedPrecisionEvidence.of(Columns.of(basis, np.arange(basis.n_atoms)), basis.theta, setting)
        start = all_.start(basis.theta)
        low, high = all_.bounds(start)[-1]
        assert low == high == start[0, -1] == pytest.approx(-np.log(setting.targets[0].problem.noise_variance))

    def test_a_softmax_is_learned_from_its_dichotomies(self):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(20, 2))
        basis = bound(Gaussian(width=1.0), X)
        T = np.eye(3)[rng.integers(3, size=20)]
        (target,) = laplace_setting(basis, X, T, Categorical(3)).targets
        parts = target.split_outputs()
        assert [one.problem.K for one in parts] == [1, 1, 1]
        assert_allclose(np.column_stack([one.problem.target for one in parts]), T)
        assert parts[0].split_outputs() == [parts[0]]

    def test_equal_kernels_part(self):
        """Two kernels of one family start apart, and learn a fine and a coarse width."""
        rng = np.random.default_rng(8)
        X = rng.uniform(-10, 10, size=(120, 1))
        y = np.sin(X[:, 0] / 3) * 3 + np.exp(-((X[:, 0] - 2) ** 2) / 0.3) * 2 + 0.05 * rng.normal(size=120)
        basis = bound(Gaussian(width=5.0), X, KernelBasis(Gaussian(width=5.0)))
        learned = tune_widths(basis, gaussian_setting(X, y)(basis))
        assert all(trial.start[1] - trial.start[0] > 0.5 for trial in learned.tuning.trials[:6])
        widths = np.exp(learned.basis.theta)
        assert widths.max() > 2.0 * widths.min()


def test_a_kernel_of_a_list_may_lose_all_its_atoms():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (60, 2))
    y = 3.0 * X[:, 1] + np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    model = RVR(width="learn", basis=["linear", Gaussian(4.0)], solver=Sequential(restarts=0)).fit(X, y)
    assert model.score(X, y) > 0.99 and "x1" in model.atoms_


def test_a_fit_through_its_targets_has_its_noise_held():
    """Many functions and far less noise than the tied model's; neither alone, nor where the noise is given."""
    from types import SimpleNamespace

    from relvec.estimators.gaussian import refit_if_interpolating

    def fit(size, noise):
        state = SimpleNamespace(active=np.arange(size), posterior=SimpleNamespace(beta=1.0 / noise))
        return SimpleNamespace(n_samples=100.0, result=SimpleNamespace(state=state))

    X, y = friedman(0, 20)
    (target,) = gaussian_setting(X, y)(bound(Gaussian(width=1.0), X)).targets
    problem = target.problem
    given = replace(problem, noise_variance=0.01)
    fits = [fit(60, 0.01), fit(60, 0.05), fit(10, 0.01), fit(60, 0.01)]
    held = refit_if_interpolating(fits, [problem, problem, problem, given], np.full(4, 0.1))
    assert held[0].noise_variance == 0.1
    assert held[1] is problem and held[2] is problem and held[3] is given
    assert refit_if_interpolating(fits[1:], [problem, problem, given], np.full(3, 0.1)) is None
    assert refit_if_interpolating(fits, [problem] * 4, None) is None
