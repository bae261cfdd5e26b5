"""Power cuts: a process that dies at any byte or system call of a write leaves the earlier file or the new one."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from relvec.app.cli import main
from relvec.runtime import files
from relvec.runtime.files import write_atomically

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # of Python 3.12 where threads run
]
resource = pytest.importorskip("resource")
OLD = b"the earlier file"
CALLS = ("stat", "access", "open", "fdopen", "fsync", "chmod", "replace")


def die_in_child(write, prepare):
    """Run ``write`` in a forked process that ``prepare`` makes die on the way; whether it came to the end."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            signal.alarm(300)  # a child that waits for a thread it does not have ends, too
            prepare()
            write()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM), "the child hangs"
    return status == 0


def die_at_byte(number):
    """The process is killed where a file grows beyond so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))


def die_at_call(name, after):
    """The process ends before or after its first call of a function of `os`."""
    real = getattr(os, name)

    def cut(*args, **options):
        if after:
            real(*args, **options)
        os._exit(9)

    setattr(os, name, cut)


def test_a_file_cut_at_any_byte_is_the_earlier_one(tmp_path):
    path, data = tmp_path / "file", bytes(range(256)) * 2
    path.write_bytes(OLD)
    for number in range(0, len(data), 7):
        assert not die_in_child(lambda: write_atomically(path, data), lambda n=number: die_at_byte(n))
        assert path.read_bytes() == OLD
    assert die_in_child(lambda: write_atomically(path, data), lambda: die_at_byte(len(data)))
    assert path.read_bytes() == data


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_file_cut_at_any_call_is_the_earlier_one_or_the_new(call, after, tmp_path):
    path, data = tmp_path / "file", b"new" * 1000
    path.write_bytes(OLD)
    assert not die_in_child(lambda: write_atomically(path, data), lambda: die_at_call(call, after))
    assert path.read_bytes() == (data if call == "replace" and after else OLD)


def test_every_call_of_a_write_is_cut(tmp_path, monkeypatch):
    """The list of calls above is complete: whatever else of `os` the module of files calls changes nothing."""
    path, called = tmp_path / "file", set()
    path.write_bytes(OLD)

    class Watched:
        def __getattr__(self, name):
            called.add(name)
            return getattr(os, name)

    monkeypatch.setattr(files, "os", Watched())
    write_atomically(path, b"new")
    names = {"path", "fspath", "O_WRONLY", "O_CREAT", "O_EXCL", "O_BINARY", "W_OK", "name", "chown", "unlink"}
    assert called - names == set(CALLS)
    assert path.read_bytes() == b"new"


def test_a_failing_write_that_is_cut_while_it_cleans_up(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)

    def fail_and_die():
        os.fsync = lambda number: (_ for _ in ()).throw(OSError("disk full"))
        die_at_call("unlink", False)

    assert not die_in_child(lambda: write_atomically(path, b"new"), fail_and_die)
    assert path.read_bytes() == OLD


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table and a model of it."""
    folder = tmp_path_factory.mktemp("cut")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 2))
    target = np.sin(rows[:, 0]) + 0.1 * rng.normal(size=40)
    np.savetxt(folder / "t.csv", np.column_stack([rows, target]), delimiter=",", header="a,b,y", comments="")
    assert main(["fit", str(folder / "t.csv"), "--target", "y", "-o", str(folder / "m.relvec"), "--width", "1"]) == 0
    return folder


COMMANDS = {
    "model": ["fit", "t.csv", "--target", "y", "--width", "2", "-o", "out.relvec"],
    "predictions": ["predict", "m.relvec", "t.csv", "-o", "out.csv"],
    "report": ["report", "m.relvec", "t.csv", "-o", "out.html"],
    "Markdown": ["report", "m.relvec", "t.csv", "-o", "out.md"],
    "calibrated": ["calibrate", "m.relvec", "t.csv", "-o", "out.relvec"],
    "C": ["export", "m.relvec", "--c", "out.c"],
    "ONNX": ["export", "m.relvec", "--onnx", "out.onnx"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_outputs_of_commands_are_whole_or_the_earlier_ones(name, folder, monkeypatch):
    if name == "ONNX":
        pytest.importorskip("skl2onnx")
    if name == "report":
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(folder)
    path = folder / COMMANDS[name][-1]
    assert main(COMMANDS[name]) == 0
    size = path.stat().st_size
    path.write_bytes(OLD)
    for call in ("fsync", "replace"):
        assert not die_in_child(lambda: main(COMMANDS[name]), lambda c=call: die_at_call(c, False))
        assert path.read_bytes() == OLD
    # Two models of one table differ by a few bytes: the seconds of the fit have more digits or fewer.
    for number in (size // 2,) if name == "report" else (0, size // 2, size - size // 10):
        assert not die_in_child(lambda: main(COMMANDS[name]), lambda n=number: die_at_byte(n))
        assert path.read_bytes() == OLD
