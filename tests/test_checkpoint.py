"""Fits that are killed and go on from their file."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import fuzz
import relvec
from relvec import RVC, RVR
from relvec.export import model_file
from relvec.hyperparameters import widths as tune
from relvec.kernels import Gaussian
from relvec.runtime import checkpoint
from relvec.runtime.checkpoint import CheckpointError
from relvec.runtime.fingerprint import fingerprint
from relvec.runtime.progress import watch
from relvec.solvers import Sequential

RNG = np.random.default_rng(3)
X = RNG.normal(size=(150, 2))
F = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * RNG.normal(size=150)
LONG = np.linspace(-3.0, 3.0, 3200)[:, None]
SINE = np.sin(3.0 * LONG[:, 0]) + RNG.normal(0.0, 0.1, 3200)
MODELS = {
    "regression": (RVR(width=1.0), X, F),
    "random restarts": (RVR(width=0.5, solver=Sequential(restarts=9), random_state=0), X[:80, :1], F[:80]),
    "random restarts of classes": (RVC(width=0.7, solver=Sequential(restarts=9), random_state=0), X[:80], F[:80] > 0.1),
    "outputs": (RVR(width=1.0), X, np.column_stack([F, F**2])),
    "textbook": (RVR(width=1.0, solver=Sequential(select="gain")), X, F),
    "mackay": (RVR(width=1.0, solver="mackay"), X, F),
    "em": (RVR(width=1.0, solver="em", tol=1e-2), X[:40], F[:40]),
    "counts": (RVR(width=1.0, likelihood="poisson"), X, np.round(np.exp(1.0 + F))),
    "two classes": (RVC(width=1.0), X, F + 0.2 * RNG.normal(size=150) > 0.0),
    "softmax": (RVC(width=1.0), X[:40], np.digitize(F[:40] + 0.1 * RNG.normal(size=40), [-0.4, 0.4])),
    "shared": (RVC(width=1.0, share_alpha=True), X[:30], np.digitize(F[:30], [-0.4, 0.4])),
    "one against the rest": (RVC(width=1.0, multi_class="ovr"), X[:60], np.digitize(F[:60], [-0.4, 0.4])),
    "classes by mackay": (RVC(width=1.0, solver="mackay"), X[:60], F[:60] > 0.0),
    "inputs": (RVR(kernel=None, basis="linear"), np.column_stack([X, X**2, X**3])[:60], F[:60]),
    "learned widths": (RVR(), X[:50], F[:50]),
    "learned width of classes": (RVC(width="learn"), X[:80], F[:80] > 0.0),
    "widths on more rows": (RVR(width="learn"), X, F),
    "long dictionary": (RVR(width=0.3), LONG, SINE),
    "moved centres": (RVR(width=1.0, centres="move"), X[:40], F[:40]),
    "subsets": (RVR(kernel=lambda X, Z: np.exp(-((X - Z.T) ** 2)), memory_limit="10MB"), LONG[::3], SINE[::3]),
}


class Killed(BaseException):
    pass


def count_steps(model, X, y, kill_at=np.inf):
    """Fit, and return the steps made; killed at one of them where asked, in every thread that comes there."""
    steps = itertools.count(1)

    def step(progress):
        if next(steps) >= kill_at:
            raise Killed

    with watch(step):
        model.fit(X, y)
    return next(steps) - 1


def steps_of(model):
    histories = model.history_ if isinstance(model.history_, list) else [model.history_]
    return [list(zip(history["action"], history["size"], strict=True)) for history in histories]


def assert_same(model, whole):
    assert np.array_equal(model.relevance_, whole.relevance_)
    assert np.allclose(model.log_marginal_likelihood_, whole.log_marginal_likelihood_, rtol=1e-9, atol=1e-7)
    assert model.status_ == whole.status_
    assert np.array_equal(model.n_iter_, whole.n_iter_)
    assert steps_of(model) == steps_of(whole)


@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_goes_on_where_it_was(name, share, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_WRITES", 0.0)
    if name == "widths on more rows":
        monkeypatch.setattr(tune, "SETTINGS", tune.WidthSettings(compare_rows=60))
    model, X, y = MODELS[name]
    whole = clone(model)
    total = count_steps(whole, X, y)
    killed_at = max(2, int(share * total))
    first, second = (clone(model).set_params(checkpoint=str(tmp_path)) for _ in range(2))
    with pytest.raises(Killed):
        count_steps(first, X, y, killed_at)
    assert len(list(tmp_path.glob("*.checkpoint"))) == 1
    left = count_steps(second, X, y)
    assert os.listdir(tmp_path) == []
    assert left < total
    assert_same(second, whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_goes_on_from_every_step(name, tmp_path, monkeypatch):
    """From forty of them, evenly, where there are more."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_WRITES", 0.0)
    model, X, y = MODELS[name]
    whole = clone(model)
    total = count_steps(whole, X, y)
    for step in np.unique(np.linspace(2, total, min(40, total - 1)).astype(int)):
        first, second = (clone(model).set_params(checkpoint=str(tmp_path)) for _ in range(2))
        with pytest.raises(Killed):
            count_steps(first, X, y, step)
        count_steps(second, X, y)
        assert os.listdir(tmp_path) == []
        assert_same(second, whole)


def test_outputs_side_by_side_go_on(tmp_path, monkeypatch):
    """Which step a thread is at when another is killed, and whether it writes once more, is not for us to say."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_WRITES", 0.0)
    model, X, y = MODELS["outputs"]
    whole = clone(model)
    total = count_steps(whole, X, y)
    first, second = (clone(model).set_params(n_jobs=2, checkpoint=str(tmp_path)) for _ in range(2))
    with pytest.raises(Killed):
        count_steps(first, X, y, total // 2)
    assert len(list(tmp_path.glob("*.checkpoint"))) == 1
    assert count_steps(second, X, y) < total
    assert_same(second, whole)


SCRIPT = """
import os, signal, sys
import numpy as np
from relvec import RVC, RVR
from relvec.runtime import checkpoint
from relvec.runtime.progress import watch

checkpoint.SECONDS_BETWEEN_WRITES = 0.0
folder, model, kill_at = sys.argv[1:]
steps = 0

def step(progress):
    global steps
    steps += 1
    if steps == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)

with watch(step):
    eval(model).set_params(checkpoint=folder + "/kept").fit(np.load(folder + "/X.npy"), np.load(folder + "/y.npy"))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.parametrize(
    ("model", "kill_at"),
    [(RVR(width=1.0), 12), (RVC(width=1.0), 6), (RVR(predictive="rvm"), 40), (RVR(), 5)],
    ids=["numbers", "classes", "widths", "process"],
)
def test_a_killed_process_goes_on_from_its_file(model, kill_at, tmp_path):
    y = F[:70] > 0.0 if isinstance(model, RVC) else F[:70]
    np.save(tmp_path / "X.npy", X[:70])
    np.save(tmp_path / "y.npy", y)
    words = repr(model).replace("RelevanceVectorClassifier", "RVC").replace("RelevanceVectorRegressor", "RVR")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), words, str(kill_at)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path / "kept")) == 1
    whole, resumed = clone(model), clone(model).set_params(checkpoint=str(tmp_path / "kept"))
    total, left = count_steps(whole, X[:70], y), count_steps(resumed, X[:70], y)
    again = 25 if model.width == "auto" else 3  # steps of T01's interleaving are not kept one by one
    assert total > kill_at and left <= total - kill_at + again
    assert np.array_equal(resumed.relevance_, whole.relevance_)
    assert resumed.log_marginal_likelihood_ >= whole.log_marginal_likelihood_ - 1e-8
    assert os.listdir(tmp_path / "kept") == []


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """Return a model, and the file of a fit of it that was killed."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_WRITES", 0.0)
    model = RVR(width=1.0, checkpoint=str(tmp_path))
    with pytest.raises(Killed):
        count_steps(model, X, F, 10)
    return model, tmp_path / os.listdir(tmp_path)[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-100],
        lambda data: data.replace(b"relvec-checkpoint 1", b"relvec-checkpoint 2"),
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
        lambda data: b"\x80\x04\x95" + data,
    ],
)
def test_a_damaged_file_is_an_error(interrupted, change):
    model, file = interrupted
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(CheckpointError, match="Remove it to fit from the beginning"):
        model.fit(X, F)
    assert not hasattr(model, "weights_") and file.exists()
    file.unlink()
    model.fit(X, F)


def sealed(content):
    text = json.dumps(content).encode()
    return b"relvec-checkpoint 1\n" + hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def test_a_file_of_another_fit_is_an_error(interrupted):
    model, file = interrupted
    other = clone(model).set_params(width=2.0)
    with pytest.raises(Killed):
        count_steps(other, X, F, 10)
    (second,) = set(file.parent.iterdir()) - {file}
    second.replace(file)  # under the name of this fit
    with pytest.raises(CheckpointError, match="other data or parameters"):
        model.fit(X, F)


FORGED = [
    ("active", {"array": ["<i8", [1], "//////////8="]}),
    ("active", [1, 2]),
    ("alpha", {"array": ["<f8", [0], ""]}),
    ("alpha", {"array": ["|O", [1], "AAAAAAAAAAA="]}),
    ("alpha", {"array": ["<f8", [1000000000000], "AAAAAAAAAAA="]}),
    ("beta", -1.0),
    ("beta", None),
    ("history", {}),
    ("history", {"action": ["add"]}),
    ("n_iter", "many"),
    ("notes", {}),
    ("notes", []),
    ("random", {"bit_generator": "os.system"}),
    ("status", "EXCELLENT"),
    ("dictionary", None),
]


@pytest.mark.parametrize(("field", "value"), FORGED)
def test_a_forged_file_is_an_error_or_of_no_use(interrupted, field, value):
    model, file = interrupted
    content = json.loads(file.read_bytes().split(b"\n", 2)[2])
    for record in content["cells"].values():
        record[field] = value
    file.write_bytes(sealed(content))
    if field == "dictionary":
        model.fit(X, F)
        return
    with pytest.raises(CheckpointError, match=r"[Rr]emove it"):
        model.fit(X, F)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a count of steps beyond max_iter
def test_mutated_files_are_errors_or_harmless(interrupted):
    model, file = interrupted
    whole = json.loads(file.read_bytes().split(b"\n", 2)[2])
    ended = Counter()
    for seed in range(150):
        rng, content = np.random.default_rng(seed), deepcopy(whole)
        for _ in range(rng.integers(1, 4)):
            spots = [spot for spot in fuzz.places(content["cells"]) if spot[1] != "cells"]
            container, key = spots[rng.integers(len(spots))]
            container[key] = deepcopy(fuzz.VALUES[rng.integers(len(fuzz.VALUES))])
        file.write_bytes(sealed(content))
        try:
            again = clone(model).fit(X, F)
        except CheckpointError:
            ended["refused"] += 1
        else:
            assert np.all(np.isfinite(again.predict(X)))
            ended["fitted"] += 1
    assert ended["refused"] > 20 and ended["fitted"] > 5, ended


@pytest.mark.parametrize("content", [[], {}, {"fit": 1}, {"cells": []}, "x", None])
def test_content_that_is_none_is_an_error(interrupted, content):
    model, file = interrupted
    file.write_bytes(sealed(content))
    with pytest.raises(CheckpointError):
        model.fit(X, F)


def test_other_data_do_not_see_the_file(interrupted):
    model, file = interrupted
    before = file.read_bytes()
    for rows, targets in ((X + 1e-12, F), (X, -F), (X[::-1], F)):
        clone(model).fit(rows, targets)
        assert file.read_bytes() == before


def test_what_does_not_matter_does_not_count(interrupted):
    model, file = interrupted
    clone(model).set_params(verbose=0, n_jobs=2).fit(X, F)
    assert not file.exists()


def test_a_time_limit_leaves_the_file_and_the_next_fit_goes_on(tmp_path):
    model = RVR(width=1.0, checkpoint=tmp_path, solver=Sequential(time_limit=1e-9))
    found = []
    for _ in range(3):
        with pytest.warns(ConvergenceWarning, match="TIME_LIMIT"):
            found.append(clone(model).fit(X, F))
        assert len(os.listdir(tmp_path)) == 1
    assert found[0].n_iter_ == found[1].n_iter_ == 0 and len(found[2].history_) == 1
    with pytest.warns(ConvergenceWarning), watch(lambda progress: progress.size > 5):
        clone(model).set_params(solver=Sequential()).fit(X, F)
    assert len(os.listdir(tmp_path)) == 2


def test_a_grid_search_shares_one_folder(interrupted):
    model, file = interrupted
    search = GridSearchCV(model, {"width": [0.8, 1.5]}, cv=2).fit(X, F)
    plain = GridSearchCV(RVR(), {"width": [0.8, 1.5]}, cv=2).fit(X, F)
    assert search.best_score_ == plain.best_score_
    assert list(file.parent.iterdir()) == [file]  # that of the fit which was killed


def test_a_full_disk_does_not_end_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_WRITES", 0.0)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="goes on without its checkpoint"):
        model = RVR(width=1.0, checkpoint=str(tmp_path)).fit(X, F)
    assert_same(model, RVR(width=1.0).fit(X, F))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_becomes_read_only_does_not_end_the_fit(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.warns(UserWarning, match="could not be removed"):
        model = RVR(width=1.0, checkpoint=tmp_path).fit(X, F)
    assert_same(model, RVR(width=1.0).fit(X, F))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        RVR(width=1.0, checkpoint=tmp_path / "file" / "folder").fit(X, F)
    with pytest.raises(ValueError, match="the path of a folder"):
        RVC(width=1.0, checkpoint=3).fit(X, F > 0.0)


def test_short_fits_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_WRITES", 3600.0)  # however busy the machine is
    written = []
    monkeypatch.setattr(checkpoint, "write_atomically", lambda path, data: written.append(path))
    RVC(width=1.0, checkpoint=tmp_path).fit(X, F > 0.0)
    assert not written


def test_a_model_file_holds_no_folder(tmp_path):
    model = RVR(width=1.0, checkpoint=tmp_path / "kept").fit(X, F)
    relvec.save(model, tmp_path / "model.relvec")
    assert relvec.load(tmp_path / "model.relvec").checkpoint is None
    data = model_file.dumps(model)
    length = int.from_bytes(data[48:56], "little")
    header = data[56 : 56 + length].replace(b'"checkpoint": null', b'"checkpoint": "/a"')
    assert b'"/a"' in header
    rest = length.to_bytes(8, "little") + header + data[56 + length :]
    with pytest.raises(model_file.ModelFileError, match="a folder to write to"):
        model_file.loads(data[:16] + hashlib.sha256(rest).digest() + rest)


def _kernel(X, Z):
    return np.exp(-np.abs(X - Z.T))


def test_fingerprints_tell_content_apart():
    def shifted(by):
        return lambda X, Z: X @ Z.T + by

    different = [
        1, 1.0, "1", None, True, [1], (1,), {1: 2}, {2: 1}, {1}, np.zeros(2), np.zeros(3), np.zeros((1, 2)),
        np.zeros(2, int), np.float32(1), Gaussian(1.0), Gaussian(2.0), _kernel, shifted(1.0), shifted(2.0), np.exp,
        Sequential(), Sequential(batch=2), np.random.RandomState(0), np.random.RandomState(1), len, int, b"1",
        np.random.default_rng(0), np.random.default_rng(1), np.array(["a", None], dtype=object), Gaussian(1.0).__call__,
    ]  # fmt: skip
    assert len({fingerprint(value) for value in different}) == len(different)
    assert fingerprint(shifted(1.0)) == fingerprint(shifted(1.0))
    assert fingerprint(np.asfortranarray(np.eye(2))) == fingerprint(np.eye(2))
    ring: list = []
    ring.append(ring)
    assert fingerprint(ring) == fingerprint(ring)
