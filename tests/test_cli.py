"""The command line, run as a newcomer would: in an empty folder."""

import csv
import subprocess
import sys

import pytest

from relvec import __version__, cli

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_demo_prints_the_summary_and_writes_pictures(empty_folder, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main(["demo"]) == 0
    out = capsys.readouterr().out
    for what in ("vectors kept", "noise found", "log evidence", "test error", "seconds", "status         converged"):
        assert out.count(what) == 2
    assert "of 100" in out and "of 331" in out
    pictures = sorted(path.name for path in (empty_folder / "relvec-demo").iterdir())
    assert pictures == ["diabetes.png", "sinc.png"]
    assert all((empty_folder / "relvec-demo" / name).read_bytes().startswith(PNG) for name in pictures)


def test_demo_without_pictures(empty_folder, capsys):
    assert cli.main(["demo", "--no-plots"]) == 0
    assert "picture" not in capsys.readouterr().out
    assert list(empty_folder.iterdir()) == []


def test_demo_without_matplotlib_names_the_extra(empty_folder, capsys, no_matplotlib):
    assert cli.main(["demo"]) == 0
    captured = capsys.readouterr()
    assert "relvec[plot]" in captured.err
    assert "vectors kept" in captured.out
    assert list(empty_folder.iterdir()) == []


def test_list(capsys):
    assert cli.main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    for name in ("T00-figure-1-right", "T01-figure-1", "T01-table-4.4.1-sinc-uniform", "TF03-figure-1"):
        assert name in out
    assert cli.main(["reproduce", "--list", "T00"]) == 0
    assert "T01-" not in capsys.readouterr().out


def test_reproduce_one_experiment(empty_folder, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main(["reproduce", "T01-figure-1", "--quick", "--jobs", "1", "--out", "there"]) == 0
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
    assert cli.main(["reproduce", "T00-figure-1-left", "--jobs", "1"]) == 0
    assert "relvec[plot]" in capsys.readouterr().err
    written = {path.name for path in (empty_folder / "relvec-reproduce").iterdir()}
    assert written == {"index.html", "results.csv", "results.json", "parts"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "T99-figure-1"], "unknown experiment 'T99-figure-1'; choose from T00-figure-1-left"),
        (["reproduce", "T01-fig"], "unknown experiment"),
        (["reproduce", "--jobs", "0"], "no number of cores"),
        (["reproduce", "--jobs", "many"], "no number of cores"),
        (["reproduce", "--data-dir", "nowhere", "T01-figure-1"], "nowhere is not a folder"),
        (["reproduce", "--quick", "--full"], "not allowed with"),
        (["reproduce", "--draws", "0"], "no number of repetitions"),
        (["surprise"], "invalid choice"),
        ([], "required"),
    ],
)
def test_wrong_arguments_end_with_code_2(arguments, message, capsys, empty_folder):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["reproduce", "--help"]])
def test_help_has_examples(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "relvec.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"relvec {__version__}\n"


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m relvec.cli reproduce --list | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "relvec", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("relvec ")


def test_the_package_is_a_command():
    done = subprocess.run([sys.executable, "-m", "relvec", "--version"], capture_output=True, text=True, check=True)
    assert __version__ in done.stdout


@pytest.mark.parametrize(("error", "code", "words"), [(KeyboardInterrupt(), 130, "interrupted\n"),
                                                      (MemoryError(), 1, "relvec: MemoryError\n")])  # fmt: skip
def test_interrupts_and_errors_without_words(error, code, words, monkeypatch, capsys, tmp_path):
    def refuse(*arguments, **options):
        raise error

    monkeypatch.setattr("relvec.cli.commands.read_table", refuse)
    assert cli.main(["fit", str(tmp_path / "x.csv"), "--target", "y", "--out", str(tmp_path / "m.relvec")]) == code
    assert capsys.readouterr().err.endswith(words)
