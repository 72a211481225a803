"""The extension that shows adjacent cells of the two backends as tabs: each rule, on tiny pages."""

import io
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("myst_nb", reason="the book's tools are not installed")
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

EXTENSIONS = Path(__file__).parents[1] / "book" / "_ext"


def code(source, *tags, output=None):
    outputs = [new_output("stream", name="stdout", text=output)] if output else []
    return new_code_cell(source, metadata={"tags": list(tags)}, outputs=outputs)


def torch_cell(source="import torch", *tags, output=None):
    return code(f"%%pytorch\n{source}", "pytorch", *tags, output=output)


def jax_cell(source="import jax", *tags, output=None):
    return code(f"%%jax\n{source}", "jax", *tags, output=output)


class Page:
    """A built page: its HTML, and what Sphinx complained about."""

    def __init__(self, html, warnings):
        self.html = BeautifulSoup(html, "html.parser")
        self.warnings = warnings

    @property
    def tab_sets(self):
        """For each tab-set, its tabs as pairs (label, [source of each cell])."""
        return [
            [
                (
                    label.get_text().strip(),
                    [pre.get_text().rstrip("\n") for pre in panel.select(".cell_input pre")],
                )
                for label, panel in zip(
                    tab_set.select("label"), tab_set.select(".sd-tab-content"), strict=True
                )
            ]
            for tab_set in self.html.select(".backend-tabs")
        ]


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return a function that makes a page of the given notebook cells."""
    monkeypatch.syspath_prepend(str(EXTENSIONS))

    def build(*cells, **config):
        notebook = new_notebook(cells=[new_markdown_cell("# A page"), *cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        source = tmp_path / "source"
        source.mkdir(exist_ok=True)
        nbformat.write(notebook, source / "index.ipynb")
        warnings = io.StringIO()
        config = {
            "extensions": ["myst_nb", "sphinx_exercise", "backend_tabs"],
            "nb_execution_mode": "off",
            "html_theme": "basic",
            "myst_enable_extensions": ["colon_fence"],
            "suppress_warnings": ["config.cache"],
        } | config
        with docutils_namespace():
            Sphinx(
                str(source),
                None,
                str(tmp_path / "out"),
                str(tmp_path / "trees"),
                "html",
                confoverrides=config,
                status=None,
                warning=warnings,
                freshenv=True,
            ).build()
        return Page((tmp_path / "out" / "index.html").read_text("utf-8"), warnings.getvalue())

    return build


def test_a_pair_of_cells_is_one_tab_set(build):
    page = build(torch_cell(), jax_cell())
    assert page.tab_sets == [[("PyTorch", ["import torch"]), ("JAX", ["import jax"])]]
    assert page.warnings == ""


def test_the_order_of_tabs_does_not_depend_on_the_order_of_cells(build):
    page = build(jax_cell(), torch_cell())
    assert page.tab_sets == [[("PyTorch", ["import torch"]), ("JAX", ["import jax"])]]
    assert page.warnings == ""


def test_a_returning_backend_starts_a_new_tab_set(build):
    page = build(torch_cell("a = 1"), jax_cell("b = 1"), torch_cell("a = 2"), jax_cell("b = 2"))
    assert page.tab_sets == [
        [("PyTorch", ["a = 1"]), ("JAX", ["b = 1"])],
        [("PyTorch", ["a = 2"]), ("JAX", ["b = 2"])],
    ]
    assert page.warnings == ""


def test_two_cells_of_each_backend_in_a_row_share_one_tab_set(build):
    page = build(torch_cell("a = 1"), torch_cell("a = 2"), jax_cell("b = 1"), jax_cell("b = 2"))
    assert page.tab_sets == [[("PyTorch", ["a = 1", "a = 2"]), ("JAX", ["b = 1", "b = 2"])]]
    assert page.warnings == ""


@pytest.mark.parametrize(
    "between", [new_markdown_cell("Prose."), new_markdown_cell("## A heading"), code("shared = 1")]
)
def test_anything_between_two_cells_separates_them(build, between):
    page = build(torch_cell(), between, jax_cell())
    assert page.tab_sets == [[("PyTorch", ["import torch"])], [("JAX", ["import jax"])]]
    assert "cell 2 has no adjacent counterpart tagged jax" in page.warnings
    assert "cell 4 has no adjacent counterpart tagged pytorch" in page.warnings


def test_a_comment_does_not_separate_cells(build):
    page = build(torch_cell(), new_markdown_cell("% for maintainers only"), jax_cell())
    assert len(page.tab_sets) == 1
    assert page.warnings == ""


def test_a_removed_cell_does_not_separate_cells(build):
    page = build(torch_cell(), code("1", "remove-cell"), jax_cell())
    assert len(page.tab_sets) == 1
    assert page.warnings == ""


def test_untagged_cells_stay_where_they_are(build):
    page = build(code("before = 1"), torch_cell(), jax_cell(), code("after = 1"))
    sources = [pre.get_text().strip() for pre in page.html.select(".cell_input pre")]
    assert sources == ["before = 1", "import torch", "import jax", "after = 1"]
    assert len(page.html.select(".backend-tabs .cell")) == 2


def test_a_lonely_cell_is_a_warning(build):
    assert "cell 2 has no adjacent counterpart tagged jax" in build(torch_cell()).warnings
    assert "cell 2 has no adjacent counterpart tagged pytorch" in build(jax_cell()).warnings


def test_a_cell_tagged_for_both_backends_is_a_warning(build):
    page = build(code("%%jax\nx = 1", "pytorch", "jax"))
    assert "cell 2 is tagged for several backends: pytorch, jax" in page.warnings
    assert page.tab_sets == []


def test_a_warning_names_the_file_and_its_type(build):
    # With the type, Sphinx can be told to ignore it; nobody should, but -W needs a real warning.
    warnings = build(torch_cell()).warnings
    assert "index.ipynb" in warnings
    assert build(torch_cell(), suppress_warnings=["config.cache", "backend_tabs"]).warnings == ""


def test_the_magic_is_not_on_the_page_and_the_rest_is_highlighted(build):
    page = build(torch_cell("import torch\n\nx = torch.ones(2)"), jax_cell())
    assert "%%" not in page.html.get_text()
    (_, [source]), _ = page.tab_sets[0]
    assert source == "import torch\n\nx = torch.ones(2)"
    assert page.html.select_one(".sd-tab-content pre span.kn").get_text() == "import"


def test_the_tag_and_the_magic_must_agree(build):
    missing = build(code("x = 1", "pytorch"), jax_cell())
    assert "cell 2 is tagged pytorch but does not start with %%pytorch" in missing.warnings
    wrong = build(torch_cell(), code("%%pytorch\nx = 1", "jax"))
    assert "cell 3 is tagged jax but does not start with %%jax" in wrong.warnings
    untagged = build(code("%%jax\nx = 1"))
    assert "cell 2 starts with %%jax but has no tag jax" in untagged.warnings


def test_other_magics_are_left_alone(build):
    page = build(code("%%time\nx = 1"))
    assert "%%time" in page.html.get_text()
    assert page.warnings == ""


def test_every_tab_shows_its_output(build):
    page = build(torch_cell(output="from torch\n"), jax_cell(output="from jax\n"))
    outputs = [
        panel.select_one(".cell_output").get_text().strip()
        for panel in page.html.select(".sd-tab-content")
    ]
    assert outputs == ["from torch", "from jax"]


def test_hidden_and_removed_inputs_work_inside_tabs(build):
    page = build(
        torch_cell("a = 1", "hide-input", output="1"), jax_cell("b = 1", "remove-input", output="2")
    )
    first, second = page.html.select(".sd-tab-content")
    assert first.select_one("details .cell_input pre").get_text().strip() == "a = 1"
    assert second.select_one(".cell_input") is None
    assert second.get_text().strip() == "2"
    assert page.warnings == ""


def test_all_tab_sets_share_one_choice(build):
    prose = new_markdown_cell(
        "::::{tab-set}\n:sync-group: code\n\n"
        ":::{tab-item} PyTorch\n:sync: pytorch\n\nHere.\n:::\n\n"
        ":::{tab-item} JAX\n:sync: jax\n\nThere.\n:::\n::::"
    )
    page = build(torch_cell(), jax_cell(), prose)
    assert page.warnings == ""
    keys = [
        (label["data-sync-group"], label["data-sync-id"]) for label in page.html.select("label")
    ]
    assert keys == [("code", "pytorch"), ("code", "jax")] * 2


def test_labels_and_backends_can_be_configured(build):
    page = build(torch_cell(), jax_cell(), backend_tabs={"jax": "Flax NNX", "pytorch": "Torch"})
    assert [label for label, _ in page.tab_sets[0]] == ["Flax NNX", "Torch"]


def test_cells_of_exercises_and_solutions_are_grouped_and_ids_are_unique(build):
    def exercise(kind, *argument):
        start = "\n".join([f"```{{{kind}-start}} {' '.join(argument)}", ":label: " + label, "```"])
        return new_markdown_cell(start), new_markdown_cell(f"```{{{kind}-end}}\n```")

    cells = []
    for number in (1, 2):
        label = f"exercise-{number}"
        start, end = exercise("exercise")
        cells += [start, torch_cell(), jax_cell(), end]
        label = f"solution-{number}"
        start, end = exercise("solution", f"exercise-{number}")
        cells += [start, torch_cell(), jax_cell(), end]
    page = build(*cells)
    assert page.warnings == ""
    assert len(page.tab_sets) == 4
    assert len(page.html.select(".exercise .backend-tabs")) == 2
    assert len(page.html.select(".solution .backend-tabs")) == 2
    ids = [element["id"] for element in page.html.select("[id]")]
    assert sorted(ids) == sorted(set(ids))
