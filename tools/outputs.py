"""Run the examples of the pages and write what they print beneath them: `python tools/outputs.py [PAGE ...]`.

Without pages it takes the README and the guide. A block of Python, or of shell, that is followed by a block of text
owns that text; shell blocks without one are not run, and those with one hold `relvec` commands alone. `--check` changes
nothing and says which pages would change.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAMILIES = "sparse linear model|relevance vector machine|Gaussian process"
SECONDS = re.compile(rf"^(  (?:{FAMILIES}) .*?)\d+\.\d *(?=(?:chosen)?$)|(?<=fitted in )\d+(?= s$)", re.MULTILINE)
BLOCK = re.compile(
    r"^```(?P<language>python|bash)\n(?P<code>.*?)^```$(?P<between>\s+)(?:^```text\n(?P<text>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


def timeless(text: str) -> str:
    """The text without the seconds that fits took, which are other on every machine."""
    return SECONDS.sub(r"\1", text)


def run_block(block: re.Match, names: dict, page: str = "<page>") -> None:
    """Run a block of Python in the namespace of its page, or the commands of a shell block that owns a text."""
    if block["language"] == "python":
        before = "\n" * block.string.count("\n", 0, block.start("code"))  # an error then shows the line of the page
        exec(compile(before + block["code"], page, "exec"), names)
    elif block["text"] is not None:
        from relvec.app.cli import main

        for line in block["code"].splitlines():
            program, *arguments = shlex.split(line, comments=True)
            if program != "relvec" or main(arguments) != 0:
                raise RuntimeError(f"{page}: {line}")


def refreshed(page: str) -> str:
    """The page with the output of its examples as they print it now."""
    names: dict = {"__name__": "__main__"}

    def run(match: re.Match) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_block(match, names)
        if match["text"] is None:
            return match[0]
        text = "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines()) + "\n"
        if timeless(text) == timeless(match["text"]):
            return match[0]
        return f"```{match['language']}\n{match['code']}```{match['between']}```text\n{text}```"

    return BLOCK.sub(run, page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    pages = [page.resolve() for page in args.pages] or [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
    changed = []
    for page in pages:
        old = page.read_text()
        try:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                new = refreshed(old)
        except ModuleNotFoundError as error:  # an optional package
            print(f"{os.path.relpath(page, ROOT)}: not run, {error.name} is not installed")
            continue
        if new != old:
            changed.append(os.path.relpath(page, ROOT))
            if not args.check:
                page.write_text(new)
    print("\n".join(changed) or "every page prints what it says")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
