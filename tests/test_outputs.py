"""Where the commands write: outputs are checked before the work begins, and a file is written whole or not at all."""

import errno
import os
import re
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from relvec import cli


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

    def work(*arguments, **options):
        raise AssertionError("the work has begun")

    for place in ("fit.read_table", "predict.read_model", "report.read_model", "export.read_model"):
        monkeypatch.setattr(f"relvec.cli.{place}", work)
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


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["fit", "--help"], ["fti"], ["fit", "--tarket", "y"]])
def test_help_and_mistakes_are_answered_before_anything_heavy_is_loaded(arguments):
    code = f"""
import sys
from relvec.cli import main
try:
    main({arguments})
except SystemExit:
    pass
print([name for name in ("numpy", "scipy", "sklearn", "matplotlib", "relvec.estimators") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n"), done.stdout[-200:]
