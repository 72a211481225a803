"""The two extensions behind the reference pages, each rule on tiny pages.

`serves`: the closed box of a chapter, the page that defines what it lists, and the links between.
`dictionary`: the page made from a file of paired snippets.
"""

import io
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("myst_nb", reason="the book's tools are not installed")
from bs4 import BeautifulSoup
from nbformat.v4 import new_markdown_cell, new_notebook
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

EXTENSIONS = Path(__file__).parents[1] / "book" / "_ext"


class Site:
    """Pages built by one or more runs over the same folder, and the warnings of the last run."""

    def __init__(self, folder, extension):
        self.folder, self.extension, self.warnings = folder, extension, ""
        (folder / "source").mkdir()

    def build(self, files):
        """Write the given files (a list of Markdown texts is a notebook) and build the site."""
        for name, content in files.items():
            path = self.folder / "source" / name
            if isinstance(content, list):
                cells = [new_markdown_cell(text) for text in content]
                nbformat.write(new_notebook(cells=cells), path)
            else:
                path.write_text(content, "utf-8")
        warnings = io.StringIO()
        config = {
            "extensions": ["myst_nb", self.extension],
            "nb_execution_mode": "off",
            "html_theme": "basic",
            "suppress_warnings": ["config.cache"],
        }
        source, out, trees = (str(self.folder / name) for name in ("source", "out", "trees"))
        with docutils_namespace():
            app = Sphinx(source, None, out, trees, "html", config, status=None, warning=warnings)
            app.build()
        self.warnings = warnings.getvalue()
        return self

    def __getitem__(self, name):
        return BeautifulSoup(
            (self.folder / "out" / f"{name}.html").read_text("utf-8"), "html.parser"
        )


@pytest.fixture
def site(tmp_path, monkeypatch, request):
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    return Site(tmp_path, request.param)


# ------------------------------------------------------------------------------------------ serves

with_serves = pytest.mark.parametrize("site", ["serves"], indirect=True)

INDEX = "# Book\n\n```{toctree}\n:glob:\n*\n```\n"

DEFINITIONS = """# Outcomes and concepts

```{outcome} shortcut-connections
You can add a *shortcut*.
```

```{concept} shortcut-connections
Input plus output.
```

```{concept} weight-tying
One matrix, two uses.
```
"""

SHORTCUT_BOX = """```{serves}
:outcomes: shortcut-connections
:concepts: shortcut-connections, weight-tying
```"""

TYING_BOX = "```{serves}\n:concepts: weight-tying\n```"


def pages(**chapters):
    chapters = {f"{name}.ipynb": content for name, content in chapters.items()}
    return {"index.md": INDEX, "list.md": DEFINITIONS, **chapters}


def links(element):
    return [(a.get_text(), a["href"]) for a in element.select("a.internal")]


@with_serves
def test_the_box_is_closed_and_links_to_the_definitions(site):
    site.build(pages(c1=["# One", SHORTCUT_BOX], c2=["# Two", TYING_BOX]))
    box = site["c1"].select_one("details.serves")
    assert not box.has_attr("open")
    assert box.select_one("summary").get_text().strip() == "Outcomes and concepts"
    assert links(box) == [
        ("shortcut-connections", "list.html#outcome-shortcut-connections"),
        ("shortcut-connections", "list.html#concept-shortcut-connections"),
        ("weight-tying", "list.html#concept-weight-tying"),
    ]
    assert [p.get_text() for p in site["c2"].select("details.serves strong")] == ["Concepts"]
    assert site.warnings == ""


@with_serves
def test_each_definition_links_back_to_every_chapter_that_serves_it(site):
    site.build(pages(c1=["# One", SHORTCUT_BOX], c2=["# Two", TYING_BOX]))
    page = site["list"]
    back = {dt["id"]: links(dt.find_next_sibling("dd")) for dt in page.select("dl.serves dt")}
    assert back == {
        "outcome-shortcut-connections": [("One", "c1.html")],
        "concept-shortcut-connections": [("One", "c1.html")],
        "concept-weight-tying": [("One", "c1.html"), ("Two", "c2.html")],
    }
    assert page.select_one("#outcome-shortcut-connections a.headerlink")
    assert page.select_one("dl.serves dd em").get_text() == "shortcut"


@with_serves
def test_an_unknown_identifier_is_a_warning(site):
    site.build(pages(c1=["# One", SHORTCUT_BOX.replace("weight-tying", "weight-typing")]))
    assert "unknown concept: weight-typing" in site.warnings
    assert "c1.ipynb" in site.warnings


@with_serves
def test_outcomes_and_concepts_do_not_stand_in_for_each_other(site):
    site.build(pages(c1=["# One", "```{serves}\n:outcomes: weight-tying\n```"]))
    assert "unknown outcome: weight-tying" in site.warnings


@with_serves
@pytest.mark.parametrize(
    ("box", "message"),
    [
        ("```{serves}\n```", "names no outcome and no concept"),
        ("```{serves}\n:concepts:\n```", "names no outcome and no concept"),
        ("```{serves}\n:concepts: weight-tying weight-tying\n```", "concept named twice: weight"),
        ("```{serves}\n:topics: weight-tying\n```", "topics"),
    ],
)
def test_a_box_that_says_nothing_or_the_same_twice_is_a_warning(site, box, message):
    site.build(pages(c1=["# One", box]))
    assert message in site.warnings


@with_serves
def test_an_identifier_is_defined_once(site):
    twice = "# Again\n\n```{concept} weight-tying\nOnce more.\n```\n"
    site.build({**pages(), "more.md": twice})
    assert "concept defined twice: weight-tying" in site.warnings


@with_serves
def test_roles_link_from_running_text(site):
    text = (
        "Serves {outcome}`shortcut-connections`, {concept}`sharing <weight-tying>`; {concept}`x`."
    )
    site.build(pages(c1=["# One", text]))
    assert links(site["c1"].select_one("p")) == [
        ("shortcut-connections", "list.html#outcome-shortcut-connections"),
        ("sharing", "list.html#concept-weight-tying"),
    ]
    assert site.warnings.count("WARNING") == 1
    assert "unknown concept: x" in site.warnings


@with_serves
def test_the_list_follows_when_only_a_chapter_changes(site):
    site.build(pages(c1=["# One", TYING_BOX], c2=["# Two"]))
    site.build({"c2.ipynb": ["# Two, renamed", TYING_BOX]})
    definition = site["list"].select_one("#concept-weight-tying").find_next_sibling("dd")
    assert links(definition) == [("One", "c1.html"), ("Two, renamed", "c2.html")]
    site.build({"c1.ipynb": ["# One"]})
    definition = site["list"].select_one("#concept-weight-tying").find_next_sibling("dd")
    assert links(definition) == [("Two, renamed", "c2.html")]


# -------------------------------------------------------------------------------------- dictionary

with_dictionary = pytest.mark.parametrize("site", ["dictionary"], indirect=True)

DATA = """
[prelude]
pytorch = "import torch"
jax = "import jax"

[[group]]
title = "Some layers"

[[group.row]]
id = "linear"
topic = "Linear layer"
difference = "The *matrix* is `weight` or `kernel`."
pytorch = '''
layer = nn.Linear(8, 3)
'''
jax = '''
layer = nnx.Linear(8, 3)
'''
check = "assert True"

[[group.row]]
id = "gelu"
topic = "GELU"
difference = "See {ref}`dictionary-linear`."
pytorch = "F.gelu(x)"
jax = "jax.nn.gelu(x)"
check = "assert True"
"""

DICTIONARY_PAGE = "# Dictionary\n\nProse.\n\n```{dictionary} rows.toml\n```\n"


def dictionary_pages(data=DATA, page=DICTIONARY_PAGE, **more):
    return {"index.md": INDEX, "dictionary.md": page, "rows.toml": data, **more}


@with_dictionary
def test_each_row_shows_both_snippets_and_the_sentence(site):
    site.build(dictionary_pages())
    row = site["dictionary"].select_one("section#dictionary-linear")
    assert row.select_one("h3").find(string=True) == "Linear layer"
    sides = row.select(".dictionary-pair > div")
    assert [side.select_one(".dictionary-side").get_text() for side in sides] == [
        "PyTorch",
        "Flax NNX",
    ]
    assert [side.select_one("pre").get_text() for side in sides] == [
        "layer = nn.Linear(8, 3)\n",
        "layer = nnx.Linear(8, 3)\n",
    ]
    assert row.select_one("p > em").get_text() == "matrix"
    assert "assert True" not in row.get_text()
    assert site.warnings == ""


@with_dictionary
def test_the_index_leads_to_each_row_and_the_groups_are_sections(site):
    site.build(dictionary_pages())
    page = site["dictionary"]
    entries = page.select("dl.dictionary-index li a")
    assert [(a.get_text(), a["href"]) for a in entries] == [
        ("Linear layer", "#dictionary-linear"),
        ("GELU", "#dictionary-gelu"),
    ]
    assert [dt.get_text() for dt in page.select("dl.dictionary-index dt")] == ["Some layers"]
    group = page.select_one("section#dictionary-some-layers")
    assert [section["id"] for section in group.select("section")] == [
        "dictionary-linear",
        "dictionary-gelu",
    ]


@with_dictionary
def test_other_pages_link_to_a_row_by_its_id(site):
    site.build(dictionary_pages(**{"c1.md": "# One\n\nSee {ref}`dictionary-gelu`."}))
    assert links(site["c1"].select_one("p")) == [("GELU", "dictionary.html#dictionary-gelu")]
    assert links(site["dictionary"].select_one("#dictionary-gelu")) == [
        ("Linear layer", "#dictionary-linear")
    ]
    assert site.warnings == ""


@with_dictionary
def test_only_the_dictionary_loads_its_style(site):
    site.build(dictionary_pages(**{"c1.md": "# One"}))
    styles = {page: str(site[page].select("link[rel=stylesheet]")) for page in ("dictionary", "c1")}
    assert "dictionary.css" in styles["dictionary"]
    assert "dictionary.css" not in styles["c1"]


@with_dictionary
def test_the_page_follows_when_only_the_data_change(site):
    site.build(dictionary_pages())
    site.build({"rows.toml": DATA.replace("nnx.Linear(8, 3)", "nnx.Linear(8, 4)")})
    assert "nnx.Linear(8, 4)" in site["dictionary"].get_text()


@with_dictionary
@pytest.mark.parametrize(
    "files",
    [
        dictionary_pages(data="[[group"),
        dictionary_pages(page=DICTIONARY_PAGE.replace("rows.toml", "nothing.toml")),
    ],
)
def test_data_that_cannot_be_read_are_a_warning(site, files):
    site.build(files)
    assert "cannot read the dictionary" in site.warnings
