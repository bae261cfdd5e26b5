"""Assemble news/<issue>.<kind>.md into CHANGELOG.md.

usage: changelog.py                 print the section the fragments make
       changelog.py VERSION DATE    write it to CHANGELOG.md and remove the fragments
       changelog.py --notes VERSION print the section of a release, without its heading
"""

import re
import sys
from pathlib import Path

KINDS = {"feature": "New", "change": "Changed", "fix": "Fixed", "removal": "Removed", "doc": "Documentation"}
MARK = "<!-- releases -->\n"  # new sections go right below it
NAME = re.compile(rf"(\d+)(-\d+)?\.({'|'.join(KINDS)})\.md")


def fragments(news: Path) -> dict[Path, re.Match[str]]:
    """The fragments in the order of their issues; any other file but README.md is an error."""
    found = {path: NAME.fullmatch(path.name) for path in news.iterdir() if path.name != "README.md"}
    if bad := sorted(path.name for path, match in found.items() if match is None):
        raise SystemExit(f"expected names like 12.fix.md with a kind among {', '.join(KINDS)}; found {', '.join(bad)}")
    matched = {path: match for path, match in found.items() if match}
    return dict(sorted(matched.items(), key=lambda item: (int(item[1][1]), item[0].name)))


def section(found: dict[Path, re.Match[str]], title: str) -> str:
    """The Markdown section of these fragments."""
    parts = [f"## {title}"]
    for kind, heading in KINDS.items():
        items = [f"- {' '.join(path.read_text().split())} (#{m[1]})" for path, m in found.items() if m[3] == kind]
        parts += [f"### {heading}", "\n".join(items)] if items else []
    return "\n\n".join(parts) + "\n"


def release_notes(changelog: str, version: str) -> str:
    """The text of the section of a version, without its heading."""
    found = re.search(rf"^## {re.escape(version)} \([^)]*\)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section on {version}")
    return found[1].strip() + "\n"


def main(root: Path, *release: str) -> None:
    if release[:1] == ("--notes",):
        print(release_notes((root / "CHANGELOG.md").read_text(), *release[1:]), end="")
        return
    found = fragments(root / "news")
    if len(release) != 2:
        print(section(found, "Unreleased"), end="")
        return
    changelog = root / "CHANGELOG.md"
    before, mark, after = changelog.read_text().partition(MARK)
    if not found or not mark:
        raise SystemExit("nothing to release: no fragment in news/, or no marker in CHANGELOG.md")
    changelog.write_text(f"{before}{MARK}\n{section(found, f'{release[0]} ({release[1]})')}{after}")
    for path in found:
        path.unlink()


if __name__ == "__main__":
    main(Path(__file__).parents[1], *sys.argv[1:])
