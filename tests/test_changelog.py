"""tools/changelog.py turns the fragments of news/ into a section of the changelog."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("changelog", ROOT / "tools" / "changelog.py")
changelog = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(changelog)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "news").mkdir()
    for name, text in {
        "README.md": "how",
        "10.fix.md": "Ten.\n",
        "2.fix.md": "Two,\nin two lines.",
        "3.feature.md": "Three.",
    }.items():
        (tmp_path / "news" / name).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog.MARK}\n## 0.9 (2000-01-01)\n\n- Old.\n")
    return tmp_path


SECTION = "### New\n\n- Three. (#3)\n\n### Fixed\n\n- Two, in two lines. (#2)\n- Ten. (#10)\n"


def test_release(project):
    changelog.main(project, "1.0", "2000-02-02")
    assert (project / "CHANGELOG.md").read_text() == (
        f"# Changelog\n\n{changelog.MARK}\n## 1.0 (2000-02-02)\n\n{SECTION}\n## 0.9 (2000-01-01)\n\n- Old.\n"
    )
    assert [path.name for path in (project / "news").iterdir()] == ["README.md"]
    with pytest.raises(SystemExit, match="nothing to release"):
        changelog.main(project, "1.0", "2000-02-02")


def test_draft_changes_nothing(project, capsys):
    before = sorted((project / "news").iterdir())
    changelog.main(project)
    assert capsys.readouterr().out == f"## Unreleased\n\n{SECTION}"
    assert sorted((project / "news").iterdir()) == before


def test_a_misnamed_fragment_is_refused(project):
    (project / "news" / "11.bugfix.md").write_text("x")
    with pytest.raises(SystemExit, match=r"found 11\.bugfix\.md"):
        changelog.main(project)


def test_the_fragments_of_this_project_are_well_named(capsys):
    changelog.main(ROOT)
    assert capsys.readouterr().out.startswith("## Unreleased")


def test_notes_of_a_release(project, capsys):
    changelog.main(project, "1.0", "2000-02-02")
    changelog.main(project, "--notes", "1.0")
    assert capsys.readouterr().out == SECTION
    changelog.main(project, "--notes", "0.9")
    assert capsys.readouterr().out == "- Old.\n"
    with pytest.raises(SystemExit, match=r"no section on 1\.1"):
        changelog.main(project, "--notes", "1.1")
