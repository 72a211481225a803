"""What must hold for the two files of a chapter: each rule yields one message per fault."""

import ast
import re
from collections.abc import Iterator
from copy import deepcopy

from nbformat import NotebookNode
from nbformat.validator import iter_validate
from notebook_pair import BACKENDS, Pair, code_cells, label, split_magic, tags, to_text
from notebook_sources import fill, tidy

NOT_REPEATABLE = re.compile(
    r"(?<![\w.:/])/(?:home|root|tmp|usr|var|opt|mnt|private|Users)/\S*"  # paths of a machine
    r"|[A-Z]:\\\S*|\S*site-packages\S*|ipykernel_\d+|\bat 0x[0-9a-f]+"
)


def files_agree(pair: Pair) -> Iterator[str]:
    """The notebook has the cells, tags and metadata (so the kernel) of the text file."""
    if pair.text.metadata != pair.notebook.metadata:
        yield "text file and notebook differ in their metadata"
    if len(pair.text.cells) != len(pair.notebook.cells):
        yield "text file and notebook differ in their number of cells"
    for here, there in zip(pair.text.cells, pair.notebook.cells, strict=False):
        if different := [w for w in ("cell_type", "source", "metadata") if here[w] != there[w]]:
            yield f"{label(pair.text, here)}: the notebook has another {', '.join(different)}"


def notebook_is_valid(pair: Pair) -> Iterator[str]:
    """The notebook follows format 4.5, and every cell has an id of its own."""
    for error in iter_validate(pair.notebook, version=4, version_minor=5):
        yield f"not a valid notebook: {error.message[:200]}"
    ids = [cell.get("id") for cell in pair.notebook.cells]
    if repeated := sorted({str(one) for one in ids if ids.count(one) > 1}):
        yield f"ids that several cells have: {', '.join(repeated)}"


def code_stands_at_the_top_level(pair: Pair) -> Iterator[str]:
    """No code cell stands in a directive or a list: it would be prose that never runs."""
    for cell in pair.text.cells:
        if cell.cell_type == "markdown" and "{code-cell}" in cell.source:
            yield f"{label(pair.text, cell)}: holds a nested {{code-cell}}"


def setup_comes_first(pair: Pair) -> Iterator[str]:
    """The first cell prepares Colab, and the second code cell loads the magics."""
    cells = code_cells(pair.notebook)
    if [cell for cell in pair.notebook.cells if "setup" in tags(cell)] != pair.notebook.cells[:1]:
        yield "the first cell, and no other, must be tagged setup"
    if cells and "remove-cell" not in tags(cells[0]):
        yield "the set-up cell must be tagged remove-cell"
    if not any("%load_ext d2lgpt" in cell.source for cell in cells[1:2]):
        yield "the second code cell must say %load_ext d2lgpt"


def listings_are_current(pair: Pair) -> Iterator[str]:
    """Set-up and listing cells hold what their sources hold."""
    for cell in pair.text.cells:
        if ("listing" in tags(cell)) != bool(cell.metadata.get("listing")):
            yield f"{label(pair.text, cell)}: needs both, the tag listing and listing: NAMES"
    for changed in fill(deepcopy(pair.text)):
        yield f"{changed}: differs from its source (make listings)"


def code_is_formatted(pair: Pair) -> Iterator[str]:
    """The text file is as ``format`` leaves it."""
    nb = deepcopy(pair.text)
    changed = tidy(nb)
    yield from (f"{one}: not formatted" for one in changed)
    if not changed and to_text(nb) != pair.md.read_text(encoding="utf-8"):
        yield "the layout of the text file is not the one that format writes"


def magics_match_tags(pair: Pair) -> Iterator[str]:
    """A cell of a backend says so twice: in its tag and in its magic."""
    for cell in code_cells(pair.notebook):
        magic = split_magic(cell.source)[0].strip().removeprefix("%%")
        if tags(cell) & set(BACKENDS) != {magic} & set(BACKENDS):
            yield f"{label(pair.notebook, cell)}: its magic and its tags name different backends"


def training_starts_afresh(pair: Pair) -> Iterator[str]:
    """A cell that trains makes model, data and optimizer, so that it prints the same run again."""
    trains = {"train_lm": 3}  # a function: how many of its first arguments its training changes
    for cell in code_cells(pair.text):
        functions, rest = _functions_and_rest(cell)
        found = set()
        for function in functions:
            parameters = [argument.arg for argument in function.args.args]
            changed = _changed(function, trains)
            if given := changed & set(parameters):
                trains[function.name] = max(map(parameters.index, given)) + 1
            found |= changed - _assigned(function) - given
        found |= _changed(rest, trains) - _assigned(rest)
        for name in sorted(found):
            yield f"{label(pair.text, cell)}: trains with {name}, which it does not make itself"


def cells_that_train(nb: NotebookNode) -> Iterator[NotebookNode]:
    """The cells that call ``train_lm``, or a function of the notebook that does."""
    train = {"train_lm"}
    for cell in code_cells(nb):
        functions, rest = _functions_and_rest(cell)
        train |= {function.name for function in functions if train & _calls(function).keys()}
        if train & _calls(rest).keys():
            yield cell


def _functions_and_rest(cell: NotebookNode) -> tuple[list[ast.FunctionDef], ast.Module]:
    """The functions that a cell defines, and its other statements."""
    tree = ast.parse(re.sub(r"^%.*", "", cell.source, flags=re.MULTILINE))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return functions, ast.Module([node for node in tree.body if node not in functions], [])


def _calls(code: ast.AST) -> dict[str, list[ast.Call]]:
    """The calls in some code, by the last part of the function's name."""
    calls = {}
    for node in ast.walk(code):
        if isinstance(node, ast.Call):
            calls.setdefault(ast.unparse(node.func).rpartition(".")[2], []).append(node)
    return calls


def _changed(code: ast.AST, trains: dict[str, int]) -> set[str]:
    """The names of what the calls of functions that train are given to change."""
    calls = _calls(code)
    given = [
        arg for name in trains for call in calls.get(name, []) for arg in call.args[: trains[name]]
    ]
    return {arg.id for arg in given if isinstance(arg, ast.Name)}


def _assigned(code: ast.AST) -> set[str]:
    names = [node for node in ast.walk(code) if isinstance(node, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def cells_were_executed(pair: Pair) -> Iterator[str]:
    """Every code cell ran, in order, and none raised an error that it does not announce."""
    cells = code_cells(pair.notebook)
    late = [cell for number, cell in enumerate(cells, 1) if cell.execution_count != number]
    if late:
        yield f"{label(pair.notebook, late[0])}: not executed in order (make notebooks)"
    for cell in cells:
        errors = [output.ename for output in cell.outputs if output.output_type == "error"]
        if errors and "raises-exception" not in tags(cell):
            yield f"{label(pair.notebook, cell)}: raised {errors[0]}"


def outputs_are_repeatable(pair: Pair) -> Iterator[str]:
    """No output goes to stderr or names the machine, which another machine would not repeat."""
    for cell in code_cells(pair.notebook):
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"{label(pair.notebook, cell)}: writes to stderr"
        texts = [output.get("text", "") for output in cell.outputs]
        texts += [d for o in cell.outputs for k, d in o.get("data", {}).items() if "text/" in k]
        for found in NOT_REPEATABLE.findall("\n".join(texts)):
            yield f"{label(pair.notebook, cell)}: its output names {found}"


def pictures_have_alt_text(pair: Pair) -> Iterator[str]:
    """A cell that shows a picture says in its metadata what can be seen in it."""
    for cell in code_cells(pair.notebook):
        kinds = " ".join(kind for output in cell.outputs for kind in output.get("data", {}))
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if "image/" in kinds and not alt.strip():
            yield f"{label(pair.notebook, cell)}: needs mystnb: {{image: {{alt: ...}}}}"


RULES = [
    files_agree,
    notebook_is_valid,
    code_stands_at_the_top_level,
    setup_comes_first,
    listings_are_current,
    code_is_formatted,
    magics_match_tags,
    training_starts_afresh,
    cells_were_executed,
    outputs_are_repeatable,
    pictures_have_alt_text,
]
