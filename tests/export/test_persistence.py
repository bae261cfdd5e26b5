"""relvec.save and relvec.load: the same model again, and no harm from any file."""

import json
import os
import pickle
import re
import stat
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.exceptions import ConvergenceWarning, InconsistentVersionWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

import fuzz
import guards
import relvec
from relvec import (
    RVC,
    RVR,
    GammaPrior,
    GPClassifier,
    GPRegressor,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
    basis,
    kernels,
    solvers,
)
from relvec.export import model_file as persistence
from relvec.export.model_file import ModelFileError, dumps, loads
from relvec.export.model_file.names import storable_classes
from relvec.inference.predictive import Augmented

FILES = Path(__file__).parents[1] / "files"


def data(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sinc(X[:, 0]) + 0.1 * rng.normal(size=n)


X, Y = data()
LABELS = np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])]
BINARY = np.where(X[:, 0] + 0.3 * Y > 0, "yes", "no")
COUNTS = np.random.default_rng(1).poisson(np.exp(X[:, 0]))

REGRESSORS = {
    "default": RVR(width="scale"),
    "widths": RVR(width=[1.0, 2.0], noise_variance=0.01),
    "sum": RVR(kernel=kernels.Gaussian(1.5) + kernels.Linear() * kernels.Matern(2.5, 3.0), width="scale"),
    "polynomial": RVR(kernel="polynomial", basis=[basis.Polynomial(3), "linear"], width="scale"),
    "spline": RVR(kernel="linear_spline", width="scale"),
    "log distance": RVR(kernel="log_distance", width="scale"),
    "random centres": RVR(kernel=None, basis=basis.KernelBasis("cauchy", n_random=30), random_state=3, width="scale"),
    "solver object": RVR(solver=solvers.Sequential(restarts=1), random_state=4, width="scale"),
    "hyperprior": RVR(solver=solvers.MacKay(hyperprior=GammaPrior(1e-6, 1e-6)), width="scale"),
    "learned widths": RVR(width="learn-per-feature"),
    "counts": RVR(likelihood="poisson", width="scale"),
    "empty": RVR(fit_intercept=False, width="scale"),
    "columns": SparseBayesianRegressor(),
    "process": GPRegressor(max_vectors=20),
    "Student-t process": GPRegressor(likelihood="student-t", max_vectors=20),
}
CLASSIFIERS = {
    "binary": (RVC(class_weight={"yes": 2.0, "no": 1.0}, width="scale"), BINARY),
    "softmax": (RVC(kernel="laplace", width="scale"), LABELS),
    "ovr": (RVC(multi_class="ovr", averaging="mode", width="scale"), LABELS),
    "integers": (RVC(class_weight="balanced", width="scale"), (BINARY == "yes").astype(int)),
    "columns": (SparseBayesianClassifier(), LABELS),
    "process": (GPClassifier(max_vectors=10), LABELS),
}


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def regressor(name):
    y = COUNTS if name == "counts" else np.zeros(len(X)) if name == "empty" else Y
    return fitted(clone(REGRESSORS[name]), X, y)


def same(a, b):
    """Whether two values are equal to the last bit, in type as well; b's arrays keep Fortran's order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        alike = a.dtype == b.dtype and a.shape == b.shape and a.flags.writeable == b.flags.writeable
        if a.dtype.hasobject:
            return alike and all(map(same, a.ravel(), b.ravel()))
        return alike and a.flags.f_contiguous <= b.flags.f_contiguous and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, np.random.RandomState):
        return same(a.get_state(), b.get_state())
    if isinstance(a, type) or not hasattr(a, "__dict__"):
        return bool(a == b) or a is b or (a != a and b != b)
    if is_dataclass(a):  # what a record has worked out and kept is no part of it
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in fields(a))
    return same(vars(a), vars(b))


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_come_back_to_the_last_bit(name, tmp_path):
    model, new = regressor(name), data(23, seed=5)[0]
    relvec.save(model, tmp_path / "model.relvec")
    again = relvec.load(tmp_path / "model.relvec")
    assert type(again) is type(model) and same(vars(model), vars(again))
    assert same(again.predict(new, return_std=True), model.predict(new, return_std=True))
    assert same(again.sample_y(new, 3), model.sample_y(new, 3))
    assert same(again.get_params(), model.get_params())
    fitted(clone(again), X, COUNTS)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_come_back_to_the_last_bit(name):
    model, y = CLASSIFIERS[name]
    model = fitted(clone(model), X, y)
    again = loads(dumps(model))
    assert same(vars(model), vars(again))
    assert same(again.predict_proba(X), model.predict_proba(X)) and same(again.predict(X), model.predict(X))
    if hasattr(model, "covariance_"):
        assert same(again.covariance_, model.covariance_)


def test_several_outputs_share_their_arrays():
    model = fitted(RVR(width="scale"), X, np.column_stack([Y, Y**2, X[:, 1]]))
    again = loads(dumps(model))
    assert same(vars(model), vars(again))
    assert same(again.predict(X), model.predict(X))
    centres = [m.basis.parts[0].centres for m in again.fitted_.predictors]
    assert all(c is again.basis_.parts[0].centres for c in centres)


def test_precomputed_and_names():
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    model = fitted(RVR(kernel="precomputed", width="scale"), K, Y)
    assert same(loads(dumps(model)).predict(K), model.predict(K))
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = fitted(RVR(width="scale"), frame, Y)
    again = loads(dumps(model))
    assert again.feature_names_in_.tolist() == ["a", "b"]
    with pytest.warns(UserWarning, match="feature names"):
        again.predict(X)


def test_an_unfitted_model_keeps_its_parameters():
    model = RVC(kernel=kernels.Gaussian("scale"), tol=1e-2, verbose=True, width="scale")
    again = loads(dumps(model))
    assert same(again.get_params(), model.get_params())


def table():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({
        "a": rng.normal(size=50),
        "b": rng.normal(size=50),
        "c": rng.choice(["x", "y", "z"], 50),
        "d": rng.choice(["u", "v"], 50),
    })  # fmt: skip
    y = frame.b + (frame.c == "x") + 0.1 * rng.normal(size=50)
    frame.loc[[3, 7], "a"] = np.nan
    return frame, y


NUMBERS = make_pipeline(
    SimpleImputer(add_indicator=True),
    FeatureUnion([("s", StandardScaler()), ("m", MinMaxScaler()), ("r", RobustScaler()), ("p", PowerTransformer())]),
)
TABLES = {
    "plain": ColumnTransformer([("n", NUMBERS, ["a", "b"]), ("c", OneHotEncoder(handle_unknown="ignore"), ["c"])]),
    "selectors": ColumnTransformer(
        [
            ("n", NUMBERS, make_column_selector(dtype_include=np.number)),
            ("c", OneHotEncoder(sparse_output=False, dtype=np.float32), make_column_selector("c|d")),
        ],
        verbose_feature_names_out=False,
    ).set_output(transform="pandas"),
    "many": ColumnTransformer(
        [
            ("i", make_pipeline(SimpleImputer(strategy="median"), QuantileTransformer(n_quantiles=10)), ["a"]),
            ("o", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["c"]),
            ("t", TargetEncoder(), ["d"]),
            ("k", KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), ["b"]),
            ("f", make_pipeline(FunctionTransformer(np.exp), PolynomialFeatures()), slice(1, 2)),
        ],
        remainder="drop",
    ),
    "remainder": ColumnTransformer([("d", "drop", ["a", "c", "d"])], remainder=StandardScaler()),
}


@pytest.mark.parametrize("name", TABLES)
def test_pipelines_come_back_to_the_last_bit(name):
    frame, y = table()
    model = Pipeline([("columns", clone(TABLES[name])), ("model", RVR(width="scale"))])
    model = TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)
    fitted(model, frame, np.exp(y))
    again = loads(dumps(model))
    assert same(again.predict(frame), model.predict(frame))
    assert same(model.get_params(deep=False), again.get_params(deep=False))
    fitted(clone(again), frame, np.exp(y))


def test_what_routing_was_asked_for_is_kept():
    with config_context(enable_metadata_routing=True):
        model = RVR(width="scale").set_fit_request(sample_weight=True).set_score_request(sample_weight="w")
        again = loads(dumps(model))
        assert str(again.get_metadata_routing()) == str(model.get_metadata_routing())


def cosine(X):
    return np.cos(X[:, 0])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RVR(kernel=lambda X, Z: X @ Z.T, width="scale"), "RelevanceVectorRegressor.kernel holds the function"),
        (
            RVR(random_state=np.random.RandomState(4)),
            "random_state holds a generator .*give random_state a whole number",
        ),
        (RVR(basis=[cosine], width="scale"), r"basis\[0\] holds the function"),
        (RVR(basis=basis.Functions(cosine), width="scale"), r"basis.functions\[0\] holds the function"),
        (Pipeline([("s", StandardScaler()), ("m", LinearRegression())]), "LinearRegression"),
        (Pipeline([("m", RVR(width="scale"))], memory="/tmp"), "memory=None"),
        (FunctionTransformer(cosine), "func holds the function"),
    ],
)
def test_what_cannot_be_saved_is_refused_in_words(model, words, tmp_path):
    with pytest.raises(TypeError, match=words) as caught:
        relvec.save(model, tmp_path / "model")
    if "memory" not in words:
        assert "pickle or skops" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_only_estimators_are_saved():
    with pytest.raises(TypeError, match="takes an estimator, got dict"):
        dumps({})


def test_pickle_and_skops_take_functions_too(tmp_path):
    model = fitted(RVR(basis=cosine, width="scale"), X, Y)
    assert same(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    sio = pytest.importorskip("skops.io")
    place = tmp_path / "model.skops"
    for saved in (model, fitted(RVC(width="scale"), X, LABELS)):
        sio.dump(saved, place)
        again = sio.load(place, trusted=sio.get_untrusted_types(file=place))
        assert same(again.predict(X), saved.predict(X))


# ---------------------------------------------------------------- the file on the disk


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    place = tmp_path / "model.relvec"
    relvec.save(RVR(tol=0.5, width="scale"), place)
    monkeypatch.setattr(os, "fsync", lambda number: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        relvec.save(RVR(tol=0.25, width="scale"), place)
    monkeypatch.undo()
    assert relvec.load(place).tol == 0.5
    assert [p.name for p in tmp_path.iterdir()] == ["model.relvec"]


@pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
def test_modes_and_links_are_those_of_an_ordinary_write(tmp_path):
    place, link = tmp_path / "model.relvec", tmp_path / "link"
    link.symlink_to(place)
    relvec.save(RVR(width="scale"), link)
    assert link.is_symlink()
    (tmp_path / "ordinary").write_bytes(b"")
    assert stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE((tmp_path / "ordinary").stat().st_mode)
    place.chmod(0o600)
    relvec.save(RVR(width="scale"), link)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path):
    place, model = tmp_path / "pipe", RVR(width="scale")
    os.mkfifo(place)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(place.read_bytes)
        relvec.save(model, place)
        assert same(loads(read.result(timeout=300)).get_params(), model.get_params())
    assert stat.S_ISFIFO(place.stat().st_mode)


def test_a_missing_folder_is_named_and_not_a_temporary_file(tmp_path):
    for place, error in ((tmp_path / "absent" / "model.relvec", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error) as caught:
            relvec.save(RVR(width="scale"), place)
        assert str(place) in str(caught.value) and ".relvec-" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_file(tmp_path):
    (tmp_path / "model.relvec").write_bytes(dumps(RVR(width="scale"))[:-8])
    with pytest.raises(ModelFileError, match=r"model.relvec.*checksum"):
        relvec.load(tmp_path / "model.relvec")
    (tmp_path / "other").write_text("something else")
    with pytest.raises(ModelFileError, match=r"other.*not written by relvec.save"):
        relvec.load(tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        relvec.load(tmp_path / "absent")


def test_parameters_that_came_later_have_their_defaults():
    header, arrays = fuzz.split(dumps(RVR(width="scale")))
    header = json.loads(header)
    del header["model"]["object"]["state"]["max_functions"]
    assert loads(fuzz.with_header(header, arrays)).max_functions is None


@pytest.mark.parametrize("name", [path.stem for path in sorted(FILES.glob("*.relvec"))])
def test_files_of_the_schema_are_read(name):
    """tools/model_files.py wrote them, and the predictions beside them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = relvec.load(FILES / f"{name}.relvec")
    with np.load(FILES / f"{name}.npz", allow_pickle=False) as expected:
        rows = expected["rows"]
        if rows.dtype.names:
            rows = pytest.importorskip("pandas").DataFrame({c: rows[c] for c in rows.dtype.names})
        for method in set(expected.files) - {"rows"}:
            np.testing.assert_allclose(getattr(model, method)(rows), expected[method], rtol=1e-9, atol=1e-9)
    model.get_params()


def test_all_files_are_of_the_schema():
    assert {path.name.partition("-")[0] for path in FILES.glob("*.relvec")} == {f"schema{persistence.SCHEMA}"}


# ---------------------------------------------------------------- files that were not written by save


def test_the_fuzz():
    _, results, failures = guards.run("models", 0, range(300))
    assert failures == [] and results["loaded"] > 5 and results["refused"] > 100


def test_forged_files_have_no_tag_on_a_page():
    _, results, failures = guards.run("forged models", 0, range(60))
    assert not failures and results["shown"] > 5 and results["refused"] > 5


def test_every_shorter_file_is_refused():
    file = dumps(RVR(width="scale"))
    for length in range(len(file)):
        with pytest.raises(ModelFileError):
            loads(file[:length])


def test_every_flipped_bit_is_noticed():
    file = dumps(fitted(RVR(kernel=None, basis="linear", width="scale"), X[:8], Y[:8]))
    for i in range(8 * len(file)):
        if i % 7 == 0:
            other = bytearray(file)
            other[i // 8] ^= 1 << i % 8
            with pytest.raises(ModelFileError):
                loads(bytes(other))


def hostile(tree, arrays=(), raw=b""):
    return fuzz.with_header({"versions": {"sklearn": "1.0"}, "arrays": list(arrays), "model": tree}, raw)


def entry(dtype="<f8", shape=(1,)):
    return {"dtype": dtype, "shape": list(shape), "fortran": False, "readonly": False}


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (
            b"relvec-model 01\n" + bytes(40),
            "schema 01, and this version of relvec reads 2: fit and save the model again",
        ),
        (b"relvec-model 03\n" + bytes(40), "schema 03, and this version of relvec reads 2"),
        (hostile({"object": {"class": "builtins.eval", "state": {}}}), "no class of relvec"),
        (hostile({"object": {"class": "sklearn.svm.SVC", "state": {}}}), "no class of relvec"),
        (hostile({"object": {"class": "relvec.basis.Bias", "state": {}}}), "no estimator but Bias"),
        (hostile({"object": {"class": "sklearn.pipeline.Pipeline", "state": {"memory": "/tmp"}}}), "cache"),
        (hostile({"ufunc": "load"}), "not a function"),
        (hostile({"type": "memmap"}), "not a type"),
        (hostile({"array": -1}), "not the number of an array"),
        (hostile({"pickle": "x"}), "not a model"),
        (hostile([], [entry(shape=[10**9])], bytes(8)), "8000000000 bytes, 8 are there"),
        (hostile([], [entry(shape=[2**60, 2**60])]), "too large"),
        (hostile([], [entry(shape=[-1])]), "not the shape"),
        (hostile([], [entry("|O")], bytes(8)), "not allowed"),
        (hostile([], [entry([["a", "|O"]])], bytes(8)), "not allowed"),
        (hostile([], [entry("<f8,<f8")], bytes(16)), "not allowed"),
        (hostile({"dict": [[i * (2**61 - 1), 0] for i in range(20_000)]}), "20000 keys that are not words"),
        (fuzz.seal(b"[" * 100_000, b""), "not a model"),
        (fuzz.seal(b"[" + b"[]," * 2_000_000 + b"[]]    ", b""), "items is too long"),
        (fuzz.seal(b"9" * 8000, b""), "not a model"),
        (b"relvec-model 02\n" + bytes(40), "checksum"),
    ],
)
def test_hostile_files_are_refused_in_words(file, words):
    with pytest.raises(ModelFileError, match=words):
        loads(file)


def test_deep_models_are_refused_before_they_are_written():
    kernel = kernels.Gaussian(1.0)
    for _ in range(40):
        kernel = kernels.Sum((kernel,))
    with pytest.raises(ValueError, match="nested more than"):
        dumps(RVR(kernel=kernel, width="scale"))


# ---------------------------------------------------------------- files with a right checksum around wrong content

EVERY_KIND = {
    "linear": lambda: regressor("sum"),
    "counts": lambda: regressor("counts"),
    "augmented": lambda: fitted(RVR(width=1.0, predictive="augmented"), X, Y),
    "process": lambda: fitted(GPRegressor(), X, Y),
    "process of classes": lambda: fitted(GPClassifier(max_vectors=10), X, LABELS),
    "outputs": lambda: fitted(RVR(width="scale"), X, np.column_stack([Y, X[:, 1]])),
    "softmax": lambda: fitted(RVC(width="scale"), X, LABELS),
    "ovr": lambda: fitted(RVC(width="scale", multi_class="ovr"), X, LABELS),
    "augmented classes": lambda: fitted(RVC(width=1.0, predictive="augmented"), X, BINARY),
    "bases": lambda: fitted(RVR(kernel=None, basis=[basis.Polynomial(2), "linear"]), X, Y),
}


def records(tree):
    """Yield every record of the predictions of a tree: its class and its fields."""
    if isinstance(tree, dict):
        if "object" in tree and re.match(r"relvec\.(predictive|basis|gaussian_process)\.", tree["object"]["class"]):
            yield tree["object"]
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from records(part)


def wrong_files(model, rng, count):
    """Yield files in which one array or field of a record that predictions are made of is wrong."""
    text, raw = fuzz.split(dumps(model))
    for _ in range(count):
        header, arrays = json.loads(text), bytearray(raw)
        found = [record for record in records(header["model"]) if record["state"]]
        record = found[rng.integers(len(found))]
        field = list(record["state"])[rng.integers(len(record["state"]))]
        value = record["state"][field]
        if isinstance(value, dict) and "array" in value:
            entry = header["arrays"][value["array"]]
            start = sum(
                8 * -(-int(np.prod(e["shape"])) * np.dtype(e["dtype"]).itemsize // 8)
                for e in header["arrays"][: value["array"]]
            )
            kind = rng.integers(3)
            if kind == 0 and entry["dtype"] == "<f8" and np.prod(entry["shape"]):
                arrays[start : start + 8] = np.float64(rng.choice([np.nan, np.inf])).tobytes()
            elif kind == 1 and len(set(entry["shape"])) > 1:
                entry["shape"] = entry["shape"][::-1]
            elif entry["dtype"] == "<f8" and np.prod(entry["shape"]):
                entry["dtype"] = "<M8[ns]"
            else:
                record["state"][field] = {"tuple": ["x"]}
        else:
            record["state"][field] = [{"tuple": ["x"]}, {"float": "nan"}, "x", [1]][rng.integers(4)]
        yield fuzz.with_header(header, bytes(arrays)), f"{record['class']}.{field}"


@pytest.mark.parametrize("name", EVERY_KIND)
def test_wrong_content_is_refused_or_harmless(name):
    """A file with NaN, wrong types or swapped shapes does not load, or predicts finite numbers all the same."""
    model, refused = EVERY_KIND[name](), 0
    assert same(vars(model), vars(loads(dumps(model))))
    for file, where in wrong_files(model, np.random.default_rng(0), 40):
        try:
            again = loads(file)
        except ModelFileError:
            refused += 1
            continue
        for found in (again.predict_proba(X),) if hasattr(again, "classes_") else again.predict(X, return_std=True):
            assert np.isfinite(found).all(), where
    assert refused >= 25


def set_field(model, path, value):
    """The file of a model in which the value at a path of fields and places is another one, rightly sealed."""
    text, arrays = fuzz.split(dumps(model))
    header = json.loads(text)
    node, keys = header, ["model", *path]
    for i, key in enumerate(keys):
        while isinstance(node, dict) and key not in node:  # the kind of a value, or the class of an object
            node = node.get("state") or next(iter(node.values()))
        if i == len(keys) - 1:
            node[key] = value
        node = node[key]
    return fuzz.with_header(header, arrays)


DEFAULTS = {
    "regression": lambda: fitted(GPRegressor(), X, Y),
    "classes": lambda: fitted(GPClassifier(), X, BINARY),
    "machine of classes": lambda: fitted(RVC(width=1.0), X, BINARY),
    "student": lambda: fitted(RVR(width=1.0, likelihood="student-t"), X, Y),
    "linear": lambda: fitted(RVR(width=1.0), X, Y),
    "calibrated": lambda: fitted(RVR(width=1.0), X, Y).calibrate(X, Y),
}
PREDICTOR, CLASSIFIER = ("fitted_", "predictors", 0), ("fitted_", "classifier")


@pytest.fixture(scope="module")
def defaults():
    """Every kind of model, fitted once."""
    kept = {}
    return lambda name: kept.setdefault(name, DEFAULTS[name]())


@pytest.mark.parametrize(("name", "path", "value", "words"), [
    ("regression", (*PREDICTOR, "components", 0, "noise"), -1.0, "Component.noise holds negative numbers"),
    ("regression", (*PREDICTOR, "components", 0, "spread"), {"float": "inf"}, "Component.spread holds NaN or infinite"),
    ("regression", (*PREDICTOR, "scale", "offset"), {"float": "nan"}, "Scale.offset holds NaN or infinite"),
    ("classes", (*CLASSIFIER, "members", 0, "calibration", "moderation"), -1.0, "moderation holds negative"),
    ("classes", (*CLASSIFIER, "members", 0, "share"), 1e308, "the parts of Member do not fit together"),
    ("machine of classes", (*CLASSIFIER, "averaged"), {"array": 0}, "averaged is of the wrong type, ndarray"),
    ("student", (*PREDICTOR, "noise"), -1e-3, "StudentPredictor.noise holds negative numbers"),
    ("linear", (*PREDICTOR, "noise"), -1e-3, "LinearPredictor.noise holds negative numbers"),
    ("linear", (*PREDICTOR, "unit"), {"scalar": 0}, "is not one number|LinearPredictor.unit"),
])  # fmt: skip
def test_one_wrong_number_is_refused(name, path, value, words, defaults):
    """Numbers that are of the right type and make no sense: the row of zeros is predicted all the same."""
    with pytest.raises(ModelFileError, match=words):
        loads(set_field(defaults(name), path, value))


def test_shares_of_a_mixture_and_outputs_of_a_calibration_must_fit(defaults):
    model = defaults("regression")
    header, arrays = fuzz.split(dumps(model))
    shares = np.asarray(model.fitted_.predictors[0].shares)
    assert arrays.count(shares.tobytes()) == 1
    with pytest.raises(ModelFileError, match="shares holds negative numbers"):
        loads(fuzz.seal(header, arrays.replace(shares.tobytes(), (-shares).tobytes())))
    with pytest.raises(ModelFileError, match="ProcessPredictor do not fit together"):
        loads(fuzz.seal(header, arrays.replace(shares.tobytes(), (2 * shares).tobytes())))
    header, arrays = fuzz.split(dumps(defaults("calibrated")))
    header = json.loads(header)
    entry = next(e for e in header["arrays"] if e["shape"] == [1, len(X)])
    entry["shape"] = [len(X), 1]
    with pytest.raises(ModelFileError, match="the calibration does not match the outputs"):
        loads(fuzz.with_header(header, arrays))


# ---------------------------------------------------------------- steps of scikit-learn with a right checksum

STEPS = ("steps", 0, 1)


def scaled():
    return fitted(make_pipeline(StandardScaler(), RVR(kernel=None, basis="linear")), X, Y)


def arranged():
    columns = ColumnTransformer([("n", StandardScaler(), [1, 0])])
    return fitted(make_pipeline(columns, RVR(kernel=None, basis="linear")), X, Y)


def encoded():
    words = np.array([["u"], ["v"], ["w"], ["v"]] * (len(X) // 4), dtype=object)
    return make_pipeline(OneHotEncoder(drop="first"), RVR(kernel=None, basis="linear")).fit(words, Y[: len(words)])


@pytest.mark.parametrize(("make", "path", "value", "words"), [
    (scaled, STEPS, "other", "the steps of a pipeline are not names with estimators"),
    (scaled, ("steps",), {"tuple": []}, "the steps of a pipeline are not names with estimators"),
    (scaled, ("steps",), [], "the steps of a pipeline are not names with estimators"),
    (encoded, (*STEPS, "_n_features_outs"), [1], "the categories of an encoder do not match"),
    (encoded, (*STEPS, "_infrequent_enabled"), True, "the file is not a model"),
    (arranged, (*STEPS, "n_jobs"), 0, "n_jobs is 0"), (arranged, (*STEPS, "n_jobs"), {"tuple": []}, "n_jobs is"),
    (encoded, (*STEPS, "_drop_idx_after_grouping"), None, "the categories of an encoder do not match"),
])  # fmt: skip
def test_wrong_steps_are_refused(make, path, value, words):
    """An encoder whose codes point beyond its columns would write into memory that is not its own."""
    with pytest.raises(ModelFileError, match=words):
        loads(set_field(make(), path, value))


@pytest.mark.parametrize("columns", [["a", "b"], np.array(["a", "b"]), slice("a", "b"), slice(0, 2), np.array([0, 1])])
def test_columns_of_a_table_may_be_given_in_any_way(columns):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 0] ** 2})
    chosen = ColumnTransformer([("numbers", StandardScaler(), columns)])
    model = make_pipeline(chosen, RVR(kernel=None, basis="linear")).fit(table, Y)
    assert np.array_equal(loads(dumps(model)).predict(table), model.predict(table))


def test_wrong_numbers_in_a_step_are_refused_where_they_are_used():
    model = scaled()
    header, arrays = fuzz.split(dumps(model))
    for old, new in ((model[0].scale_, 0.0 * model[0].scale_), (model[0].mean_, np.full(len(model[0].mean_), np.nan))):
        forged = loads(fuzz.seal(header, arrays.replace(old.tobytes(), new.tobytes())))
        with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            forged.predict(X)
    with pytest.raises(ValueError, match="expecting 1000"):
        loads(set_field(model, (*STEPS, "n_features_in_"), 1000)).predict(X)


def test_a_load_runs_no_step():
    model = arranged().set_params(columntransformer__n_jobs=2)
    with pytest.MonkeyPatch.context() as patch:
        for step in (ColumnTransformer, StandardScaler):
            patch.setattr(step, "transform", lambda *_: pytest.fail("it was run"))
        loads(dumps(model))


# ---------------------------------------------------------------- the names of classes

NAMES = """
relvec.FittedProcess relvec.FittedRVM relvec.GPClassifier relvec.GPRegressor relvec.GammaPrior
relvec.HeteroscedasticPredictor relvec.LogNoise relvec.NoiseFit relvec.RelevanceVectorClassifier
relvec.RelevanceVectorRegressor relvec.SparseBayesianClassifier relvec.SparseBayesianRegressor relvec.basis.Bias
relvec.basis.Concat relvec.basis.EmptyBasis relvec.basis.Functions relvec.basis.KernelBasis relvec.basis.Linear
relvec.basis.Polynomial relvec.basis.Precomputed relvec.centres.Move relvec.centres.Placement relvec.design.Compression
relvec.gaussian_process.Bounds relvec.gaussian_process.Calibration relvec.gaussian_process.ClassModel
relvec.gaussian_process.ClassProcess relvec.gaussian_process.Compared relvec.gaussian_process.Component
relvec.gaussian_process.Entry relvec.gaussian_process.LatentKernel relvec.gaussian_process.Member
relvec.gaussian_process.Merit relvec.gaussian_process.Part relvec.gaussian_process.ProcessPredictor
relvec.gaussian_process.Scale relvec.gaussian_process.Selection relvec.gaussian_process.Structure
relvec.gaussian_process.Units relvec.kernels.Cauchy relvec.kernels.FromCallable relvec.kernels.Gaussian
relvec.kernels.Laplace relvec.kernels.Linear relvec.kernels.LinearSpline relvec.kernels.LogDistance
relvec.kernels.Matern relvec.kernels.Polynomial relvec.kernels.Product relvec.kernels.Sum relvec.likelihoods.Bernoulli
relvec.likelihoods.Categorical relvec.likelihoods.Poisson relvec.predictive.Augmented
relvec.predictive.AugmentedLatentPredictor relvec.predictive.AugmentedPredictor relvec.predictive.ConformalScores
relvec.predictive.CountPredictor relvec.predictive.LatentClasses relvec.predictive.LatentPredictor
relvec.predictive.LinearPredictor relvec.predictive.StudentPredictor relvec.solvers.EM relvec.solvers.MacKay
relvec.solvers.Sequential relvec.tables.Column relvec.tables.TableColumns relvec.widths.Trial relvec.widths.Tuning
relvec.widths.WidthSearch relvec.widths.WidthTrial
""".split()


def test_names_in_files_stay():
    """Names may be added; files that have been written keep their meaning."""
    assert set(NAMES) <= set(storable_classes())
    assert len(set(storable_classes().values())) == len(storable_classes())


def classes_within(value, seen):
    """Collect the classes of relvec in all that a value holds."""
    if type(value).__module__.startswith("relvec"):
        seen.add(type(value))
        value = list(vars(value).values())
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        classes_within(part, seen)
    return seen


def test_every_class_inside_a_model_can_be_stored():
    options = [
        {"width": "learn"},
        {"width": 1.0, "predictive": Augmented(2.0)},
        {"width": "grvm"},
        {"width": "interleaved", "solver": "mackay"},
        {"width": 1.0, "centres": "move"},
        {"width": 1.0, "solver": solvers.EM(hyperprior=GammaPrior(1e-6, 1e-6))},
        {"kernel": None, "basis": ["quadratic", kernels.Cauchy(1.0)]},
    ]
    models = [fitted(RVR(**kwargs), X, Y) for kwargs in options]
    models += [fitted(model, X, Y) for model in (SparseBayesianRegressor(), GPRegressor())]
    models += [fitted(GPRegressor(likelihood="student-t"), X, Y), fitted(GPClassifier(), X, BINARY)]
    models += [regressor("empty"), fitted(RVC(width=1.0, predictive="augmented"), X, LABELS)]
    seen = set()
    for model in models:
        assert same(vars(model), vars(loads(dumps(model))))
        classes_within(model, seen)
    assert [cls for cls in seen if cls not in storable_classes().values()] == []
    assert len(seen) > 20
