"""Statements, answer cells, checks, solutions and the list of all exercises tell the same story."""

import re
import sys
import tomllib
from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book/_scripts"))

from notebook_pair import BACKENDS, Pair, code_cells, tags

from d2lgpt.exercises.desk import exercises

CHAPTERS = sorted(path.stem for path in ROOT.glob("notebooks/*.md"))
LISTED = tomllib.loads((ROOT / "book/exercises.toml").read_text("utf-8"))["exercise"]
STATEMENT = re.compile(
    r"^```\{exercise\} ([^\n]+)\n:label: exercise-(\d+)-(\d+)\n\n(.+?)^```$", re.M | re.S
)
KIND = re.compile(r"\*(Pen and paper|Code|Extended)(?:\.\*|, hard\* (★)\.) ")
CHECK = re.compile(r'^ *check\(\s*"([\d.a-d]+)"', re.M)


def parts_of(number: str) -> list[str]:
    """The ids under which an exercise is checked: itself, or its parts."""
    return [id for id in exercises() if id.rstrip("abcd") == number]


def statements(chapter: str) -> list[tuple[str, str, str]]:
    """(number, title, text) of each exercise of a chapter."""
    text = (ROOT / f"notebooks/{chapter}.md").read_text("utf-8")
    return [(f"{n}.{m}", title, body) for title, n, m, body in STATEMENT.findall(text)]


def test_each_exercise_has_checks_and_each_check_a_statement():
    stated = [number for chapter in CHAPTERS for number, _, _ in statements(chapter)]
    assert [one["id"] for one in LISTED] == stated
    assert [number for number, _ in groupby(id.rstrip("abcd") for id in exercises())] == stated


def test_the_list_says_what_the_statements_say():
    stated = {n: (title, body) for c in CHAPTERS for n, title, body in statements(c)}
    for one in LISTED:
        title, body = stated[one["id"]]
        kind, star = KIND.match(body).groups()
        assert one["title"] == title
        assert one["kind"] == kind.lower()
        assert one.get("hard", False) == bool(star)
        assert one["gpu"] in ("no", "helps")


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_parts_of_a_statement_are_those_that_are_checked(chapter):
    for number, _, body in statements(chapter):
        lettered = re.findall(r"^(?:\*.*?\* ?★?\.? )?\(([a-d])\) ", body, re.M)
        checked = [id.removeprefix(number) for id in parts_of(number)]
        assert checked == (lettered or [""]), number


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_an_answer_cell_follows_each_statement(chapter):
    """It asks `check` for each part, in order, and says that nothing has been answered yet."""
    cells = Pair(ROOT / "notebooks", chapter).notebook.cells
    place = {}
    for i, cell in enumerate(cells):
        if found := re.search(r":label: exercise-(\d+)-(\d+)", cell.source):
            place[f"{found[1]}.{found[2]}"] = i
    assert list(place) == [number for number, _, _ in statements(chapter)]
    for number, i in place.items():
        cell = cells[i + 1]
        assert "answer" in tags(cell), number
        assert CHECK.findall(cell.source) == parts_of(number)
        printed = "".join(output.get("text", "") for output in cell.outputs)
        expected = [
            f"{id}: not answered yet. Hand in {exercises()[id].expects}." for id in parts_of(number)
        ]
        assert printed.splitlines() == expected


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_solution_ends_in_a_check_that_passes(chapter):
    pair = Pair(ROOT / "notebooks/solutions", chapter)
    sections = re.split(r"^\(solution-(\d+-\d+)\)=$", text_of(pair), flags=re.M)
    assert sections[1::2] == [n.replace(".", "-") for n, _, _ in statements(chapter)]
    for label, section in zip(sections[1::2], sections[2::2], strict=True):
        number = label.replace("-", ".")
        assert f"{{ref}}`exercise-{label}`" in section
        said = re.findall(r"^([\d.]+[a-d]?): (right|not yet|not answered|this ex)", section, re.M)
        assert {verdict for _, verdict in said} == {"right"}, number
        assert list(dict.fromkeys(id for id, _ in said)) == parts_of(number)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_solutions_are_in_both_backends(chapter):
    cells = code_cells(Pair(ROOT / "notebooks/solutions", chapter).text)
    for backend in BACKENDS:
        assert sum(backend in tags(cell) for cell in cells) >= 2
    solved = [
        (c.metadata["solves"], tags(c) & set(BACKENDS)) for c in cells if "solves" in c.metadata
    ]
    for what, backends in solved:
        others = set().union(*(b for w, b in solved if w == what))
        assert backends <= others and others in (set(), set(BACKENDS)), what


def text_of(pair: Pair) -> str:
    """What a reader of the notebook sees: the prose, and what the cells printed."""
    parts = []
    for cell in pair.notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif "setup" not in tags(cell):
            parts += [output.get("text", "") for output in cell.outputs]
    return "\n".join(parts)
