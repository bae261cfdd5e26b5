"""The process for classes: evidence, gradient, weights, order, far away, two classes and more, the choice."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, log_expit
from scipy.special import softmax as softmax_of
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import relvec
from relvec import GPClassifier
from relvec.export.model_file.layout import ModelFileError
from relvec.gaussian_process.classes import binary, softmax
from relvec.gaussian_process.classes import choose as choosing
from relvec.gaussian_process.classes.candidates import (
    ClassRecord,
    ProcessCandidate,
    calibrate,
    calibration_curve,
    standard_candidates,
)
from relvec.gaussian_process.classes.choose import choose
from relvec.gaussian_process.classes.expansion import expand_members, log_prior_odds
from relvec.gaussian_process.classes.fit import ClassModel, Member, effort_for, fit_classes, share_vectors
from relvec.gaussian_process.classes.learn import Effort, latent_evidence, learn_latent, settle_latent
from relvec.gaussian_process.classes.model import Calibration, Features, LatentKernel, calibrate_signals, feature_pivots
from relvec.gaussian_process.classes.rows import DistinctRows, deal_fold, merge_class_rows, standardise_rows
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.runtime.clock import Clock

AS_IT_IS = Calibration()
GAUSSIAN, MATERN = Shape.GAUSSIAN, Shape.MATERN32
STRUCTURES = [
    Structure((), True, 3),
    Structure((Part(GAUSSIAN, log_ratios=(0.3, -0.5, 0.0)),), False, 3),
    Structure((Part(GAUSSIAN, True), Part(MATERN)), True, 3),
    Structure((Part(GAUSSIAN, True, groups=(0, 1, 1)),), False, 3),
]


def table(n=60, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + X[:, 1] ** 2 + rng.normal(size=n) > 1).astype(int)
    if n_classes > 2:
        y = y + (X[:, 2] > 0.3)
    return X, y


def rows_of(n=60, n_classes=2, seed=0):
    return standardise_rows(merge_class_rows(*table(n, n_classes, seed), n_classes))[0]


def probabilities(model, X, calibration=AS_IT_IS):
    return calibrate_signals(model.signals(X, calibration.moderation), model.base_rates, calibration.slope)


@pytest.fixture
def tight(monkeypatch):
    """Modes to the last digits, so that differences of evidence are differences."""
    for module in (binary, softmax):
        monkeypatch.setattr(module, "SETTLED_NATS", 1e-13)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
def test_gradient_is_that_of_differences(structure, n_classes, tight):
    rows, kernel = rows_of(n_classes=n_classes), LatentKernel(structure)
    theta = 0.5 + 0.3 * np.random.default_rng(1).normal(size=kernel.n_theta)
    Z = rows.X[feature_pivots(kernel, theta, rows.X, 15)]

    def value(t):
        return latent_evidence(Features(kernel, t, rows.X, Z), rows.counts, rows.base_rates)

    step = 1e-4 * np.eye(kernel.n_theta)
    differences = [(value(theta + e)[0] - value(theta - e)[0]) / 2e-4 for e in step]
    np.testing.assert_allclose(value(theta)[1], differences, rtol=2e-4, atol=2e-4)


def test_evidence_is_the_dense_formula():
    """Rasmussen and Williams eq. (3.32) with every row an inducing row."""
    rows, structure = rows_of(), STRUCTURES[2]
    kernel, theta = LatentKernel(structure), np.array([0.3, 0.5, 0.2, 0.9, 0.1, 0.4, 0.2])
    found = latent_evidence(Features(kernel, theta, rows.X, rows.X), rows.counts, rows.base_rates)[0]
    K = structure(np.append(theta, 0.0), rows.X)
    b = np.log(rows.base_rates[1] / rows.base_rates[0])
    f, y, n = np.zeros(len(rows)), rows.counts[:, 1], rows.weight
    for _ in range(50):  # RW algorithm 3.1, written out
        p = expit(f + b)
        W = n * p * (1 - p)
        f = K @ np.linalg.solve(np.eye(len(rows)) + W[:, None] * K, W * f + y - n * p)
    p = expit(f + b)
    W = n * p * (1 - p)
    fit = y @ log_expit(f + b) + (n - y) @ log_expit(-f - b)
    dense = fit - 0.5 * f @ (y - n * p) - 0.5 * np.linalg.slogdet(np.eye(len(rows)) + W[:, None] * K)[1]
    assert found == pytest.approx(dense, abs=2e-3)  # the jitter of the inducing rows


def test_two_classes_of_the_softmax_are_the_binary_model(tight):
    rows, kernel = rows_of(), LatentKernel(STRUCTURES[1])
    theta = np.array([1.0, 0.3])
    features = Features(kernel, theta, rows.X, rows.X[:20])
    one = binary.evidence(features, rows.counts, rows.base_rates)
    two = softmax.evidence(features, rows.counts, rows.base_rates)
    assert two[0] == pytest.approx(one[0], abs=1e-6)
    np.testing.assert_allclose(two[1], one[1], atol=1e-4)
    np.testing.assert_allclose(two[2].F[:, 1] - two[2].F[:, 0], one[2].f, atol=1e-5)
    np.testing.assert_allclose(two[2].L[0], one[2].L, atol=1e-5)


def test_a_third_class_that_never_occurs_changes_little():
    rows = rows_of(150)
    more = DistinctRows(rows.X, np.c_[rows.counts, np.zeros(len(rows))])
    kernel, theta, new = LatentKernel(STRUCTURES[1]), np.array([1.0, 0.5]), rows_of(50, seed=3).X
    two = probabilities(settle_latent(rows, kernel, theta, Effort()), new)
    three = probabilities(settle_latent(more, kernel, theta, Effort()), new)
    assert three[:, 2].max() < 0.05
    np.testing.assert_allclose(three[:, 1] / three[:, :2].sum(1), two[:, 1], atol=0.06)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_repeated_rows_in_any_order(n_classes):
    X, y = table(80, n_classes)
    weights = 1 + np.arange(80) % 3
    order = np.random.default_rng(5).permutation(int(weights.sum()))
    again = np.repeat(np.arange(80), weights)[order]
    weighted = fit_classes(X, y, n_classes, weights)
    repeated = fit_classes(X[again], y[again], n_classes)
    assert weighted.selection.chosen == repeated.selection.chosen
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-9, atol=1e-12)


def test_units_do_not_matter():
    X, y = table(80)
    one = fit_classes(X, y, 2)
    other = fit_classes(X * [1e3, 1e-4, 1.0] + [7.0, 0.0, -2.0], y, 2)
    np.testing.assert_allclose(
        one.predict_proba(X), other.predict_proba(X * [1e3, 1e-4, 1.0] + [7.0, 0.0, -2.0]), atol=0.05
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_far_away_probabilities_are_the_base_rates(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (np.hypot(*X.T) > 1.5).astype(int) + (n_classes == 3) * (X[:, 0] > 0.5)
    rows, units = standardise_rows(merge_class_rows(X, y, n_classes))
    parts, selection = choose(rows, standard_candidates(rows.X)[1:2])
    ((share, calibration, model),) = parts
    far = units.inputs(10.0 * np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]]))
    assert share == 1.0 and calibration.slope > 0.5
    np.testing.assert_allclose(probabilities(model, far, calibration), np.tile(rows.base_rates, (3, 1)), atol=0.05)
    assert selection.log_loss < 0.6


def test_a_line_goes_on_no_further_than_logistic_regression():
    X, y = datasets.load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X[:, :10])
    model = GPClassifier().fit(X, y)
    far = 10.0 * np.sign(np.random.default_rng(0).normal(size=(40, 10)))
    logistic = LogisticRegression(max_iter=1000).fit(X, y)
    assert np.abs(model.decision_function(far)).max() <= np.abs(logistic.decision_function(far)).max()
    assert ("return" in model.process_.extrapolation) == model.process_.returns_to_base_rates


def test_copies_share_a_fold_and_classes_are_spread():
    rows = rows_of(100)
    folds = [deal_fold(rows, 5, k) for k in range(5)]
    assert sum(len(test) for _, test in folds) == len(rows)
    counts = np.array([test.counts.sum(0) for _, test in folds])
    assert np.ptp(counts, axis=0).max() <= 1
    for train, test in folds:
        assert not {x.tobytes() for x in train.X} & {x.tobytes() for x in test.X}


def test_few_distinct_rows_are_judged_by_evidence():
    rng = np.random.default_rng(0)
    cells = np.array([[a, b, c] for a in (0.0, 1.0) for b in (0.0, 1.0) for c in (0.0, 1.0)])
    X = np.repeat(cells, 40, axis=0)
    y = (rng.random(320) < expit(4.0 * (X[:, 0] != X[:, 1]) - 2.0)).astype(int)
    once = fit_classes(X, y, 2)
    assert "evidence" in once.selection.scheme and "linear" not in once.selection.chosen
    assert sum(once.selection.shares) == pytest.approx(1.0)
    rare = once.predict_proba(cells)[:, 1]
    np.testing.assert_allclose(rare, expit(4.0 * (cells[:, 0] != cells[:, 1]) - 2.0), atol=0.12)
    key = 2 * (X @ [4, 2, 1]) + y  # the same table as weights
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    weighted = fit_classes(X[first], y[first], 2, count.astype(float))
    np.testing.assert_allclose(weighted.predict_proba(cells), once.predict_proba(cells), atol=1e-10)


def test_a_boundary_that_turns_often_gets_as_many_inducing_rows_as_it_needs():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(95, 1))
    rows, units = standardise_rows(merge_class_rows(X, (np.sin(40.0 * X[:, 0]) > 0).astype(int), 2))
    model = learn_latent(rows, Structure((Part(GAUSSIAN),), False, 1))
    new = np.linspace(0.02, 0.98, 200)[:, None]
    found = probabilities(model, units.inputs(new)).argmax(axis=1)
    assert np.mean(found == (np.sin(40.0 * new[:, 0]) > 0)) > 0.85


@pytest.mark.parametrize(("n_classes", "seed"), [(2, 1), (3, 1), (3, 3)])
def test_classes_that_change_places_often_along_some_of_the_inputs_are_learned(n_classes, seed):
    # None of the inputs tells anything alone, and a hundred inducing rows cannot follow the squares.
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, size=(1000, 3))
    f = np.sin(5.0 * X[:, 0]) * np.cos(4.0 * X[:, 1])
    y = np.digitize(f, [0.0] if n_classes == 2 else [-0.3, 0.3])
    P = GPClassifier().fit(X[:500], y[:500]).predict_proba(X[500:])
    assert -np.log(P[np.arange(500), y[500:]]).mean() < 0.4 * np.log(n_classes)  # base rates: log K


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_linear_kernel_of_more_inputs_than_rows_is_that_of_the_directions_of_the_rows(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 50))
    rows, units = standardise_rows(
        merge_class_rows(X, np.digitize(X[:, 0] + X[:, 1], [0.0, 0.7][: n_classes - 1]), n_classes)
    )
    few = learn_latent(rows, Structure((), True, 50))
    assert few.factors.shape[1] == 31
    every = settle_latent(rows, few.kernel, few.theta, Effort())  # a feature for each input
    new = units.inputs(rng.normal(size=(20, 50)))
    for other in (every, few.widen()):
        np.testing.assert_allclose(probabilities(few, new), probabilities(other, new), rtol=1e-6)
        np.testing.assert_allclose(few.latent(new)[1], other.latent(new)[1], rtol=1e-6)
        np.testing.assert_allclose(few.slopes(new), other.slopes(new), rtol=1e-4, atol=1e-7)


def test_newton_steps_by_products_and_by_factors_end_at_one_mode(monkeypatch):
    rows = rows_of(120)
    kernel = LatentKernel(STRUCTURES[1])
    theta = np.array([3.0, -0.5])
    features = Features(kernel, theta, rows.X, rows.X[:40])
    modes = []
    for large in (0.0, np.inf):
        monkeypatch.setattr(binary, "_LARGE", large)
        modes.append(binary.mode(features.Phi, rows.counts, 0.3))
    np.testing.assert_allclose(modes[0].f, modes[1].f, atol=1e-3)
    assert modes[0].value == pytest.approx(modes[1].value, abs=1e-6)


def test_the_choice_finds_the_boundary_and_says_so():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    straight = fit_classes(X, (X @ [1.0, -1.0] + 0.5 * rng.normal(size=300) > 0).astype(int), 2)
    assert "linear" in straight.selection.chosen[0]
    assert not straight.returns_to_base_rates
    round_ = fit_classes(X, (np.hypot(*X.T) + 0.2 * rng.normal(size=300) > 1.2).astype(int), 2)
    assert any("gaussian" in name for name in round_.selection.chosen)
    entries = {e.name: e for e in round_.selection.entries}
    assert entries["linear"].behind > 0.2
    curve = round_.selection.calibration_curve
    assert curve[:, 2].sum() == pytest.approx(300)
    assert np.abs(curve[:, 0] - curve[:, 1]).max() < 0.3
    assert "chosen" in str(round_.selection)


class Expert:
    """Knows what one input adds to the log-odds."""

    few, n_vectors, size, evaluations, base_rates = False, 1, 1, 1, np.array([0.5, 0.5])

    def __init__(self, column):
        self.column, self.name = column, f"expert {column}"

    def fit(self, rows, hint, clock):
        return self

    def signals(self, Q, moderation=1.0):
        return Q[:, [self.column]] * [-1.0, 1.0]


def test_a_sum_has_the_shares_that_held_out_rows_gain_by():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (rng.random(400) < expit(2.0 * (X[:, 0] + X[:, 1]))).astype(int)  # the third input is idle
    rows = DistinctRows(X, np.eye(2)[y])
    parts, selection = choose(rows, [Expert(0), Expert(1), Expert(2)])
    assert selection.chosen == ("expert 0", "expert 1")
    for share, calibration, _ in parts:
        assert share * calibration.slope == pytest.approx(1.0, abs=0.3)
    assert selection.log_loss < min(entry.log_loss for entry in selection.entries) - 0.05
    assert len(choose(rows, [Expert(0), Expert(0)])[0]) == 1  # two that are equal: a tie


def test_a_width_in_ranges_is_one_in_the_units_that_inputs_share():
    rng = np.random.default_rng(0)
    pixels = np.c_[rng.random(300) < 0.02, rng.random(300) < 0.5, rng.random((300, 2))].astype(float)
    pixels[:2, 2:] = [[0.0, 0.0], [1.0, 1.0]]
    rows, units = standardise_rows(merge_class_rows(pixels, np.arange(300) % 2, 2))
    candidates = standard_candidates(rows.X)
    assert [candidate.name for candidate in candidates] == ["linear", "gaussian[ranges]", "gaussian[4]"]
    lengths = np.exp(candidates[1].structure.parts[0].log_lengths(np.zeros(1))) * units.scale
    np.testing.assert_allclose(lengths, lengths[0])


def test_an_irrelevant_category_is_one_input():
    X, y = table(300)
    levels = np.eye(20)[np.random.default_rng(1).integers(0, 20, 300)]
    losses = []
    for Z in (X, np.hstack([X, levels])):
        model = GPClassifier().fit(Z[:200], y[:200])
        losses.append(-np.log(model.predict_proba(Z[200:])[np.arange(100), y[200:]]).mean())
    assert losses[1] < losses[0] + 0.02
    assert "gaussian[4]" in [entry.name for entry in model.selection_.entries]


def test_held_out_rows_shorten_widths_and_ask_for_vectors():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    rows = standardise_rows(merge_class_rows(X, (np.floor(4.0 * X).sum(axis=1) % 2).astype(int), 2))[0]
    fold = train, test = deal_fold(rows, 3, 0)
    candidate = ProcessCandidate(Structure((Part(GAUSSIAN),), False, 2), Effort(final=20, grown=50))
    theta = np.array([6.0, 0.5])
    long = ClassRecord(candidate)
    long.add(settle_latent(train, LatentKernel(candidate.structure), theta, candidate.effort), test)
    long.close(test.counts)
    short = long.halve_widths(fold, Clock())
    many = short.double_vectors(fold, Clock())
    assert short.moved[0] == 0.0 and short.moved[1] < -0.6 and short.model.n_vectors == 20
    assert many.model.n_vectors == 50 and many.model.theta.tolist() == short.model.theta.tolist()
    losses = [-record.density.mean() for record in (long, short, many)]
    assert losses[0] > losses[1] + 0.1 and losses[1] > losses[2] + 0.05
    assert short.halve_widths(fold, Clock()) is short
    whole = many.finish(settle_latent(rows, many.model.kernel, theta, candidate.effort), rows)
    assert whole.n_vectors == many.model.n_vectors
    np.testing.assert_allclose(whole.theta, many.model.theta)


def test_the_calibration_curve_of_the_folds_is_an_attribute():
    X, y = table(150)
    model = GPClassifier().fit(X, y)
    nominal, observed, weight = model.calibration_curve_.T
    assert weight.sum() == pytest.approx(150) and np.average(np.abs(nominal - observed), weights=weight) < 0.15


def test_a_model_from_elsewhere_takes_part():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 3))
    truth = expit(4.0 * np.sign(X[:, 0] * X[:, 1] * X[:, 2]))  # no smooth function of 200 rows
    y = (rng.random(200) < truth).astype(int)

    class Oracle:
        name, few, n_vectors, size, evaluations = "oracle", False, 1, 1, 1
        base_rates = np.array([0.5, 0.5])

        def fit(self, rows, hint, clock):
            return self

        def signals(self, Q, moderation=1.0):
            return 2.0 * np.sign(Q[:, :1] * Q[:, 1:2] * Q[:, 2:]) * [-1.0, 1.0]

    rows = DistinctRows(X, np.eye(2)[y])
    parts, selection = choose(rows, [*standard_candidates(rows.X), Oracle()])
    assert "oracle" in selection.chosen
    assert len(parts) == len(selection.chosen)


def test_calibration_undoes_a_wrong_slope():
    rng = np.random.default_rng(3)
    signal = rng.normal(size=(2000, 1)) * [-1.0, 1.0]
    y = (rng.random(2000) < expit(2.0 * 2.0 * signal[:, 1])).astype(int)
    found = calibrate({1.0: signal}, np.log(np.full((2000, 2), 0.5)), np.eye(2)[y])
    assert found.slope == pytest.approx(2.0, rel=0.15)
    p = expit(4.0 * signal[:, 1])
    curve = calibration_curve(np.c_[1 - p, p], np.eye(2)[y])
    assert np.abs(curve[:, 0] - curve[:, 1]).max() < 0.08


def test_learning_raises_the_evidence_in_few_evaluations():
    rows = rows_of(200)
    model = learn_latent(rows, STRUCTURES[2], Effort())
    assert model.evaluations < 70
    assert model.n_vectors <= 200
    start = np.zeros(model.kernel.n_theta)
    value = [
        latent_evidence(Features(model.kernel, t, rows.X, model.vectors), rows.counts, rows.base_rates)[0]
        for t in (start, model.theta)
    ]
    assert value[1] > value[0] + 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
def test_sums_of_functions_predict_the_same(structure, n_classes):
    X, y = table(90, n_classes)
    rows, units = standardise_rows(merge_class_rows(X, y, n_classes))
    members = [Member(s, Calibration(1.7, m), learn_latent(rows, structure)) for s, m in ((0.7, 1.0), (0.4, 0.3))]
    selection = choose(rows, standard_candidates(rows.X)[:1])[1]
    model = ClassModel(units, tuple(members), rows.base_rates, selection)
    new = 2.0 * table(50, seed=9)[0]
    total = log_prior_odds(model)
    for member in expand_members(model, 3):
        phi = member.basis(new)
        for c, f in enumerate(member.functions):
            variance = f.prior + ((phi @ f.root) ** 2).sum(1) - ((phi @ f.represented) ** 2).sum(1)
            signal = member.slope * (phi @ f.weights) / np.sqrt(1.0 + member.moderation * np.maximum(variance, 0.0))
            total = total + signal[:, None] * np.eye(len(member.functions))[c]
    scores = np.c_[np.zeros(50), total] if n_classes == 2 else total
    np.testing.assert_allclose(softmax_of(scores, axis=1), model.predict_proba(new), atol=1e-9)


def test_a_time_limit_ends_the_choice_with_a_model():
    X, y = table(300)
    model = fit_classes(X, y, 2, clock=Clock(1e-6))
    assert model.status == "time_limit" and model.messages
    assert model.n_vectors <= 40  # of two processes at most
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_fit_that_follows_an_earlier_one_takes_its_structures():
    X, y = table(120)
    first = fit_classes(X, y, 2)
    again = fit_classes(X, y, 2, earlier=first)
    assert set(again.selection.chosen) <= set(first.selection.chosen)


@pytest.mark.parametrize(
    "X, y, weight",
    [
        (np.ones((10, 2)), np.arange(10) % 2, 1.0),
        (np.array([[0.0], [1.0]]), np.array([0, 1]), 1.0),
        (np.arange(30.0)[:, None], np.zeros(30, int), 1.0),
        (np.r_[np.arange(20.0), 1e8][:, None], np.arange(21) % 2, 1.0),
        (np.sin(np.arange(2000.0)).reshape(20, 100), np.arange(20) % 2, 1.0),
        (np.sin(np.arange(100.0)).reshape(50, 2), np.arange(50) % 2, 1e4),
        (np.sin(np.arange(100.0)).reshape(50, 2), np.arange(50) % 2, 0.01),
    ],
    ids=["constant", "two rows", "one class", "outlier", "more inputs than rows", "great weights", "small weights"],
)
def test_odd_tables_have_probabilities(X, y, weight):
    P = fit_classes(X, y, 2, np.full(len(y), weight)).predict_proba(X)
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(1), 1.0)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_slopes_are_differences_of_latent_means(structure, n_classes):
    X, y = table(60, n_classes)
    rows, _ = standardise_rows(merge_class_rows(X, y, n_classes))
    process, h = learn_latent(rows, structure, Effort(steps=5)), 1e-5
    steps = h * np.eye(rows.X.shape[1])
    rises = [process.latent(rows.X + e)[0] - process.latent(rows.X - e)[0] for e in steps]
    share = 1.0 if n_classes == 2 else np.sqrt(0.5)  # latent functions of several classes are scaled
    found = share * process.slopes(rows.X)
    np.testing.assert_allclose(found, np.transpose(rises, (2, 1, 0)) / (2 * h), rtol=1e-5, atol=1e-6)


def test_feature_relevance_names_the_inputs_that_matter_by_default():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    relevance = GPClassifier().fit(X, (X[:, 1] + X[:, 4] > 0).astype(int)).feature_relevance_
    assert set(np.argsort(-relevance)[:2]) == {1, 4} and relevance[[1, 4]].sum() > 0.9


# Estimator, files and exports -----------------------------------------------------------------------------------------


def fitted_sum(n_classes):
    """A classifier whose process is a sum of two kernels, one of them with a linear part."""
    X, y = table(90, n_classes)
    model = GPClassifier().fit(X, y)
    rows, units = standardise_rows(merge_class_rows(X, y, n_classes))
    members = [
        Member(0.7, Calibration(1.7, 1.0), learn_latent(rows, STRUCTURES[2])),
        Member(0.4, Calibration(0.9, 0.3), learn_latent(rows, STRUCTURES[1])),
    ]
    process = ClassModel(units, tuple(members), rows.base_rates, model.selection_)
    model.fitted_ = replace(model.fitted_, classifier=process, class_process=process)
    return model, np.ascontiguousarray(2.0 * table(40, seed=9)[0])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_sum_of_two_kernels_in_onnx(n_classes):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, new = fitted_sum(n_classes)
    session = onnxruntime.InferenceSession(relvec.to_onnx(model).SerializeToString())
    label, proba = session.run(None, {session.get_inputs()[0].name: new})
    np.testing.assert_array_equal(label, model.predict(new))
    np.testing.assert_allclose(proba, model.predict_proba(new), atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_sum_of_two_kernels_in_a_file(n_classes, tmp_path):
    model, new = fitted_sum(n_classes)
    relvec.save(model, tmp_path / "model")
    np.testing.assert_array_equal(relvec.load(tmp_path / "model").predict_proba(new), model.predict_proba(new))
    process = model.process_
    broken = replace(process, members=(replace(process.members[0], model=process),))
    model.fitted_ = replace(model.fitted_, classifier=broken, class_process=broken)
    relvec.save(model, tmp_path / "broken")
    with pytest.raises(ModelFileError):
        relvec.load(tmp_path / "broken")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_wide_table_keeps_no_factor_of_all_its_inputs(n_classes, tmp_path):
    # A factor of 8,000 inputs took 1.5 GB.
    rng = np.random.default_rng(0)
    X, new = rng.normal(1.0, 2.0, size=(24, 90)), rng.normal(size=(20, 90))
    model = GPClassifier().fit(X, np.digitize(X[:, :30].sum(axis=1), [30.0] if n_classes == 2 else [24.0, 36.0]))
    process = model.process_
    assert [member.model.factors.shape[1] for member in process.members] == [25]
    P = model.predict_proba(new)
    wide = replace(process, members=tuple(replace(m, model=m.model.widen()) for m in process.members))
    np.testing.assert_allclose(wide.predict_proba(new), P, atol=1e-9)
    (short,), (full,) = (expand_members(process, 90, variance=each) for each in (False, True))
    for f, g in zip(short.functions, full.functions, strict=True):
        np.testing.assert_allclose(f.weights, g.weights, atol=1e-9)
    relvec.save(model, tmp_path / "model")
    np.testing.assert_array_equal(relvec.load(tmp_path / "model").predict_proba(new), P)
    directions = process.members[0].model.directions
    for wrong in (directions[1:], directions[:, 1:], directions[0], None):
        broken = replace(process.members[0].model, directions=wrong)
        broken = replace(process, members=(replace(process.members[0], model=broken),))
        model.fitted_ = replace(model.fitted_, classifier=broken, class_process=broken)
        relvec.save(model, tmp_path / "broken")
        with pytest.raises(ModelFileError, match="do not fit together"):
            relvec.load(tmp_path / "broken")


def test_a_choice_holds_one_fold_at_a_time(monkeypatch):
    # Five copies of the rows and all models of the folds took more than the memory limit.
    held, most = weakref.WeakSet(), []

    def deal(*given):
        found = deal_fold(*given)
        held.update(found)
        most.append(len(held))
        return found

    monkeypatch.setattr(choosing, "deal_fold", deal)
    X, y = table(60)
    rows, _ = standardise_rows(merge_class_rows(X, y, 2))
    choose(rows, standard_candidates(rows.X)[:1])
    assert len(most) == 5 and max(most) <= 4  # two of the last fold, until they are replaced


def test_a_process_has_attributes_of_its_own():
    X, y = table(60, 3)
    model = GPClassifier().fit(X, y)
    machine = ("weights_", "alpha_", "gamma_", "covariance_", "basis_", "atoms_", "relevance_", "certificate_")
    assert not any(hasattr(model, name) for name in machine)
    np.testing.assert_array_equal(model.vectors_, X[model.vector_rows_])
    assert np.all(np.diff(model.vector_rows_) > 0) and model.process_.n_vectors >= len(model.vectors_)
    assert model.feature_relevance_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("kernel", "width"), [("gaussian", 1.5), ("matern32", [1.0, 2.0, 3.0]), ("matern52", "scale")])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_process_with_a_given_kernel_holds_its_widths(kernel, width, n_classes, tmp_path):
    X, y = table(80, n_classes)
    X = 10.0 * X + 3.0
    wide = np.multiply(10.0, width).tolist() if not isinstance(width, str) else width
    model = GPClassifier(kernel=kernel, width=wide, max_vectors=20).fit(X, y)
    if not isinstance(width, str):
        np.testing.assert_allclose(model.width_, np.broadcast_to(wide, 3))
    assert model.width_rule_ == "given" and 1 <= len(model.vectors_) <= 20
    small = GPClassifier(kernel=kernel, width=width, max_vectors=20).fit(X / 10.0, y)
    np.testing.assert_allclose(model.predict_proba(X[:9]), small.predict_proba(X[:9] / 10.0), atol=1e-6)
    far = np.full((1, 3), 1e4)
    np.testing.assert_allclose(model.predict_proba(far)[0], np.bincount(y) / len(y), atol=0.03)
    relvec.save(model, tmp_path / "model.relvec")
    again = relvec.load(tmp_path / "model.relvec")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_kernel_is_compared_or_given():
    X, y = table(60)
    assert "gaussian[ranges]" in {e.name for e in GPClassifier().fit(X, y).selection_.entries}
    learned = GPClassifier(kernel="matern32").fit(X, y)
    assert {e.name for e in learned.selection_.entries} == {"matern32", "matern32[3]"}
    with pytest.raises(ValueError, match="kernel must be 'auto', 'gaussian', 'matern32' or 'matern52', got 'cauchy'"):
        GPClassifier(kernel="cauchy").fit(X, y)


def test_columns_that_do_not_vary_leave_the_base_rates():
    y = np.arange(300) % 3 > 0
    model = GPClassifier().fit(np.ones((300, 2)), y)
    np.testing.assert_allclose(model.predict_proba([[1.0, 1.0], [5.0, 0.0]]), [[1 / 3, 2 / 3]] * 2, atol=0.01)
    assert model.vectors_.shape == (0, 2) and model.feature_relevance_.tolist() == [0.5, 0.5]


def test_no_more_vectors_are_kept_than_asked_for():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    y = (np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=150) > 0).astype(int)
    assert 1 <= len(GPClassifier(max_vectors=12).fit(X, y).vectors_) <= 12
    rows = standardise_rows(merge_class_rows(X, y, 2))[0]
    each, one = (Structure((Part(GAUSSIAN, kind),), False, 4) for kind in (True, False))
    members = tuple(Member(0.5, Calibration(), learn_latent(rows, structure)) for structure in (each, one))
    small = share_vectors(rows, members, 12)
    assert 6 <= len(np.unique(np.concatenate([m.model.vectors for m in small]), axis=0)) <= 12
    assert share_vectors(rows, members, 150) == members


def test_class_weights_multiply_sample_weights():
    X, y = table(80)
    weights = 1.0 + np.arange(80) % 2
    one = GPClassifier(class_weight={0: 1.0, 1: 2.0}).fit(X, y, sample_weight=weights)
    other = GPClassifier().fit(X, y, sample_weight=weights * np.where(y == 1, 2.0, 1.0))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_a_second_has_time_for_fewer_vectors_of_many_rows_and_an_hour_for_all():
    rows = DistinctRows(np.zeros((50_000, 1)), np.ones((50_000, 2)))
    usual = effort_for(rows)
    assert effort_for(rows, seconds=1.0).final < 0.25 * usual.final
    assert effort_for(rows, seconds=3600.0) == usual


def test_a_time_limit_is_told():
    X, y = table(300)
    with pytest.warns(ConvergenceWarning, match="TIME_LIMIT"):
        model = GPClassifier(time_limit=1e-6).fit(X, y)
    assert model.status_ == "time_limit" and np.isfinite(model.predict_proba(X)).all()


def test_rows_at_the_end_of_the_numbers_have_probabilities():
    X, _ = table(60)
    model = GPClassifier().fit(X, X[:, 0] > 0)
    far = model.predict_proba([[1e100, 0.0, 0.0], [1e160, 0.0, 0.0], [1.7e308, -1.7e308, 1.7e308]])
    assert np.isfinite(far).all()
    np.testing.assert_allclose(far[0], far[1])
