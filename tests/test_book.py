"""The built book: no warning, nothing from the network, and on each page what a reader needs."""

import importlib
import itertools
import json
import re
import tomllib
from urllib.parse import unquote, urldefrag, urljoin

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed")
from built_book import (
    BACKENDS,
    CHAPTERS,
    CONFIG,
    NOTEBOOKS,
    PAGES,
    ROOT,
    SOLUTIONS,
    TOC,
    expected_tab_sets,
    shown_cells,
)

from d2lgpt.exercises.desk import exercises

pytestmark = pytest.mark.book
STRAIGHT = str.maketrans("‘’“”", "''\"\"")  # Sphinx bends quotation marks


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
    assert [f"notebooks/solutions/{path.stem}" for path in paths] == SOLUTIONS
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


def test_front_page_offers_three_ways(soup):
    """Read, run, answer: the first thing after the first paragraph, and each leads there."""
    cards = soup(TOC["root"]).select(".three-ways .sd-card")
    ways = {
        card.select_one(".sd-card-title").get_text(strip=True): card.a["href"] for card in cards
    }
    assert ways == {
        "Read": f"../{CHAPTERS[0]}.html",
        "Run": colab_link(CHAPTERS[0]),
        "Answer": "exercises.html",
    }


# --- Chapters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", NOTEBOOKS)
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


@pytest.mark.parametrize("chapter", NOTEBOOKS)
def test_chapter_shows_every_cell_and_no_magic(soup, chapter):
    page = soup(chapter)
    code = [cell for _, cell in shown_cells(chapter) if cell.cell_type == "code"]
    assert len(page.select("div.cell")) == len(code)
    for backend in BACKENDS:
        assert f"%%{backend}" not in page.get_text()


def colab_link(chapter):
    repository = CONFIG["repository"]["url"].removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{repository}/blob/main/{chapter}.ipynb"


@pytest.mark.parametrize("chapter", NOTEBOOKS)
def test_chapter_opens_in_colab(soup, chapter):
    links = [a["href"] for a in soup(chapter).select('a[href*="colab.research.google.com"]')]
    assert set(links) == {colab_link(chapter)}
    assert (ROOT / f"{chapter}.ipynb").is_file()


@pytest.mark.parametrize("chapter", NOTEBOOKS)
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
    # The number on the page is the one that `check` takes.
    assert [label.removeprefix("exercise-").replace("-", ".") for label in labels] == numbers


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_hints_are_closed_and_open_one_at_a_time(soup, chapter):
    for exercise in soup(chapter).select("div.exercise"):
        number = exercise["id"].removeprefix("exercise-").replace("-", ".")
        parts = [one for id, one in exercises().items() if id.rstrip("abcd") == number]
        outer = exercise.select("section > details.exercise-hint")
        assert len(outer) == len(parts)
        for box, part in zip(outer, parts, strict=True):
            chain = [box, *box.select("details")]
            assert not any(one.has_attr("open") for one in chain)
            texts = [one.find("p", recursive=False).get_text() for one in chain]
            texts = [text.translate(STRAIGHT) for text in texts]
            assert texts == [hint.replace("`", "") for hint in part.hints]
            assert all(inner.parent is one for one, inner in itertools.pairwise(chain))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_solutions_are_linked_and_stand_on_another_page(soup, chapter):
    name = chapter.removeprefix("notebooks/")
    for exercise in soup(chapter).select("div.exercise"):
        label = exercise["id"].replace("exercise", "solution")
        link = exercise.select_one(".exercise-solution a")["href"]
        assert link == f"solutions/{name}.html#{label}"
        place = soup(f"notebooks/solutions/{name}").find(id=label)
        back = place.find_parent("section").select_one(f'a[href$="{name}.html#{exercise["id"]}"]')
        assert back is not None
    assert not soup(chapter).select('[id^="solution-"]')


def test_all_exercises_are_listed(soup):
    rows = soup("book/exercises").select("table.exercise-list tbody tr")
    links = [row.select_one("a")["href"].partition("#")[2] for row in rows]
    on_pages = [e["id"] for chapter in CHAPTERS for e in soup(chapter).select("div.exercise")]
    assert links == on_pages


# --- Every page -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_raw_math(soup, page):
    article = soup(page).article
    # Code may hold such signs, and so may a formula, for MathJax.
    left_out = {id(element) for element in article.select("code, pre, script, style, .math")}
    strings = [s for s in article.strings if not any(id(one) in left_out for one in s.parents)]
    assert re.findall(r".{0,30}(?:\$|\\\(|\\\[).{0,30}", "".join(strings)) == []


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
