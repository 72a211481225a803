"""Every page of the built book, judged by axe-core in a browser."""

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed")
from built_book import PAGES

pytestmark = pytest.mark.book

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
# A page is opened once, with both backends; then its looks change as its buttons change them. The
# rules that no colour can break are asked once for each width.
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
# One text of each such kind is enough. Every other rule looks at everything.
JUDGE = """
const [colours, what, done] = arguments;
const looks = (element) => {
  const { color, fontSize, fontWeight, textDecoration, textShadow } = getComputedStyle(element);
  const all = [color, fontSize, fontWeight, textDecoration, textShadow, !!element.closest("a")];
  if (element.parentElement) all.push(getComputedStyle(element.parentElement).color);
  for (let behind = element; behind; behind = behind.parentElement) {
    const { backgroundColor, backgroundImage, filter, opacity } = getComputedStyle(behind);
    all.push(backgroundColor, backgroundImage, filter, opacity);
  }
  return all.join();
};
const kinds = new Map();
for (const element of document.body.querySelectorAll("*")) {
  const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!text || !element.checkVisibility()) continue;
  const kind = looks(element);
  if (!kinds.has(kind)) kinds.set(kind, element.closest("a") ?? element);
}
const resultTypes = ["violations"];
const off = Object.fromEntries(colours.map((rule) => [rule, { enabled: false }]));
(async () => {
  const texts = await axe.run({ include: [...kinds.values()] }, { resultTypes, runOnly: colours });
  const all = what === "all" ? await axe.run(document, { resultTypes, rules: off }) : texts;
  done([...new Set([...all.violations, ...texts.violations])]);
})();
"""


@pytest.fixture
def opened(browser, axe):
    """Return a function that opens a page with both backends, made ready for axe-core."""

    def opened(page):
        browser.resize(1280)
        browser.open(page, "?code=both")
        browser.settle()
        browser.run(FEWER_WORDS)
        browser.run(axe)

    return opened


def judge(browser, what):
    return browser.chrome.execute_async_script(JUDGE, COLOURS, what)


@pytest.mark.parametrize("page", PAGES)
def test_page_is_accessible(browser, opened, page):
    """axe-core finds nothing: in light and in dark, on a desk and on a phone."""
    opened(page)
    found = []
    for theme, choice, width, what in LOOKS:
        browser.resize(width)
        browser.run(WEAR, theme, choice)
        # After another width the theme waits before it looks anew at what scrolls.
        browser.settle(500 if what == "all" else 100)
        for one in judge(browser, what):
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
def test_a_fault_is_found(browser, opened, fault, rule):
    opened("notebooks/01_dummy_gpt")  # where the test above finds nothing
    browser.run(f"document.{fault}")
    browser.settle(100)
    assert [one["id"] for one in judge(browser, "all")] == [rule]
