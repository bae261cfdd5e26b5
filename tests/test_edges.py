"""Rare turns, each held against the ordinary way: dictionaries in pieces, kernels in kernels, files of another age."""

import io
import logging
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from places import find_place
from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianRegressor, to_c
from relvec.app import cli
from relvec.app.cli import fit as fit_command
from relvec.app.tables import TableError, as_table, fit_table
from relvec.app.tables.cells import mark_missing
from relvec.basis import KernelBasis, Precomputed
from relvec.basis.concat import numbers_per_entry
from relvec.design import DenseDesign, dense, readers, samples
from relvec.design.samples import LocalSamples, draw_rows
from relvec.estimators.base import check_predictions
from relvec.inference import linalg
from relvec.kernels import Cauchy, Gaussian, Matern
from relvec.runtime import arrays
from relvec.solvers import Sequential

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=60)
LABELS = np.where(X[:, 0] + 0.3 * RNG.normal(size=60) > 0.0, "b", "a")


# ---------------------------------------------------------------- kernels and dictionaries


def test_rows_that_lie_close_together_keep_their_distances(monkeypatch):
    monkeypatch.setattr("relvec.kernels.stationary._MAX_PAIRS_BY_DIFFERENCES", 0)
    cluster = 1e-6 * RNG.normal(size=(30, 40))
    rows = np.vstack([cluster, 10.0 + RNG.normal(size=(10, 40))])
    found = -np.log(Gaussian(1e-5)(rows, rows)[:30, :30])
    np.testing.assert_allclose(found, 1e10 * cdist(cluster, cluster, "sqeuclidean"), rtol=1e-6, atol=1e-12)


def test_a_matern_kernel_bends_as_differences_of_its_slope_say():
    kernel, D2, step = Matern(1.5, 1.0), np.array([0.3, 1.0, 4.0]), 1e-6
    slopes = [kernel._derivative(D2 + sign * step) for sign in (-1.0, 1.0)]
    np.testing.assert_allclose(kernel._second_derivative(D2), (slopes[1] - slopes[0]) / (2.0 * step), rtol=1e-6)
    assert kernel._second_derivative(np.zeros(1)).tolist() == [0.0]  # where there is none


def test_the_memory_of_kernels_of_kernels_is_counted():
    plain, nested = (KernelBasis(kernel).bind(X) for kernel in (Gaussian(1.0), Gaussian(1.0) + Cauchy(1.0)))
    assert numbers_per_entry(nested) == numbers_per_entry(plain) + 1


def test_a_precomputed_matrix_is_bound_once():
    bound = Precomputed().bind(np.eye(3))
    assert bound.bind(np.eye(3)) is bound


def test_a_long_dictionary_is_scanned_in_pieces(monkeypatch):
    Phi, directions = RNG.normal(size=(20, 50)), RNG.normal(size=(20, 2))
    monkeypatch.setattr(dense, "_PIECE", 7)
    design = DenseDesign(Phi)

    def add(a, b):
        return np.hstack([a, b])

    found = design.scan(directions, lambda atoms, projected: np.vstack([atoms, projected]), add)
    np.testing.assert_array_equal(found[0], np.arange(50))
    np.testing.assert_allclose(found[1:], design.project(directions), rtol=1e-12)


def test_values_come_in_the_order_of_their_items_from_several_threads(monkeypatch):
    monkeypatch.setattr(samples, "n_threads", lambda: 3)
    seen = set()

    def square(i):
        seen.add(threading.get_ident())
        return i * i

    assert list(samples.in_order(square, range(40))) == [i * i for i in range(40)]
    assert threading.get_ident() not in seen


def test_a_draw_of_rows_without_weight_is_empty():
    nothing = draw_rows(LocalSamples(X, Y[:, None], np.zeros(60)), 10)
    assert len(nothing.rows) == 0


# ---------------------------------------------------------------- searches


def test_one_action_at_a_time_for_classes():
    model = RVC(width=1.0, solver=Sequential(select="gain", restarts=0)).fit(X, LABELS)
    assert model.status_ == "converged" and np.diff(model.history_["size"]).max() == 1


def test_starts_of_widths_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="relvec"):
        RVR(width="learn", verbose=2).fit(X, Y)
    assert any("widths: start 1 evidence" in record.getMessage() for record in caplog.records)


def test_joint_searches_that_interpolate_say_so():
    groups = np.repeat([0, 1], 2)
    columns = RNG.normal(size=(30, 4))
    with pytest.warns(ConvergenceWarning, match="NOISE_FLOOR"):
        exact = SparseBayesianRegressor(column_groups=groups).fit(columns, columns @ [1.0, -1.0, 0.5, 0.0])
    assert exact.status_ == "noise_floor"


# ---------------------------------------------------------------- estimators


def test_noise_that_depends_on_the_inputs_is_left_out_of_functions_when_asked():
    rows = np.linspace(-3.0, 3.0, 150)[:, None]
    y = np.sin(rows[:, 0]) + np.exp(0.6 * rows[:, 0] - 2.0) * RNG.normal(size=150)
    model = GPRegressor(noise="heteroscedastic").fit(rows, y)
    with_noise, without = (model.predict(rows[:20], return_cov=True, noise=noise)[1] for noise in (True, False))
    added = np.diag(with_noise - without)
    assert np.all(added > 0.0) and np.ptp(added) > 0.0
    np.testing.assert_allclose(with_noise - np.diag(added), without, atol=1e-12)
    drawn = {noise: model.sample_y(rows[-5:], 400, random_state=0, noise=noise) for noise in (True, False)}
    assert np.all(drawn[False].std(axis=1) < 0.5 * drawn[True].std(axis=1))


def test_a_covariance_takes_the_blocks_of_rows_on_disk_together(tmp_path):
    model = RVR(width=1.0).fit(X, Y)
    on_disk = np.memmap(tmp_path / "X", "float64", "w+", shape=X[:30].shape)
    on_disk[:] = X[:30]
    mean, covariance = model.predict(on_disk, return_cov=True)
    expected = model.predict(X[:30], return_cov=True)
    np.testing.assert_allclose(mean, expected[0])
    np.testing.assert_allclose(covariance, expected[1])


def test_predictions_whose_sum_overflows_but_not_they_are_fine():
    with np.errstate(over="ignore"):
        check_predictions(np.full(4, 1e308))
    with pytest.raises(ValueError, match="the prediction for row 1 of X overflows"):
        check_predictions(np.array([1.0, np.inf]))


def test_intervals_are_calibrated_on_ends_that_were_all_observed():
    ends = np.column_stack([Y, Y])
    censored = GPRegressor(likelihood="censored").fit(X[:40], ends[:40]).calibrate(X[40:], ends[40:])
    assert censored.predict_interval(X[:3]).shape == (3, 2)
    with pytest.raises(ValueError, match="leave rows with censored targets out"):
        censored.calibrate(X[40:], np.column_stack([Y[40:], Y[40:] + 1.0]))


def test_a_parquet_file_that_outgrows_memory_goes_on_in_a_file(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "t": Y}).to_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr(readers, "_BATCH", 20)
    monkeypatch.setattr(readers, "MAX_MEMORY_SHARE", 1e-12)
    loaded = readers.load_rows(tmp_path / "x.parquet", "t", None, 1.5e12 * X[:20].nbytes, False)
    np.testing.assert_array_equal(np.asarray(loaded.X[0 : len(X)]), X)
    assert not isinstance(loaded.X, np.ndarray)


def test_a_parquet_file_without_rows_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    pd.DataFrame({"a": X[:0, 0], "t": Y[:0]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="has no rows"):
        RVR().fit(tmp_path / "x.parquet", "t")


def test_parts_of_a_parquet_file_without_rows_are_skipped(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pa.table({"a": X[:, 0], "t": Y})
    with pyarrow.parquet.ParquetWriter(tmp_path / "x.parquet", table.schema) as writer:
        for part in (table[:0], table[:30], table[:0], table[30:]):
            writer.write_table(part)
    model = RVR(width=1.0).fit(tmp_path / "x.parquet", "t")
    found = model.predict(tmp_path / "x.parquet")
    np.testing.assert_allclose(found, RVR(width=1.0).fit(X[:, :1], Y).predict(X[:, :1]), atol=1e-6)


# ---------------------------------------------------------------- exports


def test_scalers_without_clipping_and_empty_columns_are_written_as_they_are():
    rows = np.column_stack([X, np.full(60, np.nan)])
    imputer = SimpleImputer()
    with pytest.warns(UserWarning, match="Skipping features"):
        pipeline = make_pipeline(imputer, MinMaxScaler(), RVR(kernel=None, basis="linear")).fit(rows, Y)
    text = to_c(pipeline)
    assert " ? 0.0 : " not in text and text.count("isnan(") == 2


# ---------------------------------------------------------------- tables


def test_words_for_missing_cells_leave_dates_alone():
    dates = as_table({"day": np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")})["day"]
    assert mark_missing(dates, ("none",)) is dates


def test_rows_with_a_missing_input_are_left_out_and_counted_when_asked():
    table = {"x": [0.0, 1.0, np.nan, 3.0, 4.0], "y": [0.0, 1.0, 2.0, 3.0, 4.5], "note": ["a"] * 5}
    fitted = fit_table(table, "y", drop_rows=True)
    assert len(fitted.table) == 4 and any("1 row left out: a cell is missing" in note for note in fitted.notes)
    whole = fit_table({"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 2.5]}, "y", drop_rows=True)
    assert len(whole.table) == 3 and not any("missing" in note for note in whole.notes)
    with pytest.raises(TableError, match="1 row without a missing cell"):
        fit_table({"x": [0.0, np.nan, np.nan], "z": [1.0, 2.0, np.nan], "y": [0.0, 1.0, 2.0]}, "y", drop_rows=True)


# ---------------------------------------------------------------- commands


def write_lines(path, names, *columns):
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in zip(*columns, strict=True))]) + "\n")
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_from_a_pipe_names_no_file_for_the_next_command(folder, monkeypatch, capsys):
    data = write_lines(folder / "t.csv", "x,z,y", X[:, 0], X[:, 1], Y).read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert cli.main(["fit", "-", "--target", "y", "--holdout", "0"]) == 0
    assert "next:  relvec predict model.relvec NEW_DATA" in capsys.readouterr().out


def test_a_calibrated_fit_is_checked_by_a_second_one_that_is_calibrated(folder, monkeypatch, capsys):
    rows = RNG.normal(size=200)
    write_lines(folder / "t.csv", "x,y", rows, np.sin(rows) + 0.1 * RNG.normal(size=200))
    calibrated = []
    monkeypatch.setattr(fit_command, "calibrate_table", lambda model, rows: calibrated.append((model, len(rows))))
    assert cli.main(["fit", "t.csv", "--target", "y", "--calibrate", "0.2"]) == 0
    assert "by a second model fitted to the other" in capsys.readouterr().out
    (saved, rows), (second, again) = calibrated
    assert saved is not second and rows == again == 40


def test_stray_cells_of_rows_held_out_are_missing_as_in_the_fit(folder, capsys):
    cells = [f"{value:.3f}" for value in np.linspace(0.0, 9.0, 60)]
    cells[5], cells[31] = "broken", "broken"
    write_lines(folder / "t.csv", "x,z,y", cells, X[:, 1], Y)
    assert cli.main(["fit", "t.csv", "--target", "y", "--holdout", "0.4"]) == 0
    told = capsys.readouterr().out
    assert "'broken'" in told and "scores on 24 rows kept out of the fit" in told


# ---------------------------------------------------------------- processes of classes


def test_an_earlier_fit_to_other_inputs_is_not_followed():
    model = GPClassifier(warm_start=True).fit(X, LABELS)
    wider = np.column_stack([X, X[:, 0] ** 2])
    np.testing.assert_allclose(
        model.fit(wider, LABELS).predict_proba(wider), GPClassifier().fit(wider, LABELS).predict_proba(wider)
    )


# ---------------------------------------------------------------- distributions


def test_quantiles_of_a_rate_are_those_of_its_draws():
    counts = RNG.poisson(np.exp(0.5 + np.sin(X[:, 0])))
    model = RVR(likelihood="poisson", width=1.0).fit(X, counts)
    quantiles = model.predict_quantiles(X[:4], [0.1, 0.5, 0.9], noise=False)
    drawn = model.sample_y(X[:4], 20_000, random_state=0, noise=False)
    np.testing.assert_allclose(quantiles, np.quantile(drawn, [0.1, 0.5, 0.9], axis=1).T, rtol=0.05)


def test_centres_of_a_kernel_with_a_kink_move_without_an_evidence_of_their_own():
    model = RVR(kernel="laplace", width=3.0, centres="move", noise_variance=0.01).fit(X, Y)
    assert np.isnan(model.placement_.log_evidence) and np.isnan(model.placement_.deviation).all()
    assert np.isfinite(model.log_marginal_likelihood_)


# ---------------------------------------------------------------- factors


@pytest.mark.parametrize("place", [None, "array_api_strict"])
def test_a_covariance_has_as_little_added_as_lets_it_be_factored(place):
    there = np.array if place is None else find_place(place).to_device
    singular = np.ones((4, 4))
    L = arrays.to_host(linalg.factor_lower(there(singular)))
    np.testing.assert_allclose(L @ L.T, singular, atol=1e-6)
    assert np.all(np.triu(L, 1) == 0.0)
    with pytest.raises(linalg.SingularError, match="the covariance of 4 rows is not positive definite"):
        linalg.factor_lower(there(-np.eye(4) + 2.0 * singular))


def test_an_error_that_is_not_about_the_matrix_is_not_taken_for_one(monkeypatch):
    strict = pytest.importorskip("array_api_strict")

    def fail(matrix):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(strict.linalg, "cholesky", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        linalg.factor_lower(strict.asarray(np.eye(2)))


def test_normal_equations_that_cannot_be_factored_leave_the_factor_to_reflections(monkeypatch):
    rows = RNG.normal(size=(6, 3))
    expected = np.linalg.cholesky(np.eye(3) + rows.T @ rows).T
    real = linalg.lapack
    failing = SimpleNamespace(dpotrf=lambda a, **options: (a, 1), dgeqrf=real.dgeqrf)
    monkeypatch.setattr(linalg, "lapack", failing)
    U = linalg.factor_ridge(rows)
    np.testing.assert_allclose(np.abs(U), np.abs(expected), rtol=1e-12)
