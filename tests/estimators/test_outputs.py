"""Where the commands write: outputs are checked before the work begins, and a file is written whole or not at all."""

import errno
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest

import relvec
from relvec import plot
from relvec.app import cli
from relvec.app.cli import demo
from relvec.app.cli.console import Console
from relvec.runtime.files import write_atomically


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"{x},{np.sin(x) + 0.1 * e}" for x, e in zip(rng.uniform(0, 6, 40), rng.normal(size=40), strict=True)]
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    assert cli.main(["fit", "t.csv", "--target", "y", "--width", "1", "-o", "m.relvec", "--json"]) == 0
    return tmp_path


WRITERS = {
    "fit": ["fit", "t.csv", "--target", "y", "--width", "1", "-o"],
    "predict": ["predict", "m.relvec", "t.csv", "-o"],
    "report": ["report", "m.relvec", "t.csv", "--as", "html", "-o"],
    "export": ["export", "m.relvec", "--c"],
}


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize(("name", "message"), [("nowhere/out.csv", "the folder .*nowhere does not exist"),
                                               ("there", "this is a folder; give the name of a file")])  # fmt: skip
def test_outputs_are_checked_before_the_work_begins(folder, capsys, monkeypatch, command, name, message):
    (folder / "there").mkdir()
    refuse_work(monkeypatch)
    capsys.readouterr()
    assert cli.main([*WRITERS[command], name]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"relvec: {name}: ")
    assert re.search(message, error), error


def test_a_format_is_written_or_refused(folder, capsys):
    assert cli.main(["predict", "m.relvec", "t.csv", "-o", "p.ods"]) == 1
    assert "p.ods: tables cannot be written as '.ods'; use one of .csv" in capsys.readouterr().err
    assert not (folder / "p.ods").exists()


@pytest.mark.parametrize("command", WRITERS)
def test_files_beside_the_output_are_left_alone(folder, command):
    (folder / "out.csv.part").write_text("precious")
    assert cli.main([*WRITERS[command], "out.csv"]) == 0
    assert (folder / "out.csv.part").read_text() == "precious"
    assert not [path for path in folder.iterdir() if path.name.startswith(".relvec")]


@pytest.mark.skipif(os.name == "nt", reason="symbolic links, pipes and modes of POSIX")
@pytest.mark.parametrize("command", WRITERS)
def test_links_are_followed_and_pipes_are_written_into(folder, command):
    (folder / "elsewhere").write_text("old")
    (folder / "link.csv").symlink_to(folder / "elsewhere")
    assert cli.main([*WRITERS[command], "link.csv"]) == 0
    assert (folder / "link.csv").is_symlink() and (folder / "elsewhere").read_bytes() != b"old"
    os.mkfifo(folder / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe").read_bytes()), daemon=True)
    reader.start()
    assert cli.main([*WRITERS[command], "pipe"]) == 0
    reader.join(300)
    assert len(got[0]) > 100 and stat.S_ISFIFO((folder / "pipe").stat().st_mode)


@pytest.mark.parametrize("command", WRITERS)
def test_a_full_disk_leaves_the_earlier_file(folder, capsys, monkeypatch, command):
    (folder / "out.csv").write_text("earlier")

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main([*WRITERS[command], "out.csv"]) == 1
    assert "relvec: out.csv: No space left on device" in capsys.readouterr().err
    assert (folder / "out.csv").read_text() == "earlier"
    assert not [path for path in folder.iterdir() if path.name.startswith(".relvec")]


def refuse_work(monkeypatch):
    def work(*arguments, **options):
        raise AssertionError("the work has begun")

    for place in ("fit.read_table", "predict.read_pipeline", "evaluate.read_pipeline", "export.read_pipeline"):
        monkeypatch.setattr(f"relvec.app.cli.{place}", work)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links and sockets of POSIX")
@pytest.mark.parametrize("command", WRITERS)
def test_circles_of_links_sockets_and_files_of_others_are_refused_before_the_work(folder, capsys, monkeypatch, command):
    refuse_work(monkeypatch)
    (folder / "circle").symlink_to(folder / "back")
    (folder / "back").symlink_to(folder / "circle")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    (folder / "kept").write_text("kept")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "kept" not in str(path) and real(path, mode))
    for name, message in (("circle", "cannot write here"), ("socket", "this is a socket"), ("kept", "you may not")):
        assert cli.main([*WRITERS[command], name]) == 1
        assert capsys.readouterr().err.startswith(f"relvec: {name}: {message}")
    assert (folder / "circle").is_symlink() and stat.S_ISSOCK((folder / "socket").stat().st_mode)
    assert (folder / "kept").read_text() == "kept"


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="no files of open descriptors here")
@pytest.mark.parametrize("command", WRITERS)
def test_a_descriptor_of_a_pipe_is_written_into(folder, command):
    """What a shell gives for ``-o >(gzip > p.gz)``: a link whose target has no path."""
    out, into = os.pipe()
    got = []

    def read():
        with os.fdopen(out, "rb") as file:
            got.append(file.read())

    (reader := threading.Thread(target=read, daemon=True)).start()
    assert cli.main([*WRITERS[command], f"/dev/fd/{into}"]) == 0
    os.close(into)
    reader.join(300)
    assert len(got[0]) > 100


@pytest.mark.parametrize("arguments", [
    ["fit", "t.csv", "--target", "y", "-o", "t.csv"], ["predict", "m.relvec", "t.csv", "-o", "t.csv"],
    ["predict", "m.relvec", "t.csv", "-o", "link.csv"],
    ["report", "m.relvec", "t.csv", "-o", "m.relvec", "--as", "html"],
    ["report", "m.relvec", "t.csv", "-o", "t.csv"], ["export", "m.c", "--c"],
    ["calibrate", "m.relvec", "t.csv", "-o", "t.csv"],
])  # fmt: skip
def test_no_output_replaces_what_the_command_reads(folder, capsys, monkeypatch, arguments):
    (folder / "link.csv").symlink_to(folder / "t.csv")
    (folder / "m.c").write_bytes((folder / "m.relvec").read_bytes())
    before = {path: path.read_bytes() for path in folder.iterdir()}
    refuse_work(monkeypatch)
    capsys.readouterr()
    assert cli.main(arguments) == 1
    assert "the command reads this file, and its output would replace it" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_two_exports_need_two_files(folder, capsys):
    with pytest.raises(SystemExit):
        cli.main(["export", "m.relvec", "--onnx", "same", "--c", "./same"])
    assert "--onnx and --c name the same file" in capsys.readouterr().err
    assert not (folder / "same").exists()


def test_a_finished_fit_is_kept_where_the_disk_is_full(folder, capsys, monkeypatch):
    real, calls = os.fsync, []

    def full_once(file):
        calls.append(file)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    (folder / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    monkeypatch.setattr(os, "fsync", full_once)
    assert cli.main([*WRITERS["fit"], "out.relvec"]) == 1
    found = re.search(r"out.relvec: No space left on device; the model was saved as (.*)", capsys.readouterr().err)
    assert relvec.load(found[1])["columns"].target.name == "y"
    assert not (folder / "out.relvec").exists()


@pytest.mark.skipif(os.name == "nt", reason="modes and owners of POSIX")
def test_a_new_file_has_the_mode_and_the_owner_of_the_old_one(tmp_path, monkeypatch):
    place, made = tmp_path / "out", []
    place.write_text("old")
    place.chmod(0o600)
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, mode: made.append(mode) or real(path, flags, mode))
    if os.geteuid() == 0:
        os.chown(place, 65534, 65534)
    owner = place.stat().st_uid
    write_atomically(place, b"new")
    assert made == [0o600]  # nobody else may read it before it is complete
    assert (stat.S_IMODE(place.stat().st_mode), place.stat().st_uid) == (0o600, owner)


def test_pictures_of_the_demo_are_whole_or_the_earlier_ones(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    (tmp_path / "diabetes.csv").mkdir()
    monkeypatch.setattr("relvec.app.cli.demo._demo_sinc", lambda folder: pytest.fail("the work has begun"))
    assert cli.main(["demo", "--out", str(tmp_path)]) == 1
    assert "diabetes.csv: this is a folder" in capsys.readouterr().err
    place = tmp_path / "sinc.png"
    place.write_text("earlier")

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"sinc\.png"):
        demo._save(plot.new_figure(), place)
    assert place.read_text() == "earlier" and sorted(p.name for p in tmp_path.iterdir()) == ["diabetes.csv", "sinc.png"]


def test_json_on_a_terminal_has_no_control_characters(capsys, monkeypatch):
    Console(as_json=True).print_json({"level": "a\x9b31m\u202eb"})
    assert json.loads(shown := capsys.readouterr().out)["level"] in shown
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Console(as_json=True).print_json({"level": "a\x9b31m\u202eb"})
    assert capsys.readouterr().out.isascii()


def test_standard_output_may_be_closed(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["predict", "m.relvec", "t.csv"]) == 1
    assert cli.main(["inspect", "m.relvec"]) == 0
    assert "standard output is closed: name a file" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["fit", "--help"], ["fti"], ["fit", "--tarket", "y"]])
def test_help_and_mistakes_are_answered_before_anything_heavy_is_loaded(arguments):
    code = f"""
import sys
from relvec.app.cli import main
try:
    main({arguments})
except SystemExit:
    pass
print([name for name in ("numpy", "scipy", "sklearn", "matplotlib", "relvec.estimators") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n"), done.stdout[-200:]
