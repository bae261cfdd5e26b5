"""What every program needs: memory used again, threads, progress, and other array libraries."""

import functools
import importlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from relvec.runtime import arrays, machine, progress
from relvec.runtime.arrays import Scratch


def test_the_command_may_be_imported_without_running():
    assert importlib.import_module("relvec.__main__").main


# ---------------------------------------------------------------- memory and threads


def test_memory_of_another_shape_is_not_used_again():
    scratch = Scratch()
    first = scratch.empty(2, 3)
    scratch.begin()
    other = scratch.empty(3, 2)
    assert other.shape == (3, 2) and not np.shares_memory(first, other)
    scratch.begin()
    assert scratch.empty(3, 2) is other


def test_a_copy_on_a_device_is_another_array():
    strict = pytest.importorskip("array_api_strict")
    x = strict.asarray([1.0, 2.0])
    copy = Scratch().copy(x)
    copy += 1.0
    assert arrays.to_host(x).tolist() == [1.0, 2.0] and arrays.to_host(copy).tolist() == [2.0, 3.0]


def test_memory_is_left_alone_where_the_c_library_has_no_word_for_it(monkeypatch):
    monkeypatch.setattr(machine, "_malloc_trim", lambda: None)
    machine.release_memory()


def test_fits_side_by_side_have_one_thread_each():
    with machine.one_thread():
        assert machine.n_threads() >= 1
        inside = []

        def fit_beside():
            with machine.one_thread():
                inside.append(machine.n_threads())

        other = threading.Thread(target=fit_beside)
        other.start()
        other.join()
        assert inside == [1]


def test_a_forked_process_begins_without_the_fits_and_locks_of_its_parent(monkeypatch):
    class Waiting:
        value = functools.cached_property(lambda self: 1)

    Waiting.value.__set_name__(Waiting, "value")
    Waiting.value.lock = parents = threading.RLock()  # as until Python 3.11, for all objects of the class
    monkeypatch.setattr(machine, "Waiting", Waiting, raising=False)
    for name, value in (("_lock", threading.Lock()), ("_inside", 3), ("_earlier", [("library", 8)])):
        monkeypatch.setattr(machine, name, value)
    machine._lock.acquire()
    machine._begin_again()
    assert machine._lock.acquire(blocking=False) and (machine._inside, machine._earlier) == (0, [])
    assert Waiting.value.lock is not parents and Waiting().value == 1


# ---------------------------------------------------------------- progress


def test_a_stage_inside_another_belongs_to_the_outer_one():
    seen = []
    with progress.watch(seen.append), progress.stage("widths", total=2):
        with progress.stage("search"):
            progress.advance()
            progress.report(1, 0.0)
        progress.advance()
    assert seen and {found.stage for found in seen} == {"widths"}
    progress.advance()  # without a stage there is nothing to count


def test_a_package_that_was_not_built_says_so(monkeypatch, capsys):
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    machine.show_versions()
    assert "missing: the package was not built; install it again" in capsys.readouterr().out


# ---------------------------------------------------------------- libraries that are not here


class Tensor:
    """A tensor as PyTorch's: it gives its numbers only after it was detached and brought to the host."""

    __module__ = "torch"

    def __init__(self, values, steps=()):
        self.values, self.steps = np.asarray(values), steps
        self.shape = self.values.shape

    def detach(self):
        return Tensor(self.values, (*self.steps, "detach"))

    def cpu(self):
        return Tensor(self.values, (*self.steps, "cpu"))

    def numpy(self):
        if self.steps != ("detach", "cpu"):
            raise RuntimeError(f"numbers of a tensor after {self.steps}")
        return self.values

    def topk(self, count, dim, sorted):
        order = np.argsort(-self.values, axis=dim)
        return SimpleNamespace(indices=order.take(range(count), axis=dim))


class CupyArray:
    """An array as CuPy's: NumPy may not convert it, and `get` does."""

    __module__ = "cupy"

    def get(self):
        return np.ones(2)

    def __array__(self, *arguments, **options):
        raise TypeError("implicit conversion is not allowed")


def test_arrays_of_pytorch_and_cupy_come_to_the_host_in_their_own_way():
    assert arrays.to_host(Tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert arrays.to_host(CupyArray()).tolist() == [1.0, 1.0]


def test_an_array_of_another_library_goes_through_the_host_and_a_tensor_leaves_its_graph(monkeypatch):
    here = arrays.Device(np, "cpu", np.float64)
    strict = pytest.importorskip("array_api_strict")
    assert here.to_device(strict.asarray([1.0, 2.0])).tolist() == [1.0, 2.0]
    given = []
    library = SimpleNamespace(asarray=lambda values, dtype, device: given.append(values.steps))
    monkeypatch.setitem(arrays._known, Tensor, library)
    arrays.Device(library, "cuda", "float64").to_device(Tensor([1.0]))
    assert given == [("detach",)]


def test_a_device_without_double_precision_has_single(monkeypatch):
    def zeros(*shape, dtype, device):
        if dtype == "float64":
            raise TypeError("MPS has no float64")

    library = SimpleNamespace(float64="float64", float32="float32", zeros=zeros)
    monkeypatch.setitem(arrays._known, Tensor, library)
    monkeypatch.setattr(arrays, "_compat", lambda part="": SimpleNamespace(device=lambda x: "mps"))
    assert arrays.device_of(Tensor([1.0])).dtype == "float32"


def test_a_missing_interface_is_named(monkeypatch):
    monkeypatch.setattr(arrays, "_COMPAT_PACKAGES", ("no_such_package",))
    arrays._compat.cache_clear()
    with pytest.raises(ImportError, match="pip install array-api-compat"):
        arrays._compat()
    arrays._compat.cache_clear()
