"""relvec.to_c: the source compiles without a warning and gives what predict gives."""

import ctypes
import shutil

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

import relvec
from exports import (
    CLASSIFIERS,
    DATA,
    NEW,
    PROCESSES,
    REGRESSORS,
    compile_c,
    fitted,
    mixed_table,
    pointer,
    wide_latent,
)
from relvec import RVC, RVR, GPClassifier, GPRegressor, basis, kernels
from relvec.app.tables import fit_table

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture
def compiled(tmp_path):
    """Return a function that compiles a model and gives its functions."""

    def build(model, name="relvec", **options):
        place = tmp_path / f"{name}{len(list(tmp_path.iterdir()))}"
        return compile_c(relvec.to_c(model, name=name, **options), place)

    return build


def regression(library, X, outputs=1, std=True, name="relvec"):
    X = np.ascontiguousarray(X, dtype=float)
    mean, deviation = np.zeros((len(X), outputs)), np.zeros((len(X), outputs))
    for row, m, s in zip(X, mean, deviation):
        arguments = [pointer(row), pointer(m)] + ([pointer(s)] if std else [])
        getattr(library, f"{name}_predict")(*arguments)
    return mean, deviation


def classification(library, X, K):
    X = np.ascontiguousarray(X, dtype=float)
    proba = np.zeros((len(X), K))
    for row, p in zip(X, proba):
        library.relvec_predict_proba(pointer(row), pointer(p))
    labels = (ctypes.c_char_p * K).in_dll(library, "relvec_labels")
    return proba, [labels[library.relvec_predict(pointer(row))].decode() for row in X]


@needs_gcc
@pytest.mark.parametrize("name", REGRESSORS)
def test_regression(name, compiled):
    model = fitted(REGRESSORS[name], *DATA)
    mean, std = regression(compiled(model), NEW)
    expected = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(np.stack([mean[:, 0], std[:, 0]]), expected, rtol=1e-9, atol=1e-9)


@needs_gcc
@pytest.mark.parametrize("name", REGRESSORS)
def test_every_kernel_in_a_pipeline(name, compiled):
    columns = ColumnTransformer([("n", StandardScaler(), [2, 0])], remainder="passthrough")
    model = fitted(make_pipeline(columns, REGRESSORS[name]), *DATA)
    mean, std = regression(compiled(model), NEW)
    expected = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(np.stack([mean[:, 0], std[:, 0]]), expected, rtol=1e-9, atol=1e-9)


@needs_gcc
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classification(name, compiled):
    model, y = CLASSIFIERS[name]
    model = fitted(model, DATA[0], y)
    X = np.vstack([NEW, 30.0 * NEW])
    expected = model.predict_proba(X)
    proba, labels = classification(compiled(model), X, len(model.classes_))
    np.testing.assert_allclose(proba, expected, rtol=1e-6, atol=1e-9)
    clear = np.diff(np.sort(expected, axis=1)[:, -2:]).ravel() > 1e-9
    assert clear.sum() > 10
    assert np.array(labels)[clear].tolist() == model.predict(X)[clear].astype(str).tolist()


@needs_gcc
@pytest.mark.parametrize("scale", [0.0, 4.99, 8.0, 100.0, 1e6])
def test_wide_latent_functions(scale, compiled):
    model = wide_latent(scale)
    proba, _ = classification(compiled(model), NEW, 2)
    np.testing.assert_allclose(proba, model.predict_proba(NEW), rtol=1e-6, atol=1e-9)


@needs_gcc
def test_outputs_counts_precomputed_and_no_error_bars(compiled):
    X, y = DATA
    model = fitted(RVR(width="scale"), X, np.column_stack([y, X[:, 1]]))
    np.testing.assert_allclose(regression(compiled(model), NEW, 2), model.predict(NEW, return_std=True), atol=1e-9)
    mean, _ = regression(compiled(model, std=False), NEW, 2, std=False)
    np.testing.assert_allclose(mean, model.predict(NEW), atol=1e-9)
    counts = np.random.default_rng(0).poisson(np.exp(y))
    model = fitted(RVR(likelihood="poisson", width="scale"), X, counts)
    found = np.stack(regression(compiled(model), NEW))[:, :, 0]
    np.testing.assert_allclose(found, model.predict(NEW, return_std=True), rtol=1e-9)
    mean, _ = regression(compiled(model, std=False, name="counts"), NEW, std=False, name="counts")
    np.testing.assert_allclose(mean[:, 0], model.predict(NEW), rtol=1e-9)
    kernel = kernels.Gaussian(2.0)
    model = fitted(RVR(kernel="precomputed", width="scale"), kernel(X, X), y)
    mean, _ = regression(compiled(model), kernel(NEW, X))
    np.testing.assert_allclose(mean[:, 0], model.predict(kernel(NEW, X)), atol=1e-9)
    model = fitted(RVR(fit_intercept=False, width="scale"), X, np.zeros(len(X)))
    assert len(model.atoms_) == 0
    np.testing.assert_allclose(np.stack(regression(compiled(model), NEW))[:, :, 0], model.predict(NEW, return_std=True))


@needs_gcc
@pytest.mark.parametrize("final", [RVR(width="scale"), RVC(width="scale")], ids=["regression", "classification"])
def test_a_pipeline_with_a_column_transformer(final, compiled):
    pd = pytest.importorskip("pandas")
    frame, y = mixed_table(pd)
    y = y if isinstance(final, RVR) else np.where(y > y.median(), "more", "less")
    frame["e"] = np.random.default_rng(0).choice([2, 5, 9], len(frame))
    numbers = make_pipeline(
        SimpleImputer(add_indicator=True),
        FeatureUnion([("s", StandardScaler()), ("r", RobustScaler(with_centering=False)), ("m", MaxAbsScaler())]),
    )
    columns = ColumnTransformer([
        ("n", numbers, ["b", "a"]),
        ("c", OneHotEncoder(handle_unknown="ignore", drop="first"), ["c"]),
        ("o", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["e", "c"]),
        ("p", make_pipeline(MinMaxScaler(clip=True), PolynomialFeatures(2), FunctionTransformer(np.expm1)), ["a"]),
        ("f", FunctionTransformer(), ["e"]),
        ("d", "drop", ["a"]),
    ])  # fmt: skip
    model = fitted(make_pipeline(columns, StandardScaler(), clone(final)), frame, y)
    categories = model[0].named_transformers_["c"].categories_[0].tolist()
    raw = frame.assign(c=[categories.index(word) for word in frame["c"]])
    library = compiled(model)
    if isinstance(final, RVR):
        found = np.stack(regression(library, raw))[:, :, 0]
        np.testing.assert_allclose(found, model.predict(frame, return_std=True), rtol=1e-8, atol=1e-8)
    else:
        proba, labels = classification(library, raw, 2)
        np.testing.assert_allclose(proba, model.predict_proba(frame), rtol=1e-6, atol=1e-8)
        assert labels == model.predict(frame).tolist()


@needs_gcc
def test_labels_of_any_letters(compiled):
    words = np.array(['quote " and \\ back', "trigraph ??/", "größer\n"])
    model = fitted(RVC(kernel=None, basis="linear", width="scale"), DATA[0], words[np.digitize(DATA[1], [0.3, 1.2])])
    _, labels = classification(compiled(model), NEW, 3)
    assert labels == model.predict(NEW).tolist()


def own_kernel(X, Z):
    return X @ Z.T


def own_basis(X):
    return X[:, 1]


LABELS = [
    "ann@example.org",
    '"; int main(){} //',
    "??/ trigraph",
    "*/ comment /*",
    "a\\",
    "new\nline",
    "\u202eright to left",
    "Ünïcödé 漢字 🙂",
    "%s",
]


@needs_gcc
@pytest.mark.parametrize("label", LABELS)
def test_labels_with_signs_that_c_interprets(label, compiled):
    X = np.arange(6.0)[:, None]
    y = np.array(["a", "a", "a", label, label, label], dtype=object)
    model = fitted(RVC(kernel=None, basis="linear"), X, y)
    _, labels = classification(compiled(model), X, 2)
    assert labels == model.predict(X).tolist()


@needs_gcc
@pytest.mark.parametrize(
    "columns",
    [slice(0, 2), slice("a", "@b"), ["a", "@b"], [True, True, False], [0, -2], ["@b", "a"]],
    ids=str,
)
def test_columns_named_in_every_way(columns, compiled):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(DATA[0], columns=["a", "@b", "ü"])
    scaled = ColumnTransformer([("n", StandardScaler(), columns)], remainder="passthrough")
    model = fitted(make_pipeline(scaled, RVR(width="scale")), frame, DATA[1])
    mean, _ = regression(compiled(model), frame.to_numpy())
    np.testing.assert_allclose(mean[:, 0], model.predict(frame), rtol=1e-10)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RVR(kernel=own_kernel, width="scale"), "kernel FromCallable"),
        (RVR(kernel=None, basis=basis.Functions(own_basis), width="scale"), "basis Functions"),
        (make_pipeline(PowerTransformer(), RVR(width="scale")), "step PowerTransformer"),
        (make_pipeline(FunctionTransformer(np.arctan), RVR(width="scale")), "function <ufunc 'arctan'>"),
        (LinearRegression(), "got LinearRegression"),
    ],
)
def test_what_c_cannot_express_is_refused_in_words(model, words):
    with pytest.raises(NotImplementedError, match=words):
        relvec.to_c(fitted(model, *DATA))


PROCESS_FITS = {name: (model, DATA[1]) for name, model in PROCESSES.items()} | {
    "two outputs": (GPRegressor(), np.column_stack([DATA[1], DATA[0][:, 1]])),
    "classes": (GPClassifier(), DATA[1] > 0.7),
}


@pytest.mark.parametrize("name", PROCESS_FITS)
@pytest.mark.parametrize("scaled", [False, True], ids=["estimator", "pipeline"])
def test_processes_are_refused_with_what_to_do(name, scaled):
    model, y = PROCESS_FITS[name]
    model = fitted(make_pipeline(StandardScaler(), model) if scaled else model, DATA[0], y)
    with pytest.raises(NotImplementedError, match=r"Gaussian process.* fit a relevance vector machine .* as ONNX"):
        relvec.to_c(model)


def test_the_step_that_reads_tables_is_refused_and_the_steps_after_it_are_written():
    table = {"x": DATA[0][:, 0].tolist(), "c": ["a", "b"] * 25, "y": DATA[1].tolist()}
    pipeline = fit_table(table, "y", model=RVR(width=1.0)).pipeline
    for whole in (pipeline, make_pipeline(pipeline[:1], *(step for _, step in pipeline.steps[1:]))):
        with pytest.raises(NotImplementedError, match=r"TableColumns.* to_c\(pipeline\[1:\]\)"):
            relvec.to_c(whole)
    assert "void relvec_predict(" in relvec.to_c(pipeline[1:])


def test_names_are_names_of_c():
    with pytest.raises(ValueError, match="name in C"):
        relvec.to_c(fitted(RVR(width="scale"), *DATA), name="1; system()")
