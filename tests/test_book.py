"""The built book: no warning, nothing from the network, and on each page what a reader needs.

The book is built once, from clean, into a temporary folder. The last part opens it in a browser.
"""

import functools
import http.server
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed")
import nbformat
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
PAGES = [TOC["root"]] + [page["file"] for part in TOC["parts"] for page in part["chapters"]]
CHAPTERS = [page for page in PAGES if page.startswith("notebooks/")]
BACKENDS = {"pytorch": "PyTorch", "jax": "JAX"}

# With pytest-xdist, one process runs this file, so that the book is built once.
pytestmark = [pytest.mark.book, pytest.mark.xdist_group("book")]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Build the book as `make book` does; return the exit status, what it said, and the folder."""
    out = tmp_path_factory.mktemp("book")
    program = Path(sys.executable).with_name("jupyter-book")
    result = subprocess.run(
        [program, "build", "-W", "-n", "--keep-going", "--path-output", out, ROOT],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    return result.returncode, result.stdout + result.stderr, out / "_build" / "html"


@pytest.fixture(scope="module")
def html(build):
    """The folder of the built pages; with --keep-going they are there in spite of warnings."""
    folder = build[2]
    if not (folder / f"{TOC['root']}.html").is_file():
        pytest.skip("the book was not built: see test_book_builds_without_a_warning")
    return folder


@pytest.fixture(scope="module")
def soup(html):
    """Return a function that parses a page of the book, given its name without suffix."""

    @functools.cache
    def parse(page):
        return BeautifulSoup((html / f"{page}.html").read_text("utf-8"), "html.parser")

    return parse


@pytest.fixture(scope="module")
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


def test_book_builds_without_a_warning(build):
    status, log, _ = build
    complaints = [line for line in log.splitlines() if re.search("WARNING|ERROR", line)]
    assert not complaints
    assert status == 0, log[-3000:]


# --- Files that must agree ------------------------------------------------------------------------


def test_repository_is_the_same_everywhere():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert CONFIG["repository"]["url"] == urls["Repository"]
    assert CONFIG["repository"]["branch"] == "main"
    assert not CONFIG["repository"]["path_to_book"]


def test_table_of_contents_lists_every_notebook_in_order():
    paths = sorted(ROOT.glob("notebooks/*.ipynb"))
    assert [f"notebooks/{path.stem}" for path in paths] == CHAPTERS
    assert len(set(PAGES)) == len(PAGES)


def test_every_chapter_is_numbered_and_no_other_page():
    for part in TOC["parts"]:
        chapters = {page["file"] in CHAPTERS for page in part["chapters"]}
        assert chapters == {part.get("numbered", False)}


@pytest.mark.parametrize("tab", list(BACKENDS))
def test_front_page_shows_the_package(soup, tab, monkeypatch, capsys):
    """Its pair of cells is the class in the package, and prints what the class prints."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_scripts"))
    package_text = importlib.import_module("notebook_sources").package_text
    package = {"pytorch": "torch", "jax": "jax"}[tab]
    label = soup(TOC["root"]).select_one(f'.backend-example label[data-sync-id="{tab}"]')
    listing, call, output = (
        pre.get_text().strip() for pre in label.find_next_sibling("div").select("pre")
    )
    assert listing == package_text(ROOT / "d2lgpt" / package, "scratch.LayerNorm")

    exec(call, vars(importlib.import_module(f"d2lgpt.{package}.scratch")).copy())
    number = r"-?\d+\.\d+"
    printed = capsys.readouterr().out.strip()
    assert re.sub(number, "?", output) == re.sub(number, "?", printed)
    shown, computed = ([float(n) for n in re.findall(number, text)] for text in (output, printed))
    assert shown == pytest.approx(computed, abs=1e-6)


# --- Chapters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_shows_its_pairs_as_tabs(soup, chapter):
    tab_sets = soup(chapter).select(".backend-tabs")
    expected = expected_tab_sets(chapter)
    assert expected
    assert len(tab_sets) == len(expected)
    for tab_set, run in zip(tab_sets, expected, strict=True):
        labels = {label["data-sync-id"]: label for label in tab_set.find_all("label")}
        assert {key: label.get_text(strip=True) for key, label in labels.items()} == BACKENDS
        for backend, label in labels.items():
            cells = label.find_next_sibling("div").select("div.cell")
            assert len(cells) == len(run[backend])
            for shown, cell in zip(cells, run[backend], strict=True):
                check_cell(shown, cell)


def check_cell(shown, cell):
    """A cell on the page has the source (without the magic) and the output of the notebook's."""
    tags = cell.metadata.get("tags", [])
    if "remove-input" not in tags:
        magic, _, source = cell.source.partition("\n")
        assert magic.startswith("%%")
        assert shown.select_one(".cell_input pre").get_text().strip() == source.strip()
    if "remove-output" not in tags:
        assert bool(shown.select(".cell_output")) == bool(cell.outputs)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_shows_every_cell_and_no_magic(soup, chapter):
    page = soup(chapter)
    code = [cell for _, cell in shown_cells(chapter) if cell.cell_type == "code"]
    assert len(page.select("div.cell")) == len(code)
    for backend in BACKENDS:
        assert f"%%{backend}" not in page.get_text()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_opens_in_colab(soup, chapter):
    links = [a["href"] for a in soup(chapter).select('a[href*="colab.research.google.com"]')]
    repository = CONFIG["repository"]["url"].removeprefix("https://github.com/")
    assert set(links) == {
        f"https://colab.research.google.com/github/{repository}/blob/main/{chapter}.ipynb"
    }
    assert (ROOT / f"{chapter}.ipynb").is_file()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_can_be_downloaded(html, soup, chapter):
    links = [a["href"] for a in soup(chapter).select("a.btn-download-source-button")]
    assert [link.endswith(".ipynb") for link in links] == [True]
    copy = (html / chapter).parent / links[0]
    assert json.loads(copy.read_text("utf-8")) == json.loads(
        (ROOT / f"{chapter}.ipynb").read_text("utf-8")
    )


def test_every_chapter_has_exercises_with_labels_and_numbers_of_their_own(soup):
    labels, numbers = [], []
    for chapter in CHAPTERS:
        exercises = soup(chapter).select("div.exercise")
        assert exercises, chapter
        labels += [exercise["id"] for exercise in exercises]
        titles = [exercise.select_one(".admonition-title").get_text() for exercise in exercises]
        numbers += [re.search(r"\d+(\.\d+)*", title)[0] for title in titles]
    assert len(set(labels)) == len(labels)
    assert len(set(numbers)) == len(numbers)


# --- Every page -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_raw_math(html, page):
    # Parsed anew, because what may hold such signs is cut out: code, and formulas for MathJax.
    article = BeautifulSoup((html / f"{page}.html").read_text("utf-8"), "html.parser").article
    for element in article.select("code, pre, script, style, .math"):
        element.decompose()
    text = article.get_text()
    assert re.findall(r".{0,30}(?:\$|\\\(|\\\[).{0,30}", text) == []


@pytest.mark.parametrize("page", PAGES)
def test_page_is_finished(soup, page):
    text = soup(page).article.get_text()
    assert re.findall(r".{0,30}(?:TODO|FIXME|TBD|PLACEHOLDER).{0,30}", text) == []


@pytest.mark.parametrize("page", PAGES)
def test_page_takes_nothing_from_another_host(soup, page):
    loaded = soup(page).select("script, img, iframe, source, video, audio, embed, object, use")
    loaded += [link for link in soup(page).select("link") if "canonical" not in link.get("rel", [])]
    addresses = [tag.get(name, "") for tag in loaded for name in ("src", "href", "data", "srcset")]
    assert [address for address in addresses if re.match(r"\s*(?:\w+:)?//", address)] == []


def test_styles_take_nothing_from_another_host(html):
    for path in (html / "_static").rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", path.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_every_picture_has_a_text(soup, page):
    # Sphinx writes the file's address where there is no text.
    pictures = soup(page).find_all("img")
    texts = [picture.get("alt", "").strip() for picture in pictures]
    bad = [
        picture["src"]
        for picture, text in zip(pictures, texts, strict=True)
        if not text or text == picture["src"] or re.search(r"\.(svg|png|jpe?g)$", text)
    ]
    assert bad == []


@pytest.mark.parametrize("page", PAGES)
def test_ids_are_unique(soup, page):
    ids = [element["id"] for element in soup(page).article.select("[id]")]
    assert [name for name in set(ids) if ids.count(name) > 1] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_into_the_book_leads_somewhere(html, soup, anchors, page):
    broken = []
    for link in {tag["href"] for tag in soup(page).select("a[href]")}:
        if re.match(r"\w+:|//", link):
            continue
        target, anchor = urldefrag(urljoin(f"{page}.html", link))
        found = (html / unquote(target)).is_file()
        if found and anchor and target.endswith(".html"):
            found = unquote(anchor) in anchors(target.removesuffix(".html"))
        if not found:
            broken.append(link)
    assert broken == []


def test_start_page_is_the_front_page(html):
    assert f"{TOC['root']}.html" in (html / "index.html").read_text("utf-8")


# --- In a browser ---------------------------------------------------------------------------------


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site(html):
    """Serve the book on this machine, and return its address."""
    handler = functools.partial(QuietHandler, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A headless Chromium that knows no host but this one."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("neither chromium and chromedriver nor their namesakes are on the PATH")
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
        """The backends whose tabs are in front on the page."""
        return set(
            self.run(
                "return [...document.querySelectorAll('.sd-tab-set > input:checked + label')]"
                ".map((label) => label.dataset.syncId)"
            )
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
    browser.open(TOC["root"])
    browser.run("localStorage.clear()")
    browser.cdp(
        "Emulation.setDeviceMetricsOverride",
        width=1280,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    yield browser
    browser.cdp("Emulation.setEmulatedMedia", media="")
    browser.cdp("Emulation.setScriptExecutionDisabled", value=False)


def test_choice_of_a_tab_holds_on_every_page(browser):
    assert browser.backends() == {"pytorch"}
    browser.choose("jax")
    assert browser.backends() == {"jax"}
    for chapter in CHAPTERS:
        browser.open(chapter)
        assert browser.backends() == {"jax"}, chapter


def test_address_can_name_the_backend(browser):
    browser.open(CHAPTERS[0], "?code=jax")
    assert browser.backends() == {"jax"}
    browser.open(CHAPTERS[-1])
    assert browser.backends() == {"jax"}
    browser.open(CHAPTERS[-1], "?code=pytorch")
    assert browser.backends() == {"pytorch"}


def test_arrow_keys_change_the_tab(browser):
    browser.open(CHAPTERS[0])
    tab = browser.chrome.find_element("css selector", ".backend-tabs > input:checked")
    tab.send_keys("\ue014")  # arrow to the right
    assert browser.backends() == {"jax"}


def test_tab_stays_where_it_was_clicked(browser):
    chapter = max(CHAPTERS, key=lambda chapter: len(expected_tab_sets(chapter)))
    browser.open(chapter)
    browser.settle()
    top = (
        "return document.querySelectorAll('label[data-sync-id=jax]')[arguments[0]]"
        ".getBoundingClientRect().top"
    )
    last = len(expected_tab_sets(chapter)) - 1
    browser.choose("pytorch", last)
    before = browser.run(top, last)
    browser.choose("jax", last)
    browser.settle(100)
    assert browser.run(top, last) == pytest.approx(before, abs=2)


def test_wide_blocks_can_be_reached_with_the_keyboard(browser):
    browser.cdp(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=844,
        deviceScaleFactor=1,
        mobile=True,
    )
    browser.open(CHAPTERS[1])
    browser.choose("jax")
    browser.settle(600)  # the theme answers a change of size after 300
    wide = browser.run(
        "return [...document.querySelectorAll('.backend-tabs pre')]"
        ".filter((pre) => pre.scrollWidth > pre.clientWidth).map((pre) => pre.tabIndex)"
    )
    assert wide
    assert set(wide) == {0}


@pytest.mark.parametrize("reader", ["on paper", "without scripts"])
def test_both_backends_can_be_read_without_tabs(browser, reader):
    if reader == "on paper":
        browser.open(CHAPTERS[0])
        browser.cdp("Emulation.setEmulatedMedia", media="print")
    else:
        browser.cdp("Emulation.setScriptExecutionDisabled", value=True)
        browser.open(CHAPTERS[0])
    panels = browser.chrome.find_elements("css selector", ".backend-tabs > .sd-tab-content")
    labels = browser.chrome.find_elements("css selector", ".backend-tabs > label")
    assert len(panels) == 2 * len(expected_tab_sets(CHAPTERS[0]))
    boxes = [element.rect for pair in zip(labels, panels, strict=True) for element in pair]
    assert all(box["height"] > 0 for box in boxes)
    tops = [box["y"] for box in boxes]
    assert tops == sorted(tops)  # label, its panel, the next label, ...


@pytest.mark.parametrize("page", PAGES)
def test_page_in_a_browser(browser, page):
    """Formulas are typeset, nothing fails, nothing leaves this machine, and a phone is enough."""
    chrome = browser.chrome
    browser.cdp(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=844,
        deviceScaleFactor=1,
        mobile=True,
    )
    for kind in ("browser", "performance"):
        chrome.get_log(kind)  # empties it
    for backend in BACKENDS:
        browser.open(page, f"?code={backend}")
        browser.settle()
        assert browser.run("return document.documentElement.scrollWidth") <= 390
    formulas = browser.run("return document.querySelectorAll('.math').length")
    rendered = browser.run("return document.querySelectorAll('.math mjx-container').length")
    assert rendered >= formulas
    assert browser.run("return document.querySelectorAll('mjx-merror').length") == 0

    log = chrome.get_log("browser")
    assert [entry["message"] for entry in log if entry["level"] != "INFO"] == []
    events = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    requests = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert requests
    assert {url for url in requests if not url.startswith((browser.site, "data:"))} == set()
