"""The reports, the page of `make reproduce` and the front page of the docs in a real browser, wide and narrow.

``make browser`` installs what is needed (playwright; Chromium from the system or from ``playwright install chromium``)
and runs these tests. Screenshots are left in the folder named by RELVEC_SCREENSHOTS, where it is set.
"""

import functools
import http.server
import itertools
import os
import shutil
import threading
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

import messy
from relvec.app import cli
from reproduction.__main__ import main

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
FRONT = ROOT / "docs" / "_build" / "html" / "index.html"
WIDTHS = (1400, 390)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make browser")
    with sync_api.sync_playwright() as playwright:
        system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        try:
            chromium = playwright.chromium.launch(executable_path=system, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no Chromium: install the system's, or run `playwright install chromium` ({error})"[:300])
        yield chromium
        chromium.close()


def flowers():
    """Return a table of three classes."""
    data = load_iris()
    rows = [",".join(map(str, row)) + f",{data.target_names[k]}" for row, k in zip(data.data, data.target)]
    return "\n".join(["a,b,c,d,kind", *rows]).encode()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    hostile = messy.houses(60, seed=3).replace(b"Ulm", b"<img src=x onerror=document.title=1>")
    for name, data, target, task in (("houses", messy.houses(), "Price", "auto"), ("hostile", hostile, "Price", "auto"),
                                     ("patients", messy.patients(), "recovered", "auto"),
                                     ("flowers", flowers(), "kind", "auto"),
                                     ("calls", messy.calls(), "calls", "count")):  # fmt: skip
        (folder / name).write_bytes(data)
        table, model = str(folder / name), str(folder / f"{name}.relvec")
        assert cli.main(["fit", table, "--target", target, "--task", task, "-o", model]) == 0
        assert cli.main(["report", model, table, "-o", str(folder / f"{name}.html")]) == 0
    return folder


def opened(browser, path, width):
    """Return the page, what the console said, and what was asked from the network."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    return page, said, asked


def keep(page, name):
    if folder := os.environ.get("RELVEC_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["houses", "patients", "flowers", "calls", "hostile"])
def test_report(browser, reports, name, width):
    page, said, asked = opened(browser, reports / f"{name}.html", width)
    keep(page, f"{name}-{width}")
    assert said == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    titles = {"patients": "Classification of recovered", "flowers": "Classification of kind", "calls": "Count of calls"}
    assert page.title() == titles.get(name, "Regression of Price")
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    size = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert page.evaluate(size)[0] <= page.evaluate(size)[1], "the page scrolls sideways"
    pictures = page.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth])")
    assert len(pictures) >= 4 and all(
        done and natural > 0 and 100 < shown <= width for done, natural, shown in pictures
    )
    overlap = """[...document.querySelectorAll('h1, h2, p, td, th, .card, li')].filter(
        e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.textContent)"""
    assert page.evaluate(overlap) == []
    page.click("nav a[href='#vectors']")
    assert page.evaluate("document.querySelector('#vectors').getBoundingClientRect().top") < 900
    page.close()


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    names = ["T00-figure-1-left", "T01-tables-1-2", "T01-figures-7-8", "TF03-figure-1"]
    assert main([*names, "RQ05-figure-2", "--draws", "2", "--jobs", "1", "--out", str(folder)]) == 0
    return folder / "index.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_reproduction(browser, reproduction, width):
    page, said, asked = opened(browser, reproduction, width)
    keep(page, f"reproduction-{width}")
    assert said == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    pictures = page.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth])")
    assert len(pictures) >= 6 and all(done and own > 0 and 100 < shown <= width for done, own, shown in pictures)

    def seen(what):
        return page.evaluate(f"[...document.querySelectorAll('{what}')].filter(e => e.offsetParent).length")

    rows, articles = seen("#numbers tbody tr"), seen("article")
    assert articles == 7 and rows > 20  # T01-tables-1-2 stands for three
    page.click("#papers button[value=T00]")
    assert seen("article") == 1 and seen("section.paper") == 1
    assert page.inner_text("#count") == f"{seen('#numbers tbody tr')} of {rows} numbers"
    page.click("#papers button[value='']")
    page.select_option("#group", "worse")
    verdicts = page.evaluate(
        "[...document.querySelectorAll('#numbers tbody tr')].filter(e => e.offsetParent).map(e => e.dataset.group)"
    )
    assert verdicts and set(verdicts) == {"worse"}
    page.select_option("#group", "")
    page.fill("#words", "l(alpha)")
    assert seen("article") == 1
    page.fill("#words", "no such thing")
    assert seen("article") == seen("#numbers tbody tr") == 0
    page.fill("#words", "")
    assert (seen("#numbers tbody tr"), seen("article")) == (rows, articles)
    column = "[...document.querySelectorAll('#numbers tbody tr')].map(e => e.children[3].dataset.key)"
    before = [float(key) for key in page.evaluate(column)]
    page.click("#numbers th:nth-child(4) button")
    assert [float(key) for key in page.evaluate(column)] == sorted(before)
    page.click("#numbers th:nth-child(4) button")
    assert [float(key) for key in page.evaluate(column)] == sorted(before, reverse=True)
    page.close()


GALLERY = sorted(f"auto_examples/{path.stem}" for path in (ROOT / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["index", "guide/index", "guide/start", "guide/papers", "guide/regression", "api",
                                  "auto_examples/index", *GALLERY, "commands", "reproduction"])  # fmt: skip
def test_pages_of_the_docs(browser, name, width):
    path = FRONT.parent / f"{name}.html"
    if not path.is_file():
        pytest.skip("the docs are not built: make docs")
    page, said, _ = opened(browser, path, width)
    keep(page, f"docs-{name.replace('/', '-')}-{width}")
    assert said == []
    assert page.inner_text("h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if name in ("index", "api"):  # tables do not scroll inside their boxes either
        wide = "[...document.querySelectorAll('article td')].map(e => e.getBoundingClientRect().right)"
        assert max(page.evaluate(wide)) <= width
    pictures = page.evaluate("[...document.images].filter(i => i.clientWidth).map(i => i.naturalWidth)")
    assert all(pictures)
    if page.query_selector("div.highlight-python"):
        assert page.query_selector("button.copybtn"), "code has a button that copies it"
    page.close()


STUB = """
export async function startRuntime(say) {
  say("started");
  const text = (file) => new TextDecoder().decode(file.bytes);
  return {
    columns: async (file) => text(file).split("\\n")[0].split(","),
    report: async (file, target) => {
      if (target === "bad") throw new Error("t.csv, column 'bad': every target is missing");
      return `<!doctype html><h1>Regression of ${target}</h1><script>parent.document.title = "broken out"</script>`;
    },
  };
}
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Return the address of the page where a table is dropped, with Python from PYODIDE_DIR or a stub in its place."""
    folder = tmp_path_factory.mktemp("live") / "live"
    shutil.copytree(ROOT / "docs" / "_static" / "live", folder)
    if there := os.environ.get("PYODIDE_DIR"):  # with the wheel for it, and wheel.json
        shutil.copytree(there, folder, dirs_exist_ok=True)
    else:
        (folder / "runtime.js").write_text(STUB)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *ignored: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_dropped_into_the_page_becomes_a_report(browser, live, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(live)
    assert page.is_hidden("#choose") and page.is_hidden("#report")
    rows = "\n".join(f"{i},{(i * 7) % 5},{i * 0.5 + (i * 3) % 4},{i}" for i in range(60))
    table = {"name": "t.csv", "mimeType": "text/csv", "buffer": f"x,z,y,bad\n{rows}\n".encode()}
    page.set_input_files("#file", table)
    page.wait_for_selector("#choose:not([hidden])", timeout=120_000)
    assert "t.csv: 4 columns" in page.inner_text("#said")
    page.select_option("#target", "y")
    page.click("#go")
    page.wait_for_selector("#save:not([hidden])", timeout=240_000)
    assert "Regression of y" in page.frame_locator("#report").locator("h1").inner_text()
    assert page.title() == "relvec in your browser"  # a report runs no script
    keep(page, f"live-{width}")
    ends = page.evaluate("""[...document.querySelectorAll("main > :not([hidden])")].map(
        e => [e.getBoundingClientRect().top, e.getBoundingClientRect().bottom])""")
    assert all(above[1] <= below[0] + 1 for above, below in itertools.pairwise(ends)), "parts overlap"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelector('#target').value = 'bad'")
    if "PYODIDE_DIR" not in os.environ:
        page.click("#go")
        page.wait_for_selector("#said.wrong")
        assert page.inner_text("#said") == "t.csv, column 'bad': every target is missing"
    drop = """() => { const data = new DataTransfer(); data.items.add(new File(["a,b\\n1,2"], "other.csv"));
        document.querySelector("#drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true})); }"""
    page.evaluate(drop)
    page.wait_for_function("document.querySelector('#said').textContent.startsWith('other.csv: 2 columns')")
    large = """() => { const data = new DataTransfer(); data.items.add(new File([new Uint8Array(21e6)], "large.csv"));
        document.querySelector("#drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true})); }"""
    page.evaluate(large)
    page.wait_for_selector("#said.wrong")
    assert "large.csv has 21 MB" in page.inner_text("#said") and page.is_hidden("#choose")
    assert [text for text in said if "sandbox" not in text.lower()] == []
    page.close()


def test_formulas_need_no_network(browser):
    page_path = FRONT.parent / "notation.html"
    if not (page_path.is_file() and (FRONT.parent / "_static" / "mathjax").is_dir()):
        pytest.skip("the docs are not built with formulas: make docs, with npm")
    page, said, asked = opened(browser, page_path, 1400)
    page.wait_for_selector("mjx-container", timeout=20_000)
    assert said == [] and all(url.startswith(("file:", "data:")) for url in asked)
    page.close()
