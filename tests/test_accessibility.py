"""Every page of the built book, judged by axe-core in a browser."""

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed")
from built_book import PAGES

pytestmark = pytest.mark.book

# The contrast of a word of code depends on its class alone. Of each class that can be seen, in each
# kind of block, one word keeps it; axe-core would take minutes for the tens of thousands.
ONE_OF_EACH_KIND = """
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


@pytest.mark.parametrize("page", PAGES)
def test_page_is_accessible(browser, page, axe):
    """axe-core finds nothing: in light on a desk, in dark on a phone, with tabs and without."""
    found = []
    for theme, choice, width in [("light", "pytorch", 1280), ("dark", "both", 390)]:
        browser.resize(width)
        browser.run(f"for (const key of ['mode', 'theme']) localStorage.setItem(key, '{theme}')")
        browser.open(page, f"?code={choice}")
        browser.settle(100)
        browser.run(ONE_OF_EACH_KIND)
        browser.run(axe)
        violations = browser.chrome.execute_async_script(
            "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']})"
            ".then((result) => done(result.violations))"
        )
        found += [
            (theme, width, one["id"], [node["target"] for node in one["nodes"]])
            for one in violations
        ]
    assert found == []
