"""Every page of the built book in a browser: that it works, what it loads, what axe-core says."""

import json

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed")
from built_book import BACKENDS, PAGES, Browser

pytestmark = pytest.mark.book


@pytest.fixture(scope="module", params=PAGES)
def visit(request, chromium, site):
    """A browser with a page that was opened on a phone at a first visit, once for all tests."""
    browser = Browser(chromium, site)
    browser.forget()
    browser.resize(390, 844)
    browser.cdp("Network.clearBrowserCache")
    for kind in ("browser", "performance"):
        chromium.get_log(kind)  # empties it
    browser.open(request.param, "?code=pytorch")
    browser.settle()
    return browser


def test_page_works(visit):
    """Formulas are typeset, nothing fails, nothing leaves this machine, and a phone is enough.

    Nor is a page heavy: at most 1.5 MB come over the wire, scripts, styles and fonts included.
    """
    chrome = visit.chrome
    switch = visit.run("return document.querySelector('.code-switch') !== null")
    for backend in BACKENDS if switch else [None]:  # there is none where there is no pair of cells
        if backend:
            visit.switch(backend)
        assert visit.run("return document.documentElement.scrollWidth") <= 390
    formulas = visit.run("return document.querySelectorAll('.math').length")
    rendered = visit.run("return document.querySelectorAll('.math mjx-container').length")
    assert rendered >= formulas
    assert visit.run("return document.querySelectorAll('mjx-merror').length") == 0

    log = chrome.get_log("browser")
    assert [entry["message"] for entry in log if entry["level"] != "INFO"] == []
    events = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    happened = {
        name: [event["params"] for event in events if event["method"] == f"Network.{name}"]
        for name in ("requestWillBeSent", "loadingFinished")
    }
    requests = {one["request"]["url"] for one in happened["requestWillBeSent"]}
    assert requests
    assert {url for url in requests if not url.startswith((visit.site, "data:"))} == set()
    sizes = [one["encodedDataLength"] for one in happened["loadingFinished"]]
    assert sizes
    assert sum(sizes) < 1.5e6


# --- Accessibility --------------------------------------------------------------------------------

# axe-core's time grows with the number of elements, and a page has thousands of coloured words. A
# word in code is nothing but text in a colour: of each class, in each kind of block, one stays.
FEWER_WORDS = """
const seen = new Set();
const rest = [...document.querySelectorAll("pre span[class]")].filter((word) => {
  if (word.childElementCount) return false;
  const block = word.closest(".cell_input, .cell_output, [class*=highlight-]")?.className;
  const kind = `${word.className} in ${block}`;
  const first = word.checkVisibility() && !seen.has(kind);
  if (first) seen.add(kind);
  return !first;
});
for (const word of rest) word.replaceWith(word.textContent);
"""
# The looks of a page change as its buttons change them. The rules that no colour can break are
# asked once for each width.
COLOURS = ["color-contrast", "link-in-text-block"]
LOOKS = [
    ("dark", "both", 1280, "colours"),
    ("dark", "both", 390, "all"),
    ("light", "pytorch", 390, "colours"),
    ("light", "pytorch", 1280, "all"),
]
WEAR = """
const [theme, choice] = arguments;
document.head.insertAdjacentHTML("beforeend", "<style>* { transition: none !important }</style>");
document.documentElement.dataset.theme = document.documentElement.dataset.mode = theme;
document.querySelector(`.code-switch [value="${choice}"]`)?.click();
"""
# What is asked of colours depends on how a text is drawn, in what text, and on what is behind it.
# One text of each such kind is enough, of all pages that were opened before. Every other rule looks
# at everything. (axe-core takes its time for each call, however little it is asked to look at.)
JUDGE = """
const [colours, what, known, done] = arguments;
const nothing = "rgba(0, 0, 0, 0),none,none,1";
const grounds = new Map();
const ground = (element) => {
  if (!element) return "";
  if (!grounds.has(element)) {
    const { backgroundColor, backgroundImage, filter, opacity } = getComputedStyle(element);
    const own = [backgroundColor, backgroundImage, filter, opacity].join();
    grounds.set(element, (own === nothing ? "" : own + ";") + ground(element.parentElement));
  }
  return grounds.get(element);
};
const looks = (element) => {
  const { color, fontSize, fontWeight, textDecoration, textShadow } = getComputedStyle(element);
  const all = [color, fontSize, fontWeight, textDecoration, textShadow, !!element.closest("a")];
  if (element.parentElement) all.push(getComputedStyle(element.parentElement).color);
  return [...all, ground(element)].join();
};
const kinds = new Map();
for (const element of document.body.querySelectorAll("*")) {
  const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!text || !element.checkVisibility()) continue;
  const kind = looks(element);
  if (!kinds.has(kind)) kinds.set(kind, element.closest("a") ?? element);
}
for (const kind of known) kinds.delete(kind);
const resultTypes = ["violations"];
const off = Object.fromEntries(colours.map((rule) => [rule, { enabled: false }]));
(async () => {
  const found = [];
  if (kinds.size) {
    const include = [...kinds.values()];
    found.push(...(await axe.run({ include }, { resultTypes, runOnly: colours })).violations);
  }
  if (what === "all") {
    found.push(...(await axe.run(document, { resultTypes, rules: off })).violations);
  }
  done([found, [...kinds.keys()]]);
})();
"""


@pytest.fixture(scope="module")
def known():
    """The kinds of text in which axe-core has found nothing wrong, on whatever page."""
    return set()


def judge(browser, what, known):
    """What axe-core finds; the kinds of text without a fault are known from then on."""
    script = browser.chrome.execute_async_script
    found, kinds = script(JUDGE, COLOURS, what, sorted(known))
    if not found:
        known.update(kinds)
    return found


def test_page_is_accessible(visit, axe, known):
    """axe-core finds nothing: in light and in dark, on a desk and on a phone."""
    visit.run(WEAR, "dark", "both")  # all words can be seen, of which one of each kind stays
    visit.run(FEWER_WORDS)
    visit.run(axe)
    found = []
    for theme, choice, width, what in LOOKS:
        visit.resize(width)
        visit.run(WEAR, theme, choice)
        # After another width the theme waits before it looks anew at what scrolls.
        visit.settle(500 if what == "all" else 100)
        for one in judge(visit, what, known):
            found.append((theme, width, one["id"], [node["target"] for node in one["nodes"]]))
    assert found == []


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("querySelector('section > p:not([class])').style.color = '#999'", "color-contrast"),
        ("querySelector('.bd-article img').removeAttribute('alt')", "image-alt"),
        ("querySelector('section > h2').outerHTML = '<h4>Deep</h4>'", "heading-order"),
    ],
)
def test_a_fault_is_found(browser, axe, fault, rule):
    browser.open("notebooks/01_dummy_gpt")  # where the test above finds nothing
    browser.settle()
    browser.run(axe)
    browser.run(f"document.{fault}")
    browser.settle(100)
    assert [one["id"] for one in judge(browser, "all", set())] == [rule]


@pytest.mark.parametrize(
    ("style", "theme", "width", "rule"),
    [
        ("p { color: #999 }", "light", 1280, "color-contrast"),
        ("[data-theme=dark] p { color: #555 }", "dark", 390, "color-contrast"),
        ("[data-theme=dark] main { background: #ddd }", "dark", 1280, "color-contrast"),
        ("@media (max-width: 500px) { main { background: #555 } }", "light", 390, "color-contrast"),
        ("@media (min-width: 500px) { p { opacity: 0.5 } }", "light", 1280, "color-contrast"),
        ("p a { color: #444; text-decoration: none }", "light", 390, "link-in-text-block"),
    ],
)
def test_a_colour_is_judged_where_it_is_seen(browser, axe, known, style, theme, width, rule):
    """Also where all texts of the page are known, and only one look of it is wrong."""
    browser.resize(width)
    browser.open("notebooks/01_dummy_gpt")
    browser.settle(500)
    browser.run(axe)
    browser.run(WEAR, theme, "pytorch")
    assert judge(browser, "colours", known) == []
    assert known
    style = style.replace(";", " !important;").replace(" }", " !important }", 1)
    browser.run(f"document.head.insertAdjacentHTML('beforeend', '<style>{style}</style>')")
    browser.settle(100)
    assert {one["id"] for one in judge(browser, "colours", known)} == {rule}
