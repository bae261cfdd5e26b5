"""The command line, run as a newcomer would: in an empty folder."""

import subprocess
import sys

import pytest

from relvec import __version__
from relvec.app import cli

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
    for what in ("rows kept", "noise found", "log evidence", "test error", "status         converged"):
        assert out.count(what) == 2
    assert "of 100" in out and "of 331" in out
    table = "relvec-demo/diabetes.csv"
    assert f"next:  relvec fit {table} --target progression" in out
    assert cli.main(["fit", table, "--target", "progression", "--width", "8", "--holdout", "0"]) == 0
    (empty_folder / table).unlink()
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
    assert "rows kept" in captured.out
    assert [path.name for path in (empty_folder / "relvec-demo").iterdir()] == ["diabetes.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["surprise"], "invalid choice"),
        (["fit", "table.csv", "--tagret", "y"], "did you mean --target?"),
        (["demo", "--no-such-option"], "unknown argument '--no-such-option'"),
        ([], "required"),
    ],
)
def test_wrong_arguments_end_with_code_2(arguments, message, capsys, empty_folder):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"]])
def test_help_has_examples(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m relvec demo --no-plots | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""


def test_the_package_is_a_command():
    done = subprocess.run([sys.executable, "-m", "relvec", "--version"], capture_output=True, text=True, check=True)
    assert __version__ in done.stdout


@pytest.mark.parametrize(("error", "code", "words"), [(KeyboardInterrupt(), 130, "interrupted\n"),
                                                      (MemoryError(), 1, "relvec: MemoryError\n")])  # fmt: skip
def test_interrupts_and_errors_without_words(error, code, words, monkeypatch, capsys, tmp_path):
    def refuse(*arguments, **options):
        raise error

    monkeypatch.setattr("relvec.app.cli.fit.read_table", refuse)
    assert cli.main(["fit", str(tmp_path / "x.csv"), "--target", "y", "--out", str(tmp_path / "m.relvec")]) == code
    assert capsys.readouterr().err.endswith(words)
