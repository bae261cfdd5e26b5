"""Mutated tables and hostile words, for `tests/guards.py --only tables`: files are read and pages written.

A file becomes a `Table` or a TableError that names it; `relvec fit` ends with 0 or 1 and a sentence, never with a
traceback. A page has no tag or attribute but its own. Anything else, something run or opened on the way, or memory
beyond a multiple of the file's length is a failure.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import json
import re
import tempfile
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

import messy
from fuzz import Watch, damage
from relvec.app import cli
from relvec.app.report.html import html_table, text
from relvec.app.tables import TableError, read_table
from reproduction import _page

FITS = 50  # one in so many files goes through `relvec fit`
WORDS = [
    "", ",", ";", '"', '""', "\n", "\r\n", "\t", "\x00", "\ufeff", "nan", "-inf", "1e999", "9" * 400, "1_000", "0x1f",
    "1,5", "=cmd|' /C calc'!A0", "<script>alert(1)</script>", "../../etc/passwd", "\ud800", "a" * 100_000, "'; --",
    "2024-02-30", "99999-01-01", "true", "None", "__import__('os')", "{}", "[]", "𝟙𝟚", "١٢", "%s%n", "${x}",
]  # fmt: skip
HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</table></main><h1>", "&amp;", "&#60;b&#62;",
    "javascript:alert(1)", "\x00\x08\x1b[31m", "\ud800", "a\u202eb", "--><!--", "]]>", "' onload='", "</style>",
    "</script><script>alert(1)//", "T01-<b>", '#" onclick="x', "\u2028", "<!--", "<?php", "x" * 300,
]  # fmt: skip


def files() -> list[tuple[str, bytes]]:
    """Return the files that are mutated, and their endings."""
    import pandas

    out = io.BytesIO()
    np.savez(out, x=np.arange(12.0), y=np.arange(12.0) ** 2)
    frame = pandas.DataFrame({"Price": np.arange(30.0) ** 2, "Town": list("abc") * 10, "Rooms": np.arange(30) % 7})
    others = []
    for ending, write in ((".parquet", frame.to_parquet), (".xlsx", partial(frame.to_excel, index=False)),
                          (".feather", partial(frame.to_feather, compression="uncompressed"))):  # fmt: skip
        write(written := io.BytesIO())
        others.append((ending, written.getvalue()))
    return [*others,
        (".csv", messy.houses(40)), (".csv", messy.patients(30)), (".jsonl", messy.calls(30)), (".npz", out.getvalue()),
        (".csv.gz", gzip.compress(messy.houses(40))), (".tsv", messy.houses(20).replace(b",", b"\t")),
    ]  # fmt: skip


def mutated(rng: np.random.Generator, data: bytes) -> bytes:
    """Bytes changed, or cells and lines of a text moved, repeated, or replaced by words that mean trouble."""
    if rng.random() < 0.4:
        return damage(rng, data)
    lines = data.split(b"\n")
    for _ in range(int(rng.integers(1, 4))):
        at, kind = int(rng.integers(len(lines))), rng.integers(5)
        cells = re.split(rb"([,;\t])", lines[at])
        if kind == 0:
            cells[rng.integers(len(cells))] = WORDS[rng.integers(len(WORDS))].encode("utf-8", "surrogatepass")
            lines[at] = b"".join(cells)
        elif kind == 1:
            lines[at] = b"".join(cells[: rng.integers(len(cells)) + 1])
        elif kind == 2:
            lines[at:at] = [lines[rng.integers(len(lines))]] * int(rng.integers(1, 30))
        elif kind == 3:
            lines[at] = lines[at] * int(rng.integers(2, 20))
        else:
            encoding = ["utf-16", "latin-1", "utf-8-sig"][rng.integers(3)]
            return b"\n".join(lines).decode("utf-8", "replace").encode(encoding, "replace")
    return b"\n".join(lines)


def mutate_member(rng: np.random.Generator, data: bytes) -> bytes:
    """A zip archive with one of its files mutated, and a right checksum around it."""
    packed, out = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    chosen = packed.namelist()[rng.integers(len(packed.namelist()))]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as repacked:
        for name in packed.namelist():
            content = packed.read(name)
            repacked.writestr(name, mutated(rng, content) if name == chosen else content)
    return out.getvalue()


def attempt(path: Path, watch: Watch) -> str:
    """Read one file: "read" or "refused"; an AssertionError for anything else."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    watch.path = str(path)
    with watch:
        try:
            result = "read" if len(read_table(path)) else "empty"
        except TableError as error:
            result = "refused"
            assert str(path) in str(error), f"no file named: {error}"
    peak = tracemalloc.get_traced_memory()[1]
    assert not watch.events, watch.events
    size = path.stat().st_size
    assert peak - before < 1100 * size + 20_000_000, f"{peak - before} bytes for a file of {size}"
    return result


def fit(path: Path, folder: Path) -> str:
    """Run `relvec fit` on a file: "fitted" or "no fit"."""
    said, told = io.StringIO(), io.StringIO()
    command = ["fit", str(path), "--target", "Price", "--out", str(folder / "model.relvec"), "--time-limit", "1"]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = cli.main(command)
    assert code in (0, 1), f"exit code {code}"
    assert code == 0 or told.getvalue().startswith("relvec: "), told.getvalue()[:200]
    return "fitted" if code == 0 else "no fit"


class Strict(HTMLParser):
    """Refuses what the page does not write itself: tags, attributes, scripts, and tags that are not closed in order."""

    def __init__(self, page: str, tags: set, attributes: set) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags, self.attributes, self.scripts = tags, attributes, 0
        self.feed(page)
        self.close()
        assert self.open == [] and self.scripts == ("script" in tags), (self.open, self.scripts)
        page.encode("utf-8")

    def handle_starttag(self, tag, attrs) -> None:
        assert tag in self.tags, tag
        assert {name for name, _ in attrs} <= self.attributes, attrs
        assert all(re.match("#|data:image/", value) for name, value in attrs if name in ("src", "href")), attrs
        self.scripts += tag == "script"
        if tag not in ("meta", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag, tag

    def handle_comment(self, data) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data) -> None:
        raise AssertionError(f"an instruction: {data}")


TABLE = set("div table thead tbody tr th td".split())
PAGE = TABLE | set("html head meta title style body main p h1 h2 h3 h4 nav a section b span ul li small code article "
                   "figure img figcaption footer button input select option script label".split())  # fmt: skip
ATTRIBUTES = set(
    "lang charset name content http-equiv class id href tabindex alt src value hidden type placeholder "
    "aria-label aria-pressed aria-sort data-label data-paper data-name data-group data-words data-key data-bare".split()
)


def pages(rng: np.random.Generator) -> None:
    """A table and a reproduction page whose every word comes from elsewhere."""

    def word() -> str:
        return "".join(HOSTILE[rng.integers(len(HOSTILE))] for _ in range(rng.integers(1, 3)))

    rows = [[word(), float(rng.normal()), word()] for _ in range(3)]
    Strict(html_table([word(), word(), word()], rows, (1,)), TABLE, ATTRIBUTES)
    assert "<" not in text(word()) and '"' not in text(word())
    number = {"quantity": word(), "where": word(), "published": word(), "ours": word(), "why": word(),
              "verdict": word(), "group": "worse", "mean": float(rng.normal()), "draws": 3}  # fmt: skip
    experiment = {"name": word(), "title": word(), "source": word(), "state": word(), "problem": word(), "seconds": 1.0,
                  "days": [word()], "draws": 2, "full": 3, "assumptions": [word()], "notes": [word()], "figures": [],
                  "rows": [number] * int(rng.integers(2))}  # fmt: skip
    record = {"experiments": [experiment], "machine": {"relvec": word(), "day": word(), word(): word()},
              "how": word(), "overview": "", "seconds": 3.0,
              "verdicts": {"better": 0, "within two standard errors": 0, "worse": 1}}  # fmt: skip
    record = json.loads(json.dumps(record))  # as it comes from a file
    Strict(_page.page(record, Path()), PAGE, ATTRIBUTES)


def make_case() -> Callable[[int, int], list[str]]:
    """Return a function of a seed and a number that reads one mutated file and writes a page; one in 50 is fitted."""
    # Parsed: the header of a .npy file, a literal that numpy does not run.
    originals, watch = files(), Watch(allowed=("compile",))
    with tempfile.TemporaryDirectory() as folder:
        for encoding in ("unicode_escape", "latin-1", "utf-16"):
            codecs.lookup(encoding)
        for ending, data in originals:  # imports what reading needs
            (whole := Path(folder) / f"whole{ending}").write_bytes(data)
            read_table(whole)

    def case(seed: int, number: int) -> list[str]:
        rng = np.random.default_rng([seed, number])
        ending, data = originals[rng.integers(len(originals))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"table{ending}"
            inside = ending in (".xlsx", ".npz") and rng.random() < 0.7
            path.write_bytes(mutate_member(rng, data) if inside else mutated(rng, data))
            tracemalloc.start()
            try:
                ends = [attempt(path, watch)]
            finally:
                tracemalloc.stop()
            pages(rng)
            return [*ends, "pages", *([fit(path, Path(folder))] if number % FITS == 0 else [])]

    return case
