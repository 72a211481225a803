"""Write the code cells of a chapter that are not written by hand, and format those that are."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from notebook_pair import BACKENDS, LANGUAGE, code_cells, label, split_magic, tags

PACKAGE = Path(__file__).resolve().parents[2] / "d2lgpt"
SETUP_CELL = Path(__file__).with_name("setup_cell.py")


class Fault(Exception):
    """Something that an author has to put right; the message says what and where."""


def fill(nb: NotebookNode) -> list[str]:
    """Write set-up and listing cells from their sources; return the labels of the changed."""

    def source(cell: NotebookNode) -> str:
        if "setup" in tags(cell):
            return SETUP_CELL.read_text(encoding="utf-8").rstrip()
        return listing(cell) if "listing" in tags(cell) else cell.source

    return replace(nb, {cell.id: source(cell) for cell in code_cells(nb)})


def tidy(nb: NotebookNode) -> list[str]:
    """Format the other code cells with ruff; return the labels of the changed."""
    cells = [cell for cell in code_cells(nb) if not {"setup", "listing"} & tags(cell)]
    parts = [split_magic(cell.source) for cell in cells]
    plain = nbformat.v4.new_notebook(metadata={"language_info": LANGUAGE})
    plain.cells = [nbformat.v4.new_code_cell(code) for _, code in parts]
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "88"]
    command += ["--stdin-filename", "cells.ipynb", "-"]
    ruff = subprocess.run(command, input=nbformat.writes(plain), capture_output=True, text=True)
    if ruff.returncode:
        raise Fault(f"ruff cannot format the code cells: {ruff.stderr.strip()}")
    formatted = nbformat.reads(ruff.stdout, as_version=4).cells
    sources = [magic + new.source for (magic, _), new in zip(parts, formatted, strict=True)]
    return replace(nb, {cell.id: source for cell, source in zip(cells, sources, strict=True)})


def replace(nb: NotebookNode, sources: dict[str, str]) -> list[str]:
    """Give the cells with these ids new sources; return the labels of those that changed."""
    changed = [cell for cell in nb.cells if sources.get(cell.id, cell.source) != cell.source]
    labels = [label(nb, cell) for cell in changed]
    for cell in changed:
        cell.source = sources[cell.id]
    return labels


def listing(cell: NotebookNode) -> str:
    """The magic of a listing cell, then the package's text of what its metadata names."""
    tag = next((tag for tag in BACKENDS if tag in tags(cell)), None)
    folder = PACKAGE / BACKENDS[tag] if tag else PACKAGE
    without = cell.metadata.get("without", "").split()
    names = cell.metadata.get("listing", "").split()
    parts = [package_text(folder, name, without, cell.metadata.get("to")) for name in names]
    return (f"%%{tag}\n" if tag else "") + "\n\n\n".join(parts)


def package_text(
    folder: Path, name: str, without: list[str] | None = None, to: str | None = None
) -> str:
    """The text of ``module.Name`` in a package, its docstrings cut to their first line.

    What ``without`` names is left out of a class. ``module.Class.method``, or a class inside a
    class, is written as something that a notebook adds to the class: the package's, or the one
    that the notebook has defined as ``to``.
    """
    path, *wanted = find(folder, name)
    text = path.read_text(encoding="utf-8")
    body, found = ast.parse(text).body, None
    for one in wanted:
        found = next((node for node in reversed(body) if defines(node, one)), None)
        if not found:
            raise Fault(f"listing {name}: {path.relative_to(PACKAGE.parent)} has no {one}")
        body = getattr(found, "body", [])
    lines = text.splitlines()
    for node in ast.walk(found):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            doc = node.body[0]
            first = ast.get_docstring(node).splitlines()[0]
            raw = "r" if "\\" in first else ""
            lines[doc.lineno - 1] = f'{" " * doc.col_offset}{raw}"""{first}"""'
            lines[doc.lineno : doc.end_lineno] = [None] * (doc.end_lineno - doc.lineno)
    for method in without or []:
        node = next((node for node in body if defines(node, method)), None)
        if not node:
            raise Fault(f"listing {name}: it has no {method} to leave out")
        start = first_line(node, lines)
        while lines[start - 1] == "":  # the blank lines above go with it
            start -= 1
        lines[start : node.end_lineno] = [None] * (node.end_lineno - start)
    kept = [one for one in lines[first_line(found, lines) : found.end_lineno] if one is not None]
    if len(wanted) == 1:
        return "\n".join(kept)
    add = f"@d2l.add_to_class({to or 'd2l.' + '.'.join(wanted[:-1])})\n"
    return add + textwrap.dedent("\n".join(kept))


def find(folder: Path, name: str) -> tuple[Path, ...]:
    """The file of a dotted name, and the names to look for in it."""
    parts = name.split(".")
    for count in range(1, len(parts)):
        path = folder.joinpath(*parts[:count]).with_suffix(".py")
        if path.is_file():
            return (path, *parts[count:])
    raise Fault(f"listing {name}: there is no such module in {folder.relative_to(PACKAGE.parent)}")


def first_line(node: ast.stmt, lines: list[str | None]) -> int:
    """Where a definition begins: with its decorators, and with comments right above it."""
    start = min(n.lineno for n in [node, *getattr(node, "decorator_list", [])]) - 1
    while start and (lines[start - 1] or "").startswith(" " * node.col_offset + "#"):
        start -= 1
    return start


def defines(node: ast.stmt, name: str) -> bool:
    """Whether a statement defines this name."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return name in [getattr(node, "name", None), *(getattr(t, "id", None) for t in targets)]
