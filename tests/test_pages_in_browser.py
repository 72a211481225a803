"""The built book in a browser: the switch, the keyboard, phones, paper, hints, search."""

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed")
from built_book import BACKENDS, CHAPTERS, NOTEBOOKS, PAGES, expected_tab_sets

pytestmark = pytest.mark.book


def test_choice_of_a_tab_holds_on_every_page(browser):
    browser.open(PAGES[0])
    assert browser.backends() == {"pytorch"}
    browser.choose("jax")
    assert browser.backends() == {"jax"}
    browser.chrome.get_log("browser")  # empties it
    for chapter in CHAPTERS:
        browser.open(chapter)
        assert browser.backends() == {"jax"}, chapter
    log = browser.chrome.get_log("browser")
    assert [entry["message"] for entry in log if entry["level"] != "INFO"] == []


def test_address_can_name_the_backend(browser):
    browser.open(CHAPTERS[0], "?code=jax")
    assert browser.backends() == {"jax"}
    browser.open(CHAPTERS[-1])
    assert browser.backends() == {"jax"}
    browser.open(CHAPTERS[-1], "?code=pytorch")
    assert browser.backends() == {"pytorch"}


# --- The switch -----------------------------------------------------------------------------------


def test_one_switch_for_the_whole_book(browser):
    """It sets every tab of every page, and shows what was chosen on another page or visit."""
    state = "return document.querySelector('.code-switch [aria-pressed=true]').value"
    browser.open(CHAPTERS[0])
    assert browser.run(state) == "pytorch"
    for choice, seen in [("jax", {"jax"}), ("both", set(BACKENDS)), ("pytorch", {"pytorch"})]:
        browser.switch(choice)
        assert browser.backends() == seen
        browser.open(NOTEBOOKS[-1])
        assert browser.backends() == seen
        assert browser.run(state) == choice
    browser.choose("jax")  # with a tab on the page
    assert browser.run(state) == "jax"


def test_switch_works_with_the_keyboard(browser):
    browser.open(CHAPTERS[0])
    for choice, seen in [("jax", {"jax"}), ("both", set(BACKENDS))]:
        button = browser.chrome.find_element("css selector", f".code-switch [value={choice}]")
        button.send_keys("\ue007")  # Enter
        assert browser.backends() == seen
    style = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.run(style) == "solid"
    # Side by side there is nothing to choose: the tabs take no turn of the Tab key.
    tabs = "document.querySelectorAll('.backend-tabs > input:not(:disabled)')"
    assert browser.run(f"return {tabs}.length") == 0


@pytest.mark.parametrize("choice", ["jax", "both"])
def test_address_carries_the_choice(browser, choice):
    seen = {"jax": {"jax"}, "both": set(BACKENDS)}[choice]
    browser.open(CHAPTERS[1], f"?code={choice}")
    assert browser.backends() == seen
    browser.open(CHAPTERS[2])
    assert browser.backends() == seen
    browser.open(CHAPTERS[2], "?code=fortran")  # means nothing, and breaks nothing
    assert browser.backends() == seen
    browser.open(CHAPTERS[2])
    assert browser.backends() == seen
    browser.open(CHAPTERS[1], f"?code={choice}")
    browser.switch("pytorch")
    browser.chrome.refresh()  # the address says now what the switch says
    assert browser.backends() == {"pytorch"}


@pytest.mark.parametrize("chapter", [CHAPTERS[1], CHAPTERS[8], NOTEBOOKS[-1]])
def test_side_by_side_on_a_wide_screen(browser, chapter):
    browser.open(chapter, "?code=both")
    browser.settle()
    sets = browser.tab_sets()
    assert len(sets) == len(expected_tab_sets(chapter))
    for (left, top, width, height), (right, other_top, other_width, other_height) in sets:
        assert top == pytest.approx(other_top, abs=1)
        assert left + width < right
        assert width == pytest.approx(other_width, abs=1)
        assert width > 400
        assert min(height, other_height) > 0
    overflow = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.run(overflow)  # a long line scrolls in its own column


def test_stacked_on_a_phone(browser):
    browser.resize(390, 844)
    browser.open(CHAPTERS[1], "?code=both")
    browser.settle()
    for (left, top, width, height), (other_left, other_top, _, _) in browser.tab_sets():
        assert left == other_left
        assert other_top > top + height
        assert width > 300


def test_choice_is_there_before_the_page_is_drawn(browser):
    """Nothing jumps: the end of parsing finds the stored choice applied, before any event."""
    height = "document.querySelector('.backend-tabs').offsetHeight"
    script = browser.cdp(
        "Page.addScriptToEvaluateOnNewDocument",
        source="addEventListener('readystatechange', () => {"
        f" if (document.readyState === 'interactive') window.early = {height}; }}, true)",
    )
    try:
        browser.open(CHAPTERS[4], "?code=jax")
        browser.open(CHAPTERS[4])
        assert browser.run("return window.early") == browser.run(f"return {height}")
        assert browser.backends() == {"jax"}
    finally:
        browser.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])


def test_reader_keeps_the_place(browser):
    """The paragraph at the top stays there when blocks of code above it change their height."""
    browser.open(CHAPTERS[4])
    browser.settle()
    browser.run(
        "document.querySelectorAll('.bd-article h2')[4].scrollIntoView({behavior: 'instant'})"
    )
    browser.run("window.scrollBy({top: -80, behavior: 'instant'})")
    top = "return document.querySelectorAll('.bd-article h2')[4].getBoundingClientRect().top"
    before = browser.run(top)
    for choice in ("both", "jax", "pytorch"):
        browser.switch(choice)
        browser.settle(100)
        assert browser.run(top) == pytest.approx(before, abs=3), choice


# --- Tabs, keyboard, paper ------------------------------------------------------------------------


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
    browser.resize(390, 844)
    browser.open(CHAPTERS[1])
    browser.choose("jax")
    browser.settle(600)  # the theme answers a change of size after 300
    wide = browser.run(
        "return [...document.querySelectorAll('.backend-tabs pre')]"
        ".filter((pre) => pre.scrollWidth > pre.clientWidth).map((pre) => pre.tabIndex)"
    )
    assert wide
    assert set(wide) == {0}


@pytest.mark.parametrize("reader", ["pytorch", "jax", "both", "without scripts"])
def test_both_backends_can_be_read_without_tabs(browser, reader):
    """On paper, whatever was chosen on the screen, and where no script runs."""
    if reader != "without scripts":
        browser.open(CHAPTERS[0], f"?code={reader}")
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


def test_hints_open_one_at_a_time(browser):
    browser.open(CHAPTERS[0])
    summaries = "[...document.querySelectorAll('#exercise-1-1 summary')]"
    visible = f"return {summaries}.map((summary) => summary.checkVisibility())"
    assert browser.run(visible) == [True, False]
    first, second = browser.chrome.find_elements("css selector", "#exercise-1-1 summary")
    first.send_keys("\ue007")  # Enter
    assert browser.run(visible) == [True, True]
    text = "return document.querySelectorAll('#exercise-1-1 details > p')[1].checkVisibility()"
    assert not browser.run(text)
    second.send_keys("\ue007")
    assert browser.run(text)


def test_search_finds_a_word_of_the_book(browser):
    browser.open("search", "?q=shortcut")
    found = (
        "const done = arguments[0]; const look = () => {"
        " const found = document.querySelectorAll('#search-results li').length;"
        " if (found) done(found); else setTimeout(look, 100); }; look()"
    )
    assert browser.chrome.execute_async_script(found) > 3
