"""Groups of rows: held out together wherever a fit or a calibration holds rows out."""

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.model_selection import GroupKFold

from relvec import (
    RVC,
    RVR,
    GPClassifier,
    GPRegressor,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
)
from relvec.gaussian_process import fit_process
from relvec.gaussian_process import rows as merging
from relvec.gaussian_process.classes import rows as class_rows
from relvec.gaussian_process.evidence import leave_one_out, posterior, predict
from relvec.gaussian_process.fit import prepare
from relvec.gaussian_process.held_out import split_rows
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.rows import join_labels, merge_rows
from relvec.inference.conformal import ConformalScores
from relvec.inference.scale import AS_IT_IS
from relvec.runtime.clock import Clock
from relvec.sparse.held_out import group_rows, make_folds

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

REGRESSORS = [RVR(), RVR(width=1.5), GPRegressor(), SparseBayesianRegressor()]
CLASSIFIERS = [RVC(), GPClassifier(), SparseBayesianClassifier()]
ONE = (Structure((Part(Shape.GAUSSIAN),), False, 3),)


def subjects(n_subjects, n_each, seed, effect=1.0):
    """Subjects measured again and again: inputs near each other, targets with an effect of the subject."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n_subjects), n_each)
    X = rng.normal(size=(n_subjects, 3))[who] + 0.05 * rng.normal(size=(len(who), 3))
    own = effect * rng.normal(size=n_subjects)[who]
    return X, 0.5 * X[:, 0] + own + 0.1 * rng.normal(size=len(who)), who


def shuffled(rows, seed):
    return np.random.default_rng(seed).permutation(rows)


# --- folds and hold-outs ---------------------------------------------------------------------------------------------


def is_whole(inside, outside):
    """Whether no group is on both sides, and both have rows."""
    return len(inside) > 0 and len(outside) > 0 and not set(inside.tolist()) & set(outside.tolist())


@pytest.mark.parametrize("n_each", [1, 7, 150])
@pytest.mark.parametrize("n_subjects", [3, 15])
def test_folds_of_a_machine_are_whole_groups(n_subjects, n_each):
    X, y, who = subjects(n_subjects, n_each, 0)
    rows = merge_rows(X, y, None, who)
    folds = make_folds(group_rows(rows))
    assert all(is_whole(rows.group[fold], np.delete(rows.group, fold)) for fold in folds)
    assert len(np.unique(np.concatenate(folds))) == sum(map(len, folds))  # no row is in two folds
    if len(rows) <= 1500:
        assert len(folds) > 1 and sum(map(len, folds)) == len(rows)


@pytest.mark.parametrize(("n_subjects", "n_each"), [(2, 5), (4, 200), (30, 30), (600, 2)])
def test_the_last_rows_of_a_process_are_whole_groups(n_subjects, n_each):
    X, y, who = subjects(n_subjects, n_each, 1)
    rows = prepare(X, y, None, AS_IT_IS, Clock(), groups=who).rows
    n_held = rows.n_last(min(len(rows) // 5, 500))
    assert is_whole(rows.group[-n_held:], rows.group[:-n_held])
    assert min(len(rows) // 5, 500) <= n_held <= max(len(rows) // 5, 500) + n_each
    for fold in split_rows(rows, rows.labels):
        assert is_whole(rows.group[fold], np.delete(rows.group, fold))


def test_a_group_of_most_rows_is_not_held_out_where_there_are_others():
    X, y, _ = subjects(10, 10, 2)
    rows = prepare(X, y, None, AS_IT_IS, Clock(), groups=np.repeat([0, 1, 2], [80, 10, 10])).rows
    assert len(set(rows.group[-rows.n_last(20) :])) == 2 and rows.n_last(20) == 20


@pytest.mark.parametrize("n_classes", [2, 3])
def test_folds_of_classes_are_whole_groups_with_every_class(n_classes):
    X, y, who = subjects(40, 4, 3)
    labels = np.digitize(y, [0.0, 0.8][: n_classes - 1])
    rows = class_rows.standardise_rows(class_rows.merge_class_rows(X, labels, n_classes, None, who))[0]
    held = []
    for k in range(5):
        train, test = class_rows.deal_fold(rows, 5, k)
        assert is_whole(test.group, train.group) and (train.counts.sum(0) > 0).all()
        held.append(len(test))
    assert sum(held) == len(rows) and max(held) < 2 * min(held)


def test_rows_left_out_are_predicted_without_their_group():
    X, y, who = subjects(6, 5, 4)
    rows, theta = merge_rows(X, y, None, who), np.array([0.1, 0.3, -2.0])
    mean, variance = leave_one_out(ONE[0], theta, rows)
    for group in np.unique(rows.group):
        own = rows.group == group
        rest = rows.take(~own)
        apart = predict(ONE[0], theta, rest, posterior(ONE[0], theta, rest), rows.X[own])
        np.testing.assert_allclose(mean[own], apart[0], rtol=1e-8)
        np.testing.assert_allclose(variance[own], apart[1], rtol=1e-8)


def test_groups_that_share_a_row_are_one():
    X, y = np.array([[1.0], [2.0], [1.0], [3.0], [4.0]]), np.arange(5.0)
    rows = merge_rows(X, y, None, np.array([0, 0, 1, 2, 1]))
    of = dict(zip(rows.X[:, 0].tolist(), rows.group.tolist(), strict=True))
    assert of[1.0] == of[2.0] == of[4.0] != of[3.0]
    assert merge_rows(X, y).group is None
    counted = class_rows.merge_class_rows(X, np.zeros(5, dtype=int), 2, None, np.array([0, 0, 1, 2, 1]))
    assert len(np.unique(counted.group)) == 2


def test_labels_joined_by_a_chain_are_one():
    rng = np.random.default_rng(5)
    first, second = rng.integers(0, 30, 40), rng.integers(0, 30, 40)
    same = np.equal.outer(first, first) | np.equal.outer(second, second)
    for _ in range(40):
        same = same @ same  # of bool: reached by one more step
    np.testing.assert_array_equal(np.equal.outer(*[join_labels(first, second)] * 2), same)


# --- what a fit does with them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=str)
def test_rows_that_are_each_a_group_are_rows_without_groups(model):
    X, y, _ = subjects(15, 4, 6, effect=0.2)
    y = y if is_regressor(model) else y > 0
    plain, alone = clone(model).fit(X, y), clone(model).fit(X, y, groups=np.arange(len(y)))
    said, told = (m.predict(X) if is_regressor(m) else m.predict_proba(X) for m in (plain, alone))
    np.testing.assert_allclose(said, told, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", [RVR(), GPRegressor(), GPClassifier()], ids=str)
def test_neither_names_of_groups_nor_the_order_of_rows_matter(model):
    X, y, who = subjects(15, 4, 7)
    y = y if is_regressor(model) else y > 0
    order = shuffled(len(y), 8)
    names = np.array([f"subject {(7 * i) % 15}" for i in who])
    one, other = clone(model).fit(X, y, groups=who), clone(model).fit(X[order], y[order], groups=names[order].tolist())
    said, told = (m.predict(X) if is_regressor(m) else m.predict_proba(X) for m in (one, other))
    np.testing.assert_allclose(said, told, rtol=1e-6, atol=1e-8)


def test_the_effect_of_a_group_is_not_learned_as_if_it_were_of_the_inputs():
    X, y, who = subjects(20, 10, 1)
    X = X + np.random.default_rng(1).normal(0.0, 0.3, X.shape)  # subjects overlap: nothing but the groups tells of them
    new_X, new_y, _ = subjects(300, 1, 11)
    density = [RVR().fit(X, y, groups=groups).log_predictive_density(new_X, new_y).mean() for groups in (None, who)]
    assert density[1] > density[0] + 0.5


def test_probabilities_of_rows_of_new_groups_are_honest():
    loss = np.zeros(2)
    for seed in range(3):
        X, y, who = subjects(20, 10, seed)
        X = X + np.random.default_rng(seed).normal(0.0, 0.3, X.shape)  # nothing but the groups tells of the subjects
        new_X, new_y, _ = subjects(300, 1, seed + 10)
        for i, groups in enumerate((None, who)):
            proba = GPClassifier().fit(X, y > 0, groups=groups).predict_proba(new_X)
            loss[i] -= np.log(proba[np.arange(300), (new_y > 0).astype(int)]).mean() / 3
    assert loss[1] < loss[0] - 0.1 and loss[1] < np.log(2.0) + 0.05


def test_a_process_of_many_rows_holds_out_whole_groups(monkeypatch):
    X, y, who = subjects(40, 20, 11, effect=0.2)
    seen = []
    real = merging.Rows.n_last
    monkeypatch.setattr(merging.Rows, "n_last", lambda rows, least: seen.append(rows) or real(rows, least))
    fit_process(X, y, None, who, candidates=ONE, target=AS_IT_IS)
    assert seen and all(rows.group is not None for rows in seen)


def test_more_rows_than_vectors_keep_their_groups():
    X, y, who = subjects(60, 20, 12, effect=0.2)
    model = GPRegressor(noise="constant", max_vectors=40).fit(X, y, groups=who)
    assert model.fitted_.n_kept <= 40 and np.isfinite(model.log_predictive_density(X, y)).all()


@pytest.mark.parametrize("model", [RVR(), RVC(), GPRegressor(), GPClassifier(), SparseBayesianRegressor(),
                                   SparseBayesianClassifier()], ids=str)  # fmt: skip
def test_groups_that_say_nothing_are_refused_by_name(model):
    X, y, who = subjects(5, 4, 13)
    y = y if is_regressor(model) else y > 0
    before = dict(vars(model))
    for groups, said in ((who[:-1], "each of 20 rows"), (np.zeros(20), "one label"), (np.ones((20, 1)), "shape")):
        with pytest.raises(ValueError, match=f"groups .*{said}"):
            model.fit(X, y, groups=groups)
    assert vars(model) == before


@pytest.mark.parametrize("model", [RVR(), GPRegressor(), GPClassifier()], ids=str)
def test_groups_with_the_same_inputs_are_refused(model):
    X, y, who = subjects(5, 4, 13)
    y = y if is_regressor(model) else y > 0
    with pytest.raises(ValueError, match="groups share rows"):
        model.fit(np.tile(X[:4], (5, 1)), y, groups=who)


def test_noise_that_is_learned_row_by_row_refuses_groups():
    X, y, who = subjects(10, 6, 14)
    with pytest.raises(ValueError, match="with groups leave noise"):
        GPRegressor(noise="heteroscedastic").fit(X, y, groups=who)


def test_rows_on_disk_refuse_groups(tmp_path):
    X, y, who = subjects(10, 6, 15)
    on_disk = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=X.shape)
    on_disk[:] = X
    SparseBayesianRegressor().fit(on_disk, y, groups=who)  # small enough to be read
    big = np.memmap(tmp_path / "big", dtype=np.float64, mode="w+", shape=(40_000, 40))
    with pytest.raises(ValueError, match="rows on disk cannot be held out by groups"):
        SparseBayesianRegressor(memory_limit="10MB").fit(big, np.zeros(40_000), groups=np.arange(40_000) % 7)


# --- calibration -----------------------------------------------------------------------------------------------------


def test_scores_of_groups_hold_their_coverage_for_a_row_of_a_new_group():
    rng = np.random.default_rng(16)
    draws, held, naive = 2000, 0, 0
    for _ in range(draws):
        size = np.r_[400, np.ones(19, dtype=int)]
        level = rng.normal(size=21)
        who = np.repeat(np.arange(20), size)
        scores = np.abs(level[who] + 0.1 * rng.normal(size=len(who)))[None]
        new = abs(level[20] + 0.1 * rng.normal())
        held += new <= ConformalScores.of_rows(scores, False, who).thresholds(0.8)[0]
        naive += new <= ConformalScores.of_rows(scores, False).thresholds(0.8)[0]
    error = np.sqrt(0.8 * 0.2 / draws)
    assert held / draws > 0.8 - 3 * error > naive / draws
    assert held / draws < 0.8 + 1 / 21 + 3 * error


def test_rows_that_are_each_a_group_have_the_thresholds_of_rows():
    scores = np.abs(np.random.default_rng(17).normal(size=(2, 37)))
    one, other = ConformalScores.of_rows(scores, False), ConformalScores.of_rows(scores, False, shuffled(37, 18))
    for coverage in (0.1, 0.5, 0.9, 37 / 38):
        np.testing.assert_array_equal(one.thresholds(coverage), other.thresholds(coverage))
    assert np.isinf(other.thresholds(0.99)).all() and one.max_coverage == other.max_coverage


@pytest.mark.parametrize("model", [RVR(width=1.5), RVC(), GPRegressor(), GPClassifier(), SparseBayesianRegressor(),
                                   SparseBayesianClassifier()], ids=str)  # fmt: skip
def test_every_estimator_calibrates_by_groups(model):
    X, y, who = subjects(24, 4, 19, effect=0.3)
    y = y if is_regressor(model) else y > 0
    first = who < 12
    model.fit(X[first], y[first], groups=who[first]).calibrate(X[~first], y[~first], groups=who[~first])
    assert model.calibration_.n_groups == 12 and model.calibration_.n_rows == 48
    assert model.calibration_.max_coverage == 12 / 13
    with pytest.raises(ValueError, match="groups must hold a label"):
        model.calibrate(X[~first], y[~first], groups=who[first][:-1])


@pytest.mark.parametrize("cv", [4, GroupKFold(4)])
def test_folds_of_a_calibration_are_whole_groups(cv):
    X, y, who = subjects(12, 5, 20)
    for model, targets in ((SparseBayesianRegressor(), y), (SparseBayesianClassifier(), y > 0)):
        model.fit(X, targets).calibrate(X, targets, cv=cv, groups=who)
        fold = model.calibration_.fold
        assert len(set(zip(who.tolist(), fold.tolist(), strict=True))) == 12 and len(set(fold.tolist())) == 4


def test_near_copies_are_held_out_together_without_being_told():
    losses = []
    for seed in range(3):  # labels are those of chance, and each was seen six times
        rng = np.random.default_rng(seed)
        C, place = rng.normal(size=(30, 7)), np.repeat(np.arange(30), 6)
        X, y = C[place] + 0.01 * rng.normal(size=(180, 7)), rng.integers(0, 2, 30)[place]
        losses.append(-np.log(GPClassifier().fit(X, y).predict_proba(rng.normal(size=(300, 7)))).mean())
    assert np.mean(losses) < 0.9


def test_a_machine_is_not_sure_of_classes_that_near_rows_share():
    losses = []
    for seed in range(2):
        (X, y, _), (new_X, new_y, _) = subjects(20, 10, seed), subjects(500, 1, seed + 100)
        proba = RVC().fit(X, y > 0).predict_proba(new_X)
        losses.append(-np.log(proba[np.arange(500), (new_y > 0).astype(int)]).mean())
    assert np.mean(losses) < 0.9  # 2 and more where near rows are held out apart


def test_near_rows_of_a_large_table_are_held_out_together():
    n = 900
    rows = merging.Rows(np.zeros((n, 1)), np.zeros(n), np.ones(n), np.zeros(n))
    (held,) = split_rows(rows, np.arange(n) // 3)
    assert n // 5 <= len(held) < n // 5 + 3
    assert all(len(np.intersect1d(held, np.arange(first, first + 3))) in (0, 3) for first in range(0, n, 3))
    (held,) = split_rows(rows, np.repeat([0, 1], [n - 60, 60]))
    assert np.array_equal(held, np.arange(n - 60, n))
