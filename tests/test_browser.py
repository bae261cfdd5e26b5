"""The report and the front page of the docs in a real browser, wide and narrow.

``make browser`` installs what is needed (playwright; Chromium from the system or from ``playwright install chromium``)
and runs these tests. Screenshots are left in the folder named by RELVEC_SCREENSHOTS, where it is set.
"""

import os
import shutil
from pathlib import Path

import pytest

import messy
from relvec import cli

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[1]
FRONT = ROOT / "docs" / "_build" / "html" / "index.html"
WIDTHS = (1400, 400)


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


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    hostile = messy.houses(60, seed=3).replace(b"Ulm", b"<img src=x onerror=document.title=1>")
    for name, data, target, task in (("houses", messy.houses(), "Price", "auto"), ("hostile", hostile, "Price", "auto"),
                                     ("patients", messy.patients(), "recovered", "auto"),
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
@pytest.mark.parametrize("name", ["houses", "patients", "calls", "hostile"])
def test_report(browser, reports, name, width):
    page, said, asked = opened(browser, reports / f"{name}.html", width)
    keep(page, f"{name}-{width}")
    assert said == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert page.title() == {"patients": "Classification of recovered", "calls": "Count of calls"}.get(
        name, "Regression of Price"
    )
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


@pytest.mark.parametrize("width", WIDTHS)
def test_front_page_of_the_docs(browser, width):
    if not FRONT.is_file():
        pytest.skip("the docs are not built: make docs")
    page, said, _ = opened(browser, FRONT, width)
    keep(page, f"docs-{width}")
    assert said == []
    assert "relvec" in page.inner_text("h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pictures = page.evaluate("[...document.images].filter(i => i.clientWidth).map(i => i.naturalWidth)")
    assert all(pictures)
    page.close()
