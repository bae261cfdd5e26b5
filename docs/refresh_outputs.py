"""Run the pages' examples and rewrite the output shown beneath them: python docs/refresh_outputs.py docs/guide/*.md.

The output of a ```python block is the ```text block that follows it after one empty line. With --check nothing is
written, and the exit code is 1 where a page shows other output than its examples print.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```$(?P<gap>\n\n)?(?P<shown>(?<=\n\n)```text\n.*?^```$)?", re.M | re.S)


def refreshed(page):
    """Return the page's text with every output as printed now."""
    text, namespace = page.read_text(), {"__name__": "__main__"}

    def run(match):
        printed = io.StringIO()
        source = "\n" * text[: match.start("code")].count("\n") + match["code"]  # an error shows the line of the page
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(page), "exec"), namespace)
        if match["shown"] is None:
            return match[0]
        return match[0][: match.start("shown") - match.start()] + f"```text\n{printed.getvalue().rstrip()}\n```"

    return EXAMPLE.sub(run, text)


def main(arguments):
    check, stale = "--check" in arguments, []
    pages = [Path(name).resolve() for name in arguments if name != "--check"]
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for page in pages:
            text = refreshed(page)
            if text != page.read_text():
                stale.append(page)
                if not check:
                    page.write_text(text)
    for page in stale:
        print(f"{page}: {'its output is not what the examples print' if check else 'refreshed'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
