"""The command that measures the papers' numbers again, `python -m reproduction`, run in an empty folder."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from reproduction.__main__ import main

PNG = b"\x89PNG\r\n\x1a\n"
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_list(capsys):
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in ("T00-figure-1-right", "T01-figure-1", "T01-table-4.4.1-sinc-uniform", "TF03-figure-1"):
        assert name in out
    assert main(["--list", "T00"]) == 0
    assert "T01-" not in capsys.readouterr().out


def test_reproduce_one_experiment(empty_folder, capsys):
    pytest.importorskip("matplotlib")
    assert main(["T01-figure-1", "--quick", "--jobs", "1", "--out", "there"]) == 0
    captured = capsys.readouterr()
    for word in ("published", "ours", "verdict", "CPU s", "0.0070", "assumed:", "4 published numbers"):
        assert word in captured.out
    assert "T01-figure-1 measured" in captured.err
    with (empty_folder / "there" / "results.csv").open() as file:
        rows = {row["quantity"]: row for row in csv.DictReader(file)}
    assert float(rows["vectors"]["ours"]) <= 10
    assert float(rows["largest error"]["ours"]) <= 0.0100
    assert rows["largest error"]["published"] == "0.0070"
    assert (empty_folder / "there" / "T01-figure-1-fit.png").read_bytes().startswith(PNG)
    page = (empty_folder / "there" / "index.html").read_text()
    assert "data:image/svg+xml;base64," in page and "0.0070" in page


def test_reproduce_without_matplotlib_still_measures(empty_folder, capsys, no_matplotlib):
    assert main(["T00-figure-1-left", "--jobs", "1"]) == 0
    assert "relvec[plot]" in capsys.readouterr().err
    written = {path.name for path in (empty_folder / "relvec-reproduce").iterdir()}
    assert written == {"index.html", "results.csv", "results.json", "parts"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["T99-figure-1"], "unknown experiment 'T99-figure-1'; choose from T00-figure-1-left"),
        (["T01-fig"], "unknown experiment"),
        (["--jobs", "0"], "no number of cores"),
        (["--jobs", "many"], "no number of cores"),
        (["--data-dir", "nowhere", "T01-figure-1"], "nowhere is not a folder"),
        (["--quick", "--full"], "not allowed with"),
        (["--draws", "0"], "no number of repetitions"),
    ],
)
def test_wrong_arguments_end_with_code_2(arguments, message, capsys, empty_folder):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(empty_folder.iterdir()) == []


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_a_reader_that_leaves_is_no_error():
    command = f"cd '{ROOT}' && {sys.executable} -m reproduction --list | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
