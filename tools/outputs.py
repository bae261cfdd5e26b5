"""Run the examples of the pages and write what they print beneath them: `python tools/outputs.py [PAGE ...]`.

Without pages it takes the README and the guide. A block of Python that is followed by a block of text owns that text.
`--check` changes nothing and says which pages would change.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = re.compile(r", fitted in \d+ s$")  # other on every machine
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?P<between>\s+)(?:```text\n(?P<text>.*?)```)?", re.DOTALL)


def refreshed(page: str) -> str:
    """The page with the output of its examples as they print it now."""
    names: dict = {"__name__": "__main__"}

    def run(match: re.Match) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(match["code"], "<page>", "exec"), names)
        if match["text"] is None:
            return match[0]
        lines = [SECONDS.sub("", line.rstrip()) for line in printed.getvalue().rstrip().splitlines()]
        return f"```python\n{match['code']}```{match['between']}```text\n" + "\n".join(lines) + "\n```"

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
