"""Mutants of the compiled modules in one build, switched at run time by the number of the place.

`python tools/native_mutants.py` builds them for the Python that runs it; `tools/mutate.py --built` then uses them.

In a copy of the sources every condition, every sum that is added to and every loop over a range asks that number
whether it is the one to change: a condition is turned, a term changes its sign, a loop ends one turn early. Places that
are come by are noted, so that a mutant need only meet the tests that reach it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
MODULES = ("solvers/_native/gaussian.pyx", "solvers/_native/laplace.pyx")
SWITCH = """cdef int MUTANT = -1
cdef unsigned char REACHED[10000]


cdef inline bint changes(int place) noexcept nogil:
    REACHED[place] = 1
    return MUTANT == place


def set_mutant(number):
    global MUTANT
    MUTANT = number


def take_reached():
    found = [place for place in range(10000) if REACHED[place]]
    for place in found:
        REACHED[place] = 0
    return found


"""
CONDITION = re.compile(r"(\s+(?:if|elif|while) )([^#]+):(\s*#.*)?")
SUM = re.compile(r"(\s+[\w.\[\], +*-]+ (?:\+|-)= )([^#]+?)(\s*#.*)?")
LOOP = re.compile(r"(\s+for \w+ in range\()(.*)(\)):(\s*#.*)?")


def switched(source: str, first: int = 0) -> tuple[str, list[tuple[int, str]]]:
    """The source with a switch at every place, numbered from ``first`` on, and line and text of each place."""
    lines, places, quoted, begun = [], [], False, False
    for number, line in enumerate(source.splitlines(), 1):
        if not begun and re.match(r"cdef |def |class ", line):
            lines.append(SWITCH)
            begun = True
        here, at = line, first + len(places)
        if line.count('"""') % 2:
            quoted = not quoted
        elif begun and not quoted and line.count("(") == line.count(")") and line.count("[") == line.count("]"):
            here = _switch(line, at)
        if here != line:
            places.append((number, line.strip()))
        lines.append(here)
    return "\n".join(lines) + "\n", places


def _switch(line: str, at: int) -> str:
    if (found := CONDITION.fullmatch(line)) is not None:
        return f"{found[1]}(not ({found[2]})) == changes({at}):"
    if (found := LOOP.fullmatch(line)) is not None and found[2].count("(") == found[2].count(")"):
        head, comma, end = found[2].rpartition(", ")
        if head.count("(") == head.count(")") and head.count(",") == 0:
            return f"{found[1]}{head}{comma}({end}) - changes({at})):"
    if (found := SUM.fullmatch(line)) is not None:
        return f"{found[1]}({found[2]}) * (1 - 2 * changes({at}))"
    return line


def modules() -> list[Any]:
    """The compiled modules, which `Finder` has imported."""
    return [importlib.import_module("relvec." + m.removesuffix(".pyx").replace("/", ".")) for m in MODULES]


def switch(number: int) -> None:
    """Change that place of the modules."""
    for module in modules():
        module.set_mutant(number)


def take_reached() -> list[int]:
    """The places that have been come by since the last call."""
    return [place for module in modules() for place in module.take_reached()]


class Finder(importlib.abc.MetaPathFinder):
    """Imports the compiled modules from another build, by default the one with switches."""

    def __init__(self, site: Path = BUILD / "site") -> None:
        self.site = site

    def find_spec(self, name, path=None, target=None):
        folder, _, module = name.rpartition(".")
        found = list((self.site / folder.replace(".", "/")).glob(f"{module}.*.so")) if "_native" in folder else []
        return importlib.util.spec_from_file_location(name, found[0]) if found else None


def places() -> list[tuple[str, int, int, str]]:
    """Module, number, line and text of every place."""
    found: list[tuple[str, int, int, str]] = []
    for module in MODULES:
        _, here = switched((ROOT / "src" / "relvec" / module).read_text())
        found += [(module, len(found) + i, line, text) for i, (line, text) in enumerate(here)]
    return found


def build() -> None:
    """Build the package with switches in the compiled modules."""
    source = BUILD / "source"
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    first = 0
    for module in MODULES:
        path = source / "src" / "relvec" / module
        text, here = switched(path.read_text(), first)
        path.write_text(text)
        first += len(here)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(BUILD / "site")]
    subprocess.run([*command, str(source)], check=True)


if __name__ == "__main__":
    build()
