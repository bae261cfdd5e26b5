"""relvec.to_onnx: the graph gives what predict gives, in ONNX Runtime."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures, SplineTransformer, StandardScaler

import relvec
from exports import (
    CLASSIFIERS,
    DATA,
    NEW,
    PROCESSES,
    REGRESSORS,
    fitted,
    mixed_table,
    wide_latent,
    with_varying_error_bars,
)
from relvec import RVC, RVR, kernels
from relvec.basis import Functions
from relvec.export.onnx import pipelines, register

pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")


def session(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def run(model, inputs):
    made = session(model)
    return dict(zip([output.name for output in made.get_outputs()], made.run(None, inputs)))


@pytest.mark.parametrize("name", [*REGRESSORS, *PROCESSES])
def test_regression(name):
    model, X = fitted((REGRESSORS | PROCESSES)[name], *DATA), NEW
    found = run(relvec.to_onnx(model), {"X": X})
    mean, std = model.predict(X, return_std=True)
    assert found["mean"].dtype == np.float64 and found["mean"].shape == mean.shape
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["std"], std, rtol=1e-9, atol=1e-9)


def test_error_bars_that_depend_on_the_inputs():
    pipeline, X = with_varying_error_bars()
    model = pipeline[-1]
    assert len(model.noise_columns_)
    found = run(relvec.to_onnx(model), {"X": X})
    np.testing.assert_allclose([found["mean"], found["std"]], model.predict(X, return_std=True), rtol=1e-9, atol=1e-9)


def test_a_constant_in_the_place_of_a_process():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3))
    model = relvec.GPRegressor().fit(X, rng.normal(size=12))
    assert model.status_ == "baseline"
    found = run(relvec.to_onnx(model), {"X": X})
    np.testing.assert_allclose([found["mean"], found["std"]], model.predict(X, return_std=True), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classification(name):
    model, y = CLASSIFIERS[name]
    model = fitted(model, DATA[0], y)
    X = np.vstack([NEW, 30.0 * NEW])
    found, proba = run(relvec.to_onnx(model), {"X": X}), model.predict_proba(X)
    np.testing.assert_allclose(found["probabilities"], proba, rtol=1e-6, atol=1e-9)
    assert found["label"].dtype.kind in "iO"
    clear = np.diff(np.sort(proba, axis=1)[:, -2:]).ravel() > 1e-9  # no label where two are equally probable
    assert clear.sum() > 10
    assert found["label"][clear].tolist() == model.predict(X)[clear].tolist()


@pytest.mark.parametrize("scale", [0.0, 4.99, 8.0, 100.0, 1e6])
def test_wide_latent_functions(scale):
    model = wide_latent(scale)
    found = run(relvec.to_onnx(model), {"X": NEW})
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), rtol=1e-7, atol=1e-9)


def test_several_outputs_and_precomputed():
    X, y = DATA
    model = fitted(RVR(width="scale"), X, np.column_stack([y, X[:, 1]]))
    found = run(relvec.to_onnx(model), {"X": NEW})
    np.testing.assert_allclose(np.stack([found["mean"], found["std"]]), model.predict(NEW, return_std=True), atol=1e-9)
    kernel = kernels.Gaussian(2.0)
    model = fitted(RVR(kernel="precomputed", width="scale"), kernel(X, X), y)
    found = run(relvec.to_onnx(model), {"X": kernel(NEW, X)})
    np.testing.assert_allclose(found["mean"], model.predict(kernel(NEW, X)), atol=1e-9)


def test_one_row_and_none():
    model = fitted(RVR(width="scale"), *DATA)
    graph = relvec.to_onnx(model)
    assert run(graph, {"X": NEW[:1]})["mean"].shape == (1,)
    assert run(graph, {"X": NEW[:0]})["std"].shape == (0,)


@pytest.mark.parametrize("final", [RVR(width="scale"), RVC(width="scale")], ids=["regression", "classification"])
def test_a_pipeline_with_a_column_transformer(final):
    pytest.importorskip("skl2onnx", reason="needs the extra onnx")
    pd = pytest.importorskip("pandas")
    frame, y = mixed_table(pd)
    y = y if isinstance(final, RVR) else np.where(y > y.median(), "more", "less")
    columns = ColumnTransformer([
        ("n", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["a", "b"]),
        ("c", make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), ["c"]),
        ("p", make_pipeline(MinMaxScaler(), PolynomialFeatures(3)), ["a"]),
        ("o", OneHotEncoder(), ["k", "flag"]),
    ])  # fmt: skip
    frame = frame.assign(k=np.arange(len(frame)) % 3, flag=np.arange(len(frame)) % 2 == 0, unused="x")
    model = fitted(make_pipeline(columns, clone(final)), frame, y)
    numbers = frame.astype({"flag": float})
    graph = relvec.to_onnx(model, frame)
    found = run(graph, {entry.name: numbers[[entry.name]].to_numpy() for entry in graph.graph.input})
    if isinstance(final, RVR):
        mean, std = model.predict(frame, return_std=True)
        np.testing.assert_allclose(found["mean"][:, 0], mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found["std"][:, 0], std, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(frame), rtol=1e-6, atol=1e-6)
        assert found["label"].tolist() == model.predict(frame).tolist()


@pytest.mark.parametrize("name", [*REGRESSORS, *PROCESSES])
def test_every_kernel_in_a_pipeline(name):
    pytest.importorskip("skl2onnx", reason="needs the extra onnx")
    X, y = DATA
    columns = ColumnTransformer([("n", StandardScaler(), [0, 1])], remainder="passthrough")
    model = fitted(make_pipeline(columns, (REGRESSORS | PROCESSES)[name]), X, y)
    found = run(relvec.to_onnx(model, X), {"X": NEW})
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(found["mean"][:, 0], mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["std"][:, 0], std, rtol=1e-6, atol=1e-6)


def test_a_table_of_polars():
    pytest.importorskip("skl2onnx", reason="needs the extra onnx")
    pl = pytest.importorskip("polars")
    X, y = DATA
    table = pl.DataFrame({name: X[:, i] for i, name in enumerate("abc")})
    model = fitted(
        make_pipeline(ColumnTransformer([("n", StandardScaler(), ["c", "a"])]), RVR(width="scale")), table, y
    )
    found = run(relvec.to_onnx(model, table), {name: X[:, [i]] for i, name in enumerate("abc")})
    np.testing.assert_allclose(found["mean"][:, 0], model.predict(table), rtol=1e-6, atol=1e-6)


def test_steps_that_are_not_converted_or_wrongly(monkeypatch):
    pytest.importorskip("skl2onnx", reason="needs the extra onnx")
    X, y = DATA
    model = fitted(make_pipeline(SplineTransformer(), RVR(kernel=None, basis="linear")), X, y)
    with pytest.raises(NotImplementedError, match="cannot convert this pipeline"):
        relvec.to_onnx(model, X)
    model = fitted(make_pipeline(PolynomialFeatures(2), RVR(kernel=None, basis="linear")), X, y)
    right = pipelines.add_monomials
    monkeypatch.setattr(pipelines, "add_monomials", lambda graph, x, terms, d: right(graph, x, [(0,)] * 10, d))
    with pytest.raises(NotImplementedError, match="differs from the pipeline"):
        relvec.to_onnx(model, X)


def test_skl2onnx_alone_converts_registered_estimators():
    skl2onnx = pytest.importorskip("skl2onnx", reason="needs the extra onnx")
    register()
    X, y = DATA
    model = fitted(make_pipeline(StandardScaler(), RVC(width="scale")), X, (y > 0).astype(int))
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-4)):
        found = run(skl2onnx.to_onnx(model, X[:1].astype(dtype)), {"X": NEW.astype(dtype)})
        maps = np.array([[row[0], row[1]] for row in found["output_probability"]])
        np.testing.assert_allclose(maps, model.predict_proba(NEW), atol=max(tolerance, 1e-6))  # maps are in single
    model = fitted(make_pipeline(StandardScaler(), RVR(width="scale")), X, y)
    (mean,) = run(skl2onnx.to_onnx(model, X[:1]), {"X": NEW}).values()
    np.testing.assert_allclose(mean[:, 0], model.predict(NEW), atol=1e-9)


def test_a_model_of_fifty_vectors_is_small():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 10))
    model = fitted(RVR(width=0.8, noise_variance=1e-4), X, rng.normal(size=60))
    assert len(model.relevance_) >= 50
    assert len(relvec.to_onnx(model).SerializeToString()) < 60_000


def own_basis(X):
    return X[:, 1]


def own_kernel(X, Z):
    return X @ Z.T


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RVR(kernel=own_kernel, width="scale"), "kernel FromCallable"),
        (RVR(kernel=None, basis=Functions(own_basis), width="scale"), "basis Functions"),
        (RVR(kernel=kernels.Gaussian(1.0) + kernels.FromCallable(own_kernel), width="scale"), "kernel FromCallable"),
    ],
)
def test_what_onnx_cannot_express_is_refused_in_words(model, words):
    with pytest.raises(NotImplementedError, match=words):
        relvec.to_onnx(fitted(model, *DATA))


def test_other_models_are_refused():
    X, y = DATA
    with pytest.raises(NotImplementedError, match="got LinearRegression"):
        relvec.to_onnx(make_pipeline(StandardScaler(), LinearRegression()).fit(X, y), X)
    with pytest.raises(ValueError, match="some rows"):
        relvec.to_onnx(make_pipeline(StandardScaler(), RVR(width="scale")).fit(X, y))
    with pytest.raises(Exception, match="not fitted"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        relvec.to_onnx(RVR(width="scale"))
