"""The extension that serves MathJax from the book itself."""

import re
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the book's tools are not installed")
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

EXTENSIONS = Path(__file__).parents[1] / "book" / "_ext"


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return a function that builds a page with a formula and returns the output folder."""
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    (tmp_path / "index.rst").write_text("A page\n======\n\nThe mean is :math:`\\mu`.\n", "utf-8")

    def build(builder):
        out = tmp_path / builder
        with docutils_namespace():
            Sphinx(
                str(tmp_path),
                None,
                str(out),
                str(tmp_path / "trees"),
                builder,
                status=None,
                confoverrides={"extensions": ["offline_math"], "html_theme": "basic"},
            ).build()
        return out

    return build


def test_the_page_loads_mathjax_from_the_build(build):
    out = build("html")
    page = (out / "index.html").read_text("utf-8")
    scripts = re.findall(r'<script[^>]* src="([^"]+)"', page)
    assert "_static/mathjax/tex-chtml.js" in [script.partition("?")[0] for script in scripts]
    assert not [script for script in scripts if "//" in script]
    for script in scripts:
        assert (out / script.partition("?")[0]).is_file()


def test_fonts_and_tex_packages_are_there_and_nothing_else(build):
    mathjax = build("html") / "_static" / "mathjax"
    assert list((mathjax / "output/chtml/fonts").rglob("*.woff"))
    assert (mathjax / "input/tex/extensions/boldsymbol.js").is_file()
    size = sum(path.stat().st_size for path in mathjax.rglob("*") if path.is_file())
    assert size < 4e6


def test_other_formats_get_no_copy(build):
    assert not (build("text") / "_static").exists()
