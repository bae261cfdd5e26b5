"""Model files with a right checksum that somebody has edited: refused, or harmless where they are shown."""

import json

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fuzz
from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianRegressor
from relvec.export.model_file import ModelFileError, dumps, loads

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=40)
PAYLOAD = '"><img src=x onerror="document.title=`forged`">'


def edit(model, change):
    """Return the file of a model whose header an editor has changed."""
    header, arrays = fuzz.split(dumps(model))
    header = json.loads(header)
    change(header["model"]["object"]["state"])
    return fuzz.with_header(header, arrays)


def machine():
    return RVR(width=1.0).fit(X, Y)


def scaled():
    return make_pipeline(StandardScaler(), RVR(width=1.0)).fit(X, Y)


def first_step(state):
    return state["steps"][0]["tuple"][1]["object"]["state"]


def test_an_attribute_that_no_estimator_stores_changes_nothing_or_is_refused():
    """What scikit-learn shows in a notebook is read from attributes, and these are not the file's to set."""
    for name in ("_doc_link_template", "__doc_link_template", "_doc_link_module", "predict", "fit", f"{PAYLOAD}_"):
        with pytest.raises(ModelFileError):
            loads(edit(machine(), lambda state, name=name: state.update({name: PAYLOAD})))


@pytest.mark.parametrize("name", ["_doc_link_template", "__doc_link_template", "__class__", "__dict__", "transform",
                                  "_repr_html_", "_doc_link_module", "get_params", "a b", PAYLOAD])  # fmt: skip
def test_no_step_takes_an_attribute_that_its_class_has(name):
    with pytest.raises(ModelFileError, match=r"has no attribute .* that a file may set"):
        loads(edit(scaled(), lambda state: first_step(state).update({name: PAYLOAD})))


def test_words_of_a_file_are_text_where_a_model_is_shown():
    def name_the_step(state):
        state["steps"][0]["tuple"][0] = PAYLOAD

    def name_the_kernel(state):
        state["kernel"] = PAYLOAD
        state["fitted_"]["object"]["state"]["status"] = [PAYLOAD]
        state["feature_names_in_"] = {"objects": {"shape": [2], "items": [PAYLOAD, "b"]}}

    for model, change in ((scaled(), name_the_step), (machine(), name_the_kernel)):
        page = loads(edit(model, change))._repr_html_()
        assert "<img" not in page and "&lt;img" in page


FAMILIES = {
    "machine": machine,
    "linear model": lambda: SparseBayesianRegressor().fit(X, Y),
    "process": lambda: GPRegressor(max_vectors=6).fit(X, Y),
    "machine of classes": lambda: RVC(width=1.0).fit(X, Y > 0.0),
    "process of classes": lambda: GPClassifier(max_vectors=6).fit(X, Y > 0.0),
}


@pytest.fixture(scope="module")
def files():
    """Return header and arrays of the file of each family."""
    found = {}
    for name, make in FAMILIES.items():
        header, arrays = fuzz.split(dumps(make()))
        found[name] = json.loads(header), arrays
    return found


@pytest.mark.parametrize(("shell", "content"), [
    ("machine", "process"), ("process", "machine"), ("linear model", "process"), ("machine", "process of classes"),
    ("machine of classes", "process of classes"), ("process of classes", "machine of classes"),
    ("machine", "machine of classes"), ("machine of classes", "machine"), ("process", "process of classes"),
    ("process of classes", "process"),
])  # fmt: skip
def test_the_record_of_another_family_is_refused(files, shell, content):
    header, arrays = json.loads(json.dumps(files[content][0])), files[content][1]
    state = files[shell][0]["model"]["object"]
    own = header["model"]["object"]
    own["class"] = state["class"]
    parameters = {name: value for name, value in state["state"].items() if name not in own["state"]}
    kept = {name: value for name, value in own["state"].items() if name in state["state"] or name.endswith("_")}
    own["state"] = {**{name: value for name, value in parameters.items() if "array" not in str(value)}, **kept}
    with pytest.raises(ModelFileError, match=r"is no Fitted|a classifier has classes"):
        loads(fuzz.with_header(header, arrays))


@pytest.mark.parametrize("state", [np.random.RandomState(0), np.random.default_rng(0)])
def test_a_generator_of_random_numbers_is_refused_at_save(state):
    model = machine().set_params(random_state=state)
    with pytest.raises(TypeError, match="a generator of random numbers \\(give random_state a whole number\\)"):
        dumps(model)
