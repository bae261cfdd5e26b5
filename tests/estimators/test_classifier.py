import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from relvec import RVC, RVR, GammaPrior, RelevanceVectorClassifier
from relvec.solvers import EM, MacKay, Sequential

QUICK = Sequential(restarts=0)


@pytest.mark.slow
@parametrize_with_checks([RVC(width="scale"), RVC(multi_class="ovr", width="scale")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def blobs(K=2, n=60, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    label = np.arange(n) % K
    angle = 2 * np.pi * label / K
    return 2.0 * np.column_stack([np.cos(angle), np.sin(angle)]) + spread * rng.normal(size=(n, 2)), label


def test_binary_attributes_and_predictions():
    X, y = blobs()
    model = RVC(width=2.0, solver=QUICK).fit(X, np.array(["no", "yes"])[y])
    m = len(model.atoms_)
    assert model.weights_.shape == model.alpha_.shape == model.gamma_.shape == (m,)
    assert model.covariance_.shape == (m, m)
    assert len(model.relevance_vectors_) == len(model.relevance_) <= m
    np.testing.assert_array_equal(model.relevance_per_class_[0], model.relevance_)
    mode = RVC(width=2.0, solver=QUICK, averaging="mode").fit(X, y)
    np.testing.assert_allclose(mode.predict_proba(X)[:, 1], expit(mode.basis_(X) @ mode.weights_))
    Phi = model.basis_(X)
    assert np.all(np.abs(model.decision_function(X)) <= np.abs(Phi @ model.weights_) + 1e-9)  # moderated
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert set(model.predict(X)) == {"no", "yes"} and model.score(X, np.array(["no", "yes"])[y]) > 0.9


@pytest.mark.parametrize("options", [{}, {"share_alpha": True}, {"multi_class": "ovr"}])
def test_three_classes(options):
    X, y = blobs(3)
    model = RVC(width=2.0, solver=QUICK, **options).fit(X, y)
    m, K = len(model.atoms_), 3
    assert model.weights_.shape == model.alpha_.shape == (K, m)
    assert model.covariance_.shape == ((K, m, m) if "multi_class" in options else (K, m, K, m))
    assert np.all((model.weights_ == 0.0) == np.isinf(model.alpha_))
    union = np.unique(np.concatenate(model.relevance_per_class_))
    np.testing.assert_array_equal(union, model.relevance_)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    assert model.score(X, y) > 0.8
    if options.get("share_alpha"):
        assert np.all(model.alpha_ == model.alpha_[0])


def test_repeated_rows_are_weights():
    X, y = blobs(2, 30)
    weight = np.arange(30) % 3
    a = RVC(solver=QUICK, width=2.0).fit(X, y, sample_weight=weight)
    b = RVC(solver=QUICK, width=2.0).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert a.log_marginal_likelihood_ == pytest.approx(b.log_marginal_likelihood_, abs=1e-9)
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-8)


def test_the_order_of_rows_does_not_matter():
    X, y = blobs(2, 40)
    order = np.random.default_rng(0).permutation(40)
    a, b = RVC(width=2.0, solver=QUICK).fit(X, y), RVC(width=2.0, solver=QUICK).fit(X[order], y[order])
    np.testing.assert_array_equal(np.sort(order[b.relevance_]), a.relevance_)
    assert a.log_marginal_likelihood_ == pytest.approx(b.log_marginal_likelihood_, abs=1e-10)


@pytest.mark.parametrize("solver", [MacKay(max_iter=3000), EM(max_iter=3000)], ids=["mackay", "em"])
def test_fixed_points_report_how_far_the_maximum_is(solver):
    X, y = blobs(2, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = RVC(width=2.0, solver=solver).fit(X, y)
    best = RVC(width=2.0, solver=Sequential(prior_rows=0.0)).fit(X, y)
    assert model.log_marginal_likelihood_ <= best.log_marginal_likelihood_ + 0.5
    assert model.status_ in ("fixed_point", "max_iter")


@pytest.mark.parametrize("options", [{}, {"share_alpha": True}, {"multi_class": "ovr"}])
@pytest.mark.parametrize("K", [2, 3])
def test_separable_classes(K, options):
    X, y = blobs(K, 60, spread=0.1)
    model = RVC(solver=QUICK, width="scale", **options).fit(X, y)
    assert model.score(X, y) == 1.0 and np.all(np.isfinite(model.weights_))
    assert log_loss(y, model.predict_proba(X)) < 0.5 * np.log(K)  # averaged probabilities have not fallen back to 1 / K
    assert np.max(model.certificate_) <= model.tol


def test_one_example_of_a_class():
    X, y = blobs(2, 40)
    lonely = RVC(solver=QUICK, width="scale", averaging="mode").fit(X, np.r_[1, np.zeros(39, int)])
    assert lonely.predict_proba(X)[:, 1].mean() == pytest.approx(1 / 40, abs=0.02)
    three = RVC(solver=QUICK, width="scale").fit(X, np.r_[2, y[1:]])
    assert three.predict_proba(X).shape == (40, 3) and three.score(X, np.r_[2, y[1:]]) > 0.9


def test_identical_rows_give_class_frequencies():
    y = np.r_[np.zeros(30, int), np.ones(10, int)]
    model = RVC(solver=QUICK, width="scale").fit(np.ones((40, 2)), y)
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 2))), [[0.75, 0.25]], atol=0.03)
    three = RVC(solver=QUICK, width="scale").fit(np.ones((60, 2)), np.repeat([0, 1, 2], [40, 10, 10]))
    np.testing.assert_allclose(three.predict_proba(np.ones((1, 2))), [[4 / 6, 1 / 6, 1 / 6]], atol=0.05)


def test_labels_are_only_names():
    X, y = blobs(2, 40)
    models = [RVC(solver=QUICK, width="scale").fit(X, names) for names in (y, 2 * y - 1, np.array(["b", "a"])[1 - y])]
    assert [m.classes_.tolist() for m in models] == [[0, 1], [-1, 1], ["a", "b"]]
    for model in models[1:]:
        np.testing.assert_array_equal(model.predict_proba(X), models[0].predict_proba(X))


def test_one_in_a_thousand():
    rng = np.random.default_rng(0)
    Z = np.vstack([rng.normal(size=(2, 2)) * 0.1 + 6.0, rng.normal(size=(2000, 2))])
    rare = np.r_[1, 1, np.zeros(2000, int)]
    model = RVC(solver=QUICK, width=2.0, averaging="mode").fit(Z, rare)
    np.testing.assert_array_equal(model.predict(Z), rare)
    assert model.predict_proba(Z)[2:, 1].mean() < 0.002
    scattered = RVC(solver=QUICK, width=2.0, averaging="mode").fit(Z[2:], np.r_[1, np.zeros(1999, int)])
    assert scattered.predict_proba(Z[2:])[:, 1].mean() < 0.002


def test_a_hundred_classes():
    rng = np.random.default_rng(0)
    centres = 10.0 * rng.normal(size=(100, 2))
    y = np.arange(200) % 100
    X = centres[y] + 0.1 * rng.normal(size=(200, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = RVC(width=2.0, solver=Sequential(restarts=0, exchange=False, max_iter=6)).fit(X, y)
    assert model.predict_proba(X).shape == (200, 100)
    assert len(model.relevance_) > 5


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="one class"):
        RVC(width="scale").fit([[0.0], [1.0]], [1, 1])
    with pytest.raises(ValueError, match="positive weight"):
        RVC(width="scale").fit([[0.0], [1.0]], [0, 1], sample_weight=[1.0, 0.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"multi_class": "both"}, "multi_class must be"), ({"averaging": "none"}, "averaging must be"),
     ({"tol": 0.0}, "tol must be"),
     ({"solver": MacKay(hyperprior=GammaPrior(c=1.0, d=1.0))}, "noise"),
     ({"solver": Sequential(support_prior="size")}, "give a price in nats")],
)  # fmt: skip
def test_wrong_parameters_are_refused(options, message):
    X, y = blobs()
    with pytest.raises(ValueError, match=message):
        RelevanceVectorClassifier(**options).fit(X, y)


def test_averaging_is_read_at_fit():
    X, y = blobs()
    model = RVC(width=2.0, solver=QUICK).fit(X, y)
    averaged = model.predict_proba(X)
    mode = clone(model).set_params(averaging="mode").fit(X, y).predict_proba(X)
    assert not np.allclose(mode, averaged)
    np.testing.assert_array_equal(model.set_params(averaging="mode").predict_proba(X), averaged)


def test_class_weight_moves_the_boundary():
    X, y = blobs(2, 80, spread=2.0)
    plain = RVC(width=3.0, solver=QUICK).fit(X, y).predict(X).mean()
    heavy = RVC(width=3.0, solver=QUICK, class_weight={0: 1.0, 1: 10.0}).fit(X, y).predict(X).mean()
    assert heavy > plain


def test_counts():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 6, 120)[:, None]
    rate = np.exp(1.0 + np.sin(X[:, 0]))
    y = rng.poisson(rate)
    model = RVR(likelihood="poisson", width=2.0, solver=QUICK).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.mean(np.abs(mean / rate - 1.0)) < 0.2 and np.all(std**2 > mean)
    interval = model.predict_interval(X, 0.9)
    assert np.all(interval == np.floor(interval))
    assert np.mean((y >= interval[:, 0]) & (y <= interval[:, 1])) > 0.85
    drawn = model.sample_y(X[:3], 20000, random_state=0, noise=True)
    np.testing.assert_allclose(np.quantile(drawn, 0.95, axis=1), interval[:3, 1], atol=1.0)
    np.testing.assert_allclose(drawn.mean(axis=1), mean[:3], rtol=0.03)
    total = np.exp([model.log_predictive_density(X[:1], [float(k)])[0] for k in range(200)]).sum()
    assert total == pytest.approx(1.0, abs=1e-6)
    assert 0.3 < model.score(X, y) < 1.0
    assert "noise_variance_" not in vars(model)
    with pytest.raises(ValueError, match="counts"):
        RVR(likelihood="poisson", width="scale").fit(X, y - 0.5)
    with pytest.raises(ValueError, match="no noise variance"):
        RVR(likelihood="poisson", noise_variance=1.0, width="scale").fit(X, y)
