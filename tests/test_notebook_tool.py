"""book/_scripts/notebooks.py: what it writes, what it leaves alone, and what it finds."""

import json
import sys
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("jupytext")
pytest.importorskip("ruff")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book/_scripts"))

import notebook_sources
from notebook_pair import Pair, code_cells
from notebook_rules import RULES

import notebooks

PACKAGE = '''
"""A module."""
import functools

LIMIT = 3  # a constant


# Why this class is as it is.
@functools.total_ordering
class Layer:
    """A layer.

    Its long description.
    """

    def forward(self, x):
        r"""Compute \\alpha x.

        Shape: any.
        """
        # a comment in the code
        return x


def helper(x: int) -> int:
    """Return x."""
    return x
'''

LISTING = '''%%pytorch
# Why this class is as it is.
@functools.total_ordering
class Layer:
    """A layer."""

    def forward(self, x):
        r"""Compute \\alpha x."""
        # a comment in the code
        return x


def helper(x: int) -> int:
    """Return x."""
    return x'''

CHAPTER = """---
jupytext:
  formats: ipynb,md:myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

```{code-cell} ipython3
:tags: [setup, remove-cell]
```

# A chapter

Some prose.

```{code-cell} ipython3
%load_ext d2lgpt
```

```{code-cell} ipython3
:tags: [pytorch]

%%pytorch
x = 1
```

```{code-cell} ipython3
:listing: scratch.Layer scratch.helper
:tags: [pytorch, listing]
```

```{code-cell} ipython3
---
mystnb:
  image:
    alt: A line.
---
plot()
```
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for notebooks, beside a package that they can list."""
    (tmp_path / "d2lgpt/torch").mkdir(parents=True)
    (tmp_path / "d2lgpt/torch/scratch.py").write_text(PACKAGE)
    (tmp_path / "d2lgpt/config.py").write_text("SIZES: dict = {'a': 1}\n")
    monkeypatch.setattr(notebook_sources, "PACKAGE", tmp_path / "d2lgpt")
    (tmp_path / "notebooks").mkdir()
    return tmp_path / "notebooks"


def tool(folder, *arguments):
    return notebooks.main([*arguments, "--folder", str(folder)])


def write_chapter(folder, *cells, name="01_chapter"):
    """A text file of code cells and prose (what begins with '#' followed by a space)."""
    text = CHAPTER[: CHAPTER.index("\n```")]
    for cell in cells:
        text += f"\n{cell}\n" if cell.startswith("# ") else f"\n```{{code-cell}}\n{cell}\n```\n"
    (folder / f"{name}.md").write_text(text)
    return Pair(folder, name)


def pretend_to_execute(pair):
    """Give every code cell of a notebook an output, as if it had run."""
    nb = nbformat.read(pair.ipynb, as_version=4)
    for number, cell in enumerate(code_cells(nb), 1):
        cell.execution_count = number
        cell.outputs = [nbformat.v4.new_output("stream", text=f"output {number}\n")]
    nbformat.write(nb, pair.ipynb)


def read(pair):
    return json.loads(pair.ipynb.read_text())


def ids(pair):
    return [cell["id"] for cell in read(pair)["cells"]]


def outputs(pair):
    return [
        "".join(o["text"]) for c in read(pair)["cells"] for o in c.get("outputs", []) if "text" in o
    ]


# --- listings -------------------------------------------------------------------------------


@pytest.fixture
def chapter(folder):
    """A chapter without a fault, which looks as if it had been executed."""
    (folder / "01_chapter.md").write_text(CHAPTER)
    assert tool(folder, "listings") == 0
    assert tool(folder, "format") == 0
    pair = Pair(folder, "01_chapter")
    pretend_to_execute(pair)
    nb = nbformat.read(pair.ipynb, as_version=4)
    nb.cells[-1].outputs = [nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg/>"})]
    nbformat.write(nb, pair.ipynb)
    return Pair(folder, "01_chapter")


def test_listings_come_from_the_package(chapter):
    for nb in (chapter.text, chapter.notebook):
        assert nb.cells[4].source == LISTING
        assert nb.cells[0].source == notebook_sources.SETUP_CELL.read_text().rstrip()


def test_listings_may_name_constants_and_shared_modules(folder):
    (folder / "01.md").write_text(
        CHAPTER.replace("[pytorch, listing]", "[listing]").replace(
            "scratch.Layer scratch.helper", "config.SIZES torch.scratch.LIMIT"
        )
    )
    tool(folder, "listings")
    source = Pair(folder, "01").text.cells[4].source
    assert source == "SIZES: dict = {'a': 1}\n\n\nLIMIT = 3  # a constant"


METHODS = '''
class Model:
    """A model.

    Its long description.
    """

    size = 3

    def forward(self, x):
        return x

    # Why this method is as it is.
    @functools.cache
    def generate(self, x):
        """Continue x.

        More.
        """
        for _ in x:
            # a comment in the code

            yield self.forward(x)

    def close(self):
        pass
'''


def listing_of(folder, name, **metadata):
    folder.parent.joinpath("d2lgpt/torch/gpt.py").write_text(METHODS)
    options = "".join(f":{key}: {value}\n" for key, value in metadata.items())
    (folder / "01.md").write_text(
        CHAPTER.replace(":listing: scratch.Layer scratch.helper\n", f":listing: {name}\n{options}")
    )
    assert tool(folder, "listings") == 0
    return Pair(folder, "01").text.cells[4].source.removeprefix("%%pytorch\n")


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (
            "generate",
            'class Model:\n    """A model."""\n\n    size = 3\n\n    def forward(self, x):\n'
            "        return x\n\n    def close(self):\n        pass",
        ),
        (
            "generate forward close",
            'class Model:\n    """A model."""\n\n    size = 3',
        ),
    ],
)
def test_a_listing_may_leave_out_methods(folder, without, expected):
    assert listing_of(folder, "gpt.Model", without=without) == expected


def test_a_method_is_listed_as_a_function_that_is_added_to_its_class(folder):
    assert (
        listing_of(folder, "gpt.Model.generate")
        == '''@d2l.add_to_class(d2l.Model)
# Why this method is as it is.
@functools.cache
def generate(self, x):
    """Continue x."""
    for _ in x:
        # a comment in the code

        yield self.forward(x)'''
    )


def test_a_method_can_be_added_to_a_class_of_the_notebook(folder):
    added = listing_of(folder, "gpt.Model.generate", to="Model")
    assert added.startswith("@d2l.add_to_class(Model)\n# Why")


def test_a_method_that_cannot_be_left_out_is_named(folder, capsys):
    (folder / "01.md").write_text(CHAPTER.replace(":listing:", ":without: generate\n:listing:"))
    assert tool(folder, "listings") == 1
    assert "listing scratch.Layer: it has no generate to leave out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["scratch.Nothing", "nowhere.Layer", "Layer", "scratch.Layer.nothing"]
)
def test_a_listing_of_nothing_is_named(folder, name, capsys):
    (folder / "01.md").write_text(CHAPTER.replace("scratch.helper", name))
    assert tool(folder, "listings") == 1
    assert f"listing {name}: " in capsys.readouterr().err


def test_listings_check_reports_and_changes_nothing(chapter, folder, capsys):
    assert tool(folder, "listings", "--check") == 0
    module = folder.parent / "d2lgpt/torch/scratch.py"
    module.write_text(PACKAGE.replace("return x\n", "return x + 1\n"))
    before = chapter.md.read_text(), chapter.ipynb.read_text()
    assert tool(folder, "listings", "--check") == 1
    assert "cell 5 (# Why this class" in capsys.readouterr().out
    assert (chapter.md.read_text(), chapter.ipynb.read_text()) == before
    assert tool(folder, "listings") == 0
    assert tool(folder, "listings", "--check") == 0
    assert "return x + 1" in chapter.md.read_text()
    assert outputs(chapter) == ["output 1\n", "output 2\n", "output 3\n"]  # of the other cells


# --- build ----------------------------------------------------------------------------------


def test_building_again_changes_nothing(folder):
    pair = write_chapter(folder, "# Title", "a = 1", "a = 1", "# Title", "b = 2")
    tool(folder, "build")
    first = pair.ipynb.read_bytes()
    assert len(set(ids(pair))) == 5
    tool(folder, "build")
    assert pair.ipynb.read_bytes() == first
    pair.ipynb.unlink()
    tool(folder, "build")
    assert pair.ipynb.read_bytes() == first


def test_metadata_is_the_same_everywhere(folder):
    pair = write_chapter(folder, "a = 1")
    tool(folder, "build")
    assert read(pair)["nbformat_minor"] == 5
    assert read(pair)["metadata"] == {
        "jupytext": {"formats": "ipynb,md:myst"},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }


@pytest.mark.parametrize(
    ("after", "kept_ids", "kept_outputs"),
    [
        (["a = 1", "b = 2", "# Prose", "c = 3"], [0, 1, 2, 3], [1, 2, 3]),
        (["a = 1", "b = 20", "# Prose", "c = 3"], [0, 1, 2, 3], [1, 3]),  # a changed cell
        (["a = 1", "b=2", "# Prose", "c = 3"], [0, 1, 2, 3], [1, 3]),  # another format
        (["a = 1", "n = 0", "b = 2", "# Prose", "c = 3"], [0, None, 1, 2, 3], [1, 2, 3]),
        (["n = 0", "a = 1", "b = 2", "# Prose", "c = 3"], [None, 0, 1, 2, 3], [1, 2, 3]),
        (["a = 1", "# Prose", "c = 3"], [0, 2, 3], [1, 3]),  # a cell is gone
        (["a = 1", "b = 2", "# Other prose", "c = 3"], [0, 1, 2, 3], [1, 2, 3]),
        (["b = 2", "a = 1", "# Prose", "c = 3"], [1, 0, 2, 3], [2, 1, 3]),  # exchanged
    ],
)
def test_ids_and_outputs_survive_edits(folder, after, kept_ids, kept_outputs):
    pair = write_chapter(folder, "a = 1", "b = 2", "# Prose", "c = 3")
    tool(folder, "build")
    pretend_to_execute(pair)
    before = ids(pair)
    write_chapter(folder, *after)
    tool(folder, "build")
    now = ids(pair)
    assert len(set(now)) == len(now)
    assert [before.index(one) if one in before else None for one in now] == kept_ids
    assert outputs(pair) == [f"output {n}\n" for n in kept_outputs]


def test_names_select_notebooks(folder, capsys):
    for name in ("01_one", "02_two"):
        write_chapter(folder, "a = 1", name=name)
    assert tool(folder, "build", "02") == 0
    assert sorted(path.name for path in folder.glob("*.ipynb")) == ["02_two.ipynb"]
    assert tool(folder, "build", "03") == 1
    assert "03: no such notebook" in capsys.readouterr().err


# --- run ------------------------------------------------------------------------------------


def test_run_stores_outputs_and_nothing_that_varies(folder):
    pair = write_chapter(
        folder, "import sys\nprint('one')\nsys.stdout.flush()\nprint('two')", "6 * 7"
    )
    assert tool(folder, "run") == 0
    nb = read(pair)
    assert [cell["execution_count"] for cell in nb["cells"]] == [1, 2]
    assert [cell["metadata"] for cell in nb["cells"]] == [{}, {}]
    assert nb["cells"][0]["outputs"] == [
        {"name": "stdout", "output_type": "stream", "text": ["one\n", "two\n"]}
    ]
    assert nb["cells"][1]["outputs"][0]["data"] == {"text/plain": ["42"]}
    assert nb["metadata"]["language_info"] == {"name": "python", "pygments_lexer": "ipython3"}
    first = pair.ipynb.read_bytes()
    assert tool(folder, "run") == 0
    assert pair.ipynb.read_bytes() == first


@pytest.mark.parametrize(
    ("fault", "timeout", "message"),
    [
        ("1 / 0", 60, "ZeroDivisionError"),
        ("import time\ntime.sleep(60)", 1, "timed out"),
        ("import os\nos._exit(1)", 60, "Kernel died"),
    ],
)
def test_a_failing_notebook_is_left_as_it_was(folder, capfd, fault, timeout, message):
    good = write_chapter(folder, "1 + 1", name="01_good")
    bad = write_chapter(folder, "a = 1", "print(a)", name="02_bad")
    tool(folder, "build")
    pretend_to_execute(bad)
    before = bad.ipynb.read_bytes()
    write_chapter(folder, "a = 1", fault, name="02_bad")
    assert tool(folder, "run", "-j", "2", "--timeout", str(timeout)) == 1
    assert bad.ipynb.read_bytes() == before
    assert read(good)["cells"][0]["execution_count"] == 1
    said = capfd.readouterr().err
    assert f"02_bad, cell 2 ({fault.splitlines()[0]}): failed" in said
    assert message in said


# --- check ----------------------------------------------------------------------------------


def in_text(old, new):
    def change(pair):
        text = pair.md.read_text()
        assert old in text
        pair.md.write_text(text.replace(old, new, 1))

    return change


def in_notebook(change):
    def rewrite(pair):
        nb = read(pair)
        change(nb, nb["cells"])
        pair.ipynb.write_text(json.dumps(nb))

    return rewrite


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def show(text):
    return in_notebook(lambda nb, cells: cells[2].update(outputs=[stream(text)]))


FAULTS = [  # the rule, what breaks it, a part of what is said
    ("files_agree", in_text("Some prose", "Other prose"), "another source"),
    ("files_agree", in_text("tags: [pytorch]", "tags: [pytorch, hide-input]"), "another metadata"),
    ("files_agree", in_notebook(lambda nb, cells: cells.pop()), "number of cells"),
    (
        "files_agree",
        in_notebook(lambda nb, cells: cells[2].update(cell_type="raw")),
        "another cell_type",
    ),
    (
        "files_agree",
        in_notebook(lambda nb, cells: nb["metadata"]["kernelspec"].update(name="venv")),
        "their metadata",
    ),
    ("notebook_is_valid", in_notebook(lambda nb, cells: cells[1].pop("id")), "'id' is a required"),
    ("notebook_is_valid", in_notebook(lambda nb, cells: cells[1].update(id="a b")), "'a b'"),
    (
        "notebook_is_valid",
        in_notebook(lambda nb, cells: cells[1].update(id=cells[0]["id"])),
        "several cells have",
    ),
    (
        "code_stands_at_the_top_level",
        in_text("Some prose.", "````{note}\n```{code-cell}\nx\n```\n````"),
        "cell 2 (# A chapter)",
    ),
    ("setup_comes_first", in_notebook(lambda nb, cells: cells.reverse()), "first cell"),
    ("setup_comes_first", in_notebook(lambda nb, cells: cells.append(cells[0])), "no other"),
    (
        "setup_comes_first",
        in_notebook(lambda nb, cells: cells[0]["metadata"].update(tags=["setup"])),
        "remove-cell",
    ),
    (
        "setup_comes_first",
        in_notebook(lambda nb, cells: cells[2].update(source="import d2lgpt")),
        "%load_ext d2lgpt",
    ),
    ("listings_are_current", in_text("return x", "return y"), "cell 5 (# Why"),
    ("listings_are_current", in_text("--no-deps", "--deps"), "cell 1 (# Set-up"),
    ("listings_are_current", in_text("[pytorch, listing]", "[pytorch]"), "needs both"),
    ("listings_are_current", in_text(":listing: scratch.Layer scratch.helper\n", ""), "needs both"),
    ("code_is_formatted", in_text("x = 1", "x=1"), "cell 4 (x"),
    ("code_is_formatted", in_text("# A chapter", "\n\n# A chapter"), "layout"),
    ("magics_match_tags", in_notebook(lambda nb, c: c[3].update(source="x = 1")), "cell 4"),
    ("magics_match_tags", in_notebook(lambda nb, c: c[3].update(source="%%jax\nx = 1")), "cell 4"),
    ("magics_match_tags", in_notebook(lambda nb, c: c[3].update(metadata={})), "cell 4"),
    (
        "magics_match_tags",
        in_notebook(lambda nb, cells: cells[3]["metadata"]["tags"].append("jax")),
        "cell 4",
    ),
    ("training_starts_afresh", in_text("x = 1", "train_lm(model, d, o, 9)"), "trains with model"),
    (
        "training_starts_afresh",
        in_text("x = 1", "model = GPT()\nd2l.train_lm(model, TimeMachine(), optimizer, 9)"),
        "trains with optimizer",
    ),
    (
        "training_starts_afresh",
        in_text("x = 1", "def losses(steps, m):\n    train_lm(m, 1, 2, steps)\n\n\nlosses(9, old)"),
        "trains with old",
    ),
    (
        "training_starts_afresh",
        in_text("x = 1", "def losses():\n    train_lm(model, 1, 2, 9)"),
        "trains with model",
    ),
    (
        "cells_were_executed",
        in_notebook(lambda nb, cells: cells[3].update(execution_count=None)),
        "cell 4 (x = 1): not executed",
    ),
    (
        "cells_were_executed",
        in_notebook(lambda nb, cells: cells[3].update(execution_count=7)),
        "cell 4 (x = 1): not executed",
    ),
    (
        "cells_were_executed",
        in_notebook(
            lambda nb, cells: cells[3]["outputs"].append(
                {"output_type": "error", "ename": "KeyError", "evalue": "", "traceback": []}
            )
        ),
        "raised KeyError",
    ),
    (
        "outputs_are_repeatable",
        in_notebook(lambda nb, cells: cells[2]["outputs"].append(stream("", "stderr"))),
        "writes to stderr",
    ),
    ("outputs_are_repeatable", show("saved in /home/me/.cache/x"), "names /home/me/.cache/x"),
    ("outputs_are_repeatable", show(r"C:\Users\me"), r"names C:\Users\me"),
    ("outputs_are_repeatable", show("<Linear at 0x7f01ab>"), "names at 0x7f01ab"),
    (
        "pictures_have_alt_text",
        in_notebook(lambda nb, cells: cells[-1].update(metadata={})),
        "cell 6 (plot())",
    ),
    (
        "pictures_have_alt_text",
        in_notebook(lambda nb, cells: cells[-1]["metadata"]["mystnb"]["image"].update(alt=" ")),
        "cell 6 (plot())",
    ),
]


def test_a_good_chapter_passes_every_rule(chapter, folder, capsys):
    assert tool(folder, "check") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("rule", "change", "message"), FAULTS)
def test_each_rule_finds_its_fault(chapter, folder, capsys, rule, change, message):
    change(chapter)
    rule = next(one for one in RULES if one.__name__ == rule)
    assert any(message in fault for fault in rule(Pair(folder, chapter.name)))
    assert tool(folder, "check") == 1
    assert message in capsys.readouterr().out


def test_training_may_begin_with_what_the_cell_makes_or_copies(chapter):
    good = """
def losses(model, steps):
    optimizer = adamw(model)
    return train_lm(model, data(), optimizer, steps)


fresh = GPT()
x = losses(fresh, 9) + losses(deepcopy(untrained), 9)
"""
    in_text("x = 1", good.strip())(chapter)
    rule = next(one for one in RULES if one.__name__ == "training_starts_afresh")
    assert list(rule(Pair(chapter.md.parent, chapter.name))) == []


def test_every_rule_is_shown_to_fail():
    assert {name for name, _, _ in FAULTS} == {rule.__name__ for rule in RULES}


def test_an_announced_error_is_none(chapter):
    in_text("tags: [pytorch]", "tags: [pytorch, raises-exception]")(chapter)
    error = {"output_type": "error", "ename": "KeyError", "evalue": "", "traceback": []}
    in_notebook(lambda nb, cells: cells[3].update(outputs=[error]))(chapter)
    tool(chapter.md.parent, "build")
    assert tool(chapter.md.parent, "check") == 0


@pytest.mark.parametrize("suffix", [".md", ".ipynb"])
def test_a_missing_partner_is_found(chapter, folder, capsys, suffix):
    chapter.md.with_suffix(suffix).unlink()
    assert tool(folder, "check") == 1
    assert f"01_chapter{suffix} is missing" in capsys.readouterr().out


def test_format_rewrites_code_and_layout(chapter, folder, capsys):
    good = chapter.md.read_text()
    in_text("x = 1", "x  =  (1)\n\n")(chapter)
    in_text("# A chapter", "\n\n# A chapter")(chapter)
    assert tool(folder, "format") == 0
    assert "cell 4 (x  =  (1)): formatted" in capsys.readouterr().out
    assert chapter.md.read_text() == good


def test_format_names_a_syntax_error(chapter, folder, capsys):
    in_text("x = 1", "x = = 1")(chapter)
    assert tool(folder, "format") == 1
    assert "ruff cannot format the code cells" in capsys.readouterr().err
