"""The two files of a chapter: NAME.md, which people edit, and NAME.ipynb, made from it.

The notebook adds what the text file does not hold: outputs and the ids of cells.
"""

import hashlib
import re
from copy import deepcopy
from functools import cached_property
from pathlib import Path

import nbformat
from jupytext.combine import map_outputs_to_inputs
from jupytext.myst import myst_to_notebook, notebook_to_myst
from nbformat import NotebookNode

BACKENDS = {"pytorch": "torch", "jax": "jax"}  # tag and magic of a cell: its subpackage
HEADER = {  # in the front matter of every text file, beside what its author adds
    "jupytext": {"formats": "ipynb,md:myst"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}


class Pair:
    """The files of one chapter, each read once, when first needed."""

    def __init__(self, folder: Path, name: str):
        self.name, self.md, self.ipynb = name, folder / f"{name}.md", folder / f"{name}.ipynb"

    @cached_property
    def text(self) -> NotebookNode:
        """The text file as a notebook without outputs; the ids in it are random."""
        nb = myst_to_notebook(self.md.read_text(encoding="utf-8"))
        nb.metadata.pop("jupyter", None)  # jupytext's note of the lexer
        nb.metadata.update(nbformat.from_dict({**HEADER, "language_info": LANGUAGE}))
        return nb

    @cached_property
    def notebook(self) -> NotebookNode:
        """The notebook as it stands; ``nbformat.read`` would silently repair its ids."""
        return nbformat.reader.reads(self.ipynb.read_text(encoding="utf-8"))

    def build(self) -> NotebookNode:
        """The notebook of the text file, with the ids and outputs that still belong to it.

        jupytext finds the former cell of each cell: the one with the same source, else the
        one in the same place. A cell keeps its id, and its outputs if its source is the same.
        """
        nb = deepcopy(self.text)
        old = deepcopy(self.notebook.cells) if self.ipynb.exists() else []
        former = [None if n is None else old[n] for n in map_outputs_to_inputs(nb.cells, old)]
        ids = {cell.id for cell in former if cell}
        for cell, before in zip(nb.cells, former, strict=True):
            if before:
                cell.id = before.id
                if cell.cell_type == "code" and cell.source == before.source:
                    cell.outputs, cell.execution_count = before.outputs, before.execution_count
            else:
                cell.id = new_id(cell, ids)
                ids.add(cell.id)
        return nb

    def write(self, nb: NotebookNode) -> None:
        """Write the notebook."""
        write(self.ipynb, nbformat.writes(nb) + "\n")

    def edit(self, nb: NotebookNode) -> None:
        """Write the text file, and the notebook to go with it."""
        write(self.md, to_text(nb))
        self.text = nb
        self.write(self.build())


def to_text(nb: NotebookNode) -> str:
    """The text file of a notebook, in the form that jupytext gives it."""
    nb = nbformat.from_dict({**nb, "metadata": {**nb.metadata}})
    del nb.metadata["language_info"]
    return notebook_to_myst(nb, default_lexer=LANGUAGE["pygments_lexer"])


def write(path: Path, text: str) -> None:
    """Write a file, unless it holds just this already."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8", newline="\n")


def new_id(cell: NotebookNode, taken: set[str]) -> str:
    """A hash of what the cell says, so that building twice gives the same notebook."""
    found = hashlib.sha256(f"{cell.cell_type} {cell.source}".encode()).hexdigest()
    while found[:8] in taken:
        found = hashlib.sha256(found.encode()).hexdigest()
    return found[:8]


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """The code cells of a notebook, in order."""
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def tags(cell: NotebookNode) -> set[str]:
    """The tags of a cell, which may have none."""
    return set(cell.metadata.get("tags", []))


def split_magic(source: str) -> tuple[str, str]:
    """The ``%%`` line of a cell, or nothing, and the code below it."""
    found = re.match(r"(%%\w+.*\n?)?((?s:.*))", source)
    return found[1] or "", found[2]


def label(nb: NotebookNode, cell: NotebookNode) -> str:
    """How messages name a cell: by its place and its first line."""
    number = next(n for n, other in enumerate(nb.cells, 1) if other is cell)
    first = split_magic(cell.source)[1].lstrip().split("\n")[0]
    return f"cell {number} ({first[:60]})"
