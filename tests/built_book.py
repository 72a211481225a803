"""The book as it is built, and a browser to open it in: what tests of its pages share.

The book is built once for a run of pytest, from clean, in a temporary folder.
"""

import functools
import gzip
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from filelock import FileLock

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
LISTED = [page for part in TOC["parts"] for page in part["chapters"]]
SOLUTIONS = [page["file"] for one in LISTED for page in one.get("sections", [])]
PAGES = [TOC["root"], *(page["file"] for page in LISTED), *SOLUTIONS]
CHAPTERS = [page["file"] for page in LISTED if page["file"].startswith("notebooks/")]
NOTEBOOKS = CHAPTERS + SOLUTIONS
BACKENDS = {"pytorch": "PyTorch", "jax": "JAX"}


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Build the book as `make book` does; return the exit status, what it said, and the folder.

    The processes of pytest that need it share one build.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    out, report = folder / "book", folder / "book.json"
    with FileLock(folder / "book.lock"):
        if not report.is_file():
            program = Path(sys.executable).with_name("jupyter-book")
            result = subprocess.run(
                [program, "build", "-W", "-n", "--keep-going", "--path-output", out, ROOT],
                capture_output=True,
                text=True,
                encoding="utf-8",
            )
            said = result.stdout + result.stderr
            report.write_text(json.dumps([result.returncode, said]), "utf-8")
    return *json.loads(report.read_text("utf-8")), out / "_build" / "html"


@pytest.fixture(scope="session")
def html(build):
    """The folder of the built pages; with --keep-going they are there in spite of warnings."""
    folder = build[2]
    if not (folder / f"{TOC['root']}.html").is_file():
        pytest.skip("the book was not built: see test_book_builds_without_a_warning")
    return folder


@pytest.fixture(scope="session")
def soup(html):
    """Return a function that parses a page of the book, given its name without suffix."""

    @functools.cache
    def parse(page):
        return BeautifulSoup((html / f"{page}.html").read_text("utf-8"), "html.parser")

    return parse


@pytest.fixture(scope="session")
def anchors(soup):
    """Return a function that gives the ids of a page, at which links can point."""
    return functools.cache(lambda page: {tag["id"] for tag in soup(page).select("[id]")})


@functools.cache
def notebook(chapter):
    return nbformat.read(ROOT / f"{chapter}.ipynb", as_version=4)


def shown_cells(chapter):
    """The cells of a notebook that the page shows, each with its backend or None."""
    for cell in notebook(chapter).cells:
        tags = cell.metadata.get("tags", [])
        if "remove-cell" not in tags:
            yield next((backend for backend in BACKENDS if backend in tags), None), cell


def expected_tab_sets(chapter):
    """The runs of tagged cells, each as {backend: [cell, ...]}."""
    runs, previous = [], None
    for backend, cell in shown_cells(chapter):
        if backend:
            if previous is None or (backend != previous and backend in runs[-1]):
                runs.append({})
            runs[-1].setdefault(backend, []).append(cell)
        previous = backend
    return runs


# --- In a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, which looks for what keeps people from using a page.

    It comes inside a package whose own code, and what that needs, is not used.
    """
    package = find_spec("axe_playwright_python")
    if package is None:
        not_here("axe-core is not installed")
    return Path(package.origin).with_name("axe.min.js").read_text("utf-8")


def not_here(what):
    """Skip what needs a browser, unless the browser is required (D2LGPT_BROWSER=required)."""
    (pytest.fail if os.environ.get("D2LGPT_BROWSER") == "required" else pytest.skip)(what)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Sends text compressed, as the servers of published pages do."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if path.suffix not in (".html", ".js", ".css", ".svg", ".json") or not path.is_file():
            return super().do_GET()
        body = compressed(path)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, *args):
        pass


@functools.cache
def compressed(path):
    return gzip.compress(path.read_bytes(), 6)


@pytest.fixture(scope="session")
def site(html):
    """Serve the book on this machine, and return its address."""
    handler = functools.partial(QuietHandler, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A headless Chromium that knows no host but this one."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        not_here("neither chromium and chromedriver nor their namesakes are on the PATH")
    options = selenium.ChromeOptions()
    options.binary_location = browser
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "hide-scrollbars",
        "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with selenium.Chrome(options, selenium.ChromeService(driver)) as chrome:
        chrome.set_script_timeout(30)
        yield chrome


class Browser:
    """What the tests ask of the browser."""

    def __init__(self, chrome, site):
        self.chrome, self.site = chrome, site

    def forget(self):
        """Forget what was chosen, as at a first visit."""
        self.chrome.get(f"{self.site}_static/tabs.js")  # any file of this site will do
        self.run("localStorage.clear()")

    def open(self, page, query=""):
        self.chrome.get(f"{self.site}{page}.html{query}")

    def run(self, script, *arguments):
        return self.chrome.execute_script(script, *arguments)

    def cdp(self, command, **parameters):
        return self.chrome.execute_cdp_cmd(command, parameters)

    def settle(self, milliseconds=0):
        """Wait until formulas are typeset, and then for a while."""
        self.chrome.execute_async_script(
            "const [time, done] = arguments, math = window.MathJax?.startup?.promise;"
            "Promise.resolve(math).then(() => setTimeout(done, time));",
            milliseconds,
        )

    def backends(self):
        """The backends whose code can be seen on the page."""
        return set(
            self.run(
                "return [...document.querySelectorAll('label[data-sync-group=code]')]"
                ".filter((label) => label.nextElementSibling.offsetHeight > 0)"
                ".map((label) => label.dataset.syncId)"
            )
        )

    def resize(self, width, height=900):
        """A window of this size; a narrow one is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)

    def switch(self, choice):
        """Click in the header's switch: pytorch, jax or both."""
        self.run(f"document.querySelector('.code-switch [value={choice}]').click()")

    def tab_sets(self):
        """Of each tab-set, the boxes of its two panels: left, top, width, height."""
        return self.run(
            "return [...document.querySelectorAll('.backend-tabs')].map((set) =>"
            " [...set.querySelectorAll(':scope > .sd-tab-content')].map((panel) => {"
            "  const box = panel.getBoundingClientRect();"
            "  return [box.left, box.top, box.width, box.height]; }))"
        )

    def choose(self, backend, number=0):
        """Click the tab of a backend, in the NUMBERth tab-set of the page."""
        labels = f"document.querySelectorAll('label[data-sync-id=\"{backend}\"]')"
        self.run(
            f"const label = {labels}[{number}];"
            "label.scrollIntoView({block: 'center', behavior: 'instant'}); label.click()"
        )


@pytest.fixture
def browser(chromium, site):
    """A browser that remembers nothing, as wide as a desk's."""
    browser = Browser(chromium, site)
    browser.forget()
    browser.resize(1280)
    yield browser
    browser.cdp("Emulation.setEmulatedMedia", media="")
    browser.cdp("Emulation.setScriptExecutionDisabled", value=False)
