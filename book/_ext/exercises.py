"""Exercises on the page: closed hints, a link to the solution, and the list of them all.

The hints are those of `d2lgpt.exercises`, so that `hint("7.1")` and the page say the same. They
open one at a time: the second is inside the first. ``{exercise-list} exercises.toml`` draws a table
for each chapter from a file that says what an exercise trains and what it costs.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from docutils import nodes
from ledger import table
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective
from sphinx_exercise.nodes import is_exercise_node

from d2lgpt.exercises.desk import exercises

STYLE = "exercises.css"
COLUMNS = ("Exercise", "Kind", "What it trains", "Time", "GPU")


class hint_box(nodes.General, nodes.Element):
    """A hint behind a line to click on; holds the text, and the next hint if there is one."""


class HintsAndLinks(SphinxTransform):
    """End each exercise with its hints and the link to its solution."""

    default_priority = 255  # after the ids of the exercises' bodies have been made unique

    def apply(self) -> None:
        for node in self.document.findall(is_exercise_node):
            number = node["label"].removeprefix("exercise-").replace("-", ".")
            body = next(node.findall(nodes.section))
            parts = [one for one in exercises().values() if one.id.rstrip("abcd") == number]
            body += [box for part in parts if (box := hints(part, number))]
            target = f"solution-{number.replace('.', '-')}"
            link = reference("ref", target, f"Solution to {number}", self.env.docname)
            body += nodes.paragraph("", "", link, classes=["exercise-solution"])


def hints(part, number: str) -> hint_box | None:
    """The hints of one exercise or part, each inside the one before."""
    of = f" for ({part.id.removeprefix(number)})" if part.id != number else ""
    inner = None
    for count, text in reversed(list(enumerate(part.hints, 1))):
        which = f" {count}" if len(part.hints) > 1 else ""
        inner = hint_box("", paragraph(text), *([inner] if inner else []), title=f"Hint{which}{of}")
    return inner


def paragraph(text: str) -> nodes.paragraph:
    """A paragraph of plain text with `code` between backticks."""
    kinds = (nodes.Text, lambda code: nodes.literal("", code))
    return nodes.paragraph(
        "", "", *(kinds[i % 2](piece) for i, piece in enumerate(text.split("`")) if piece)
    )


def reference(kind: str, target: str, text: str | None, docname: str) -> addnodes.pending_xref:
    """A link to a label ("ref") or a document ("doc") of the book; a missing one is a warning."""
    inner = nodes.inline("", text or target)
    return addnodes.pending_xref(
        "",
        inner,
        refdomain="std",
        reftype=kind,
        reftarget=target,
        refexplicit=text is not None,
        refwarn=True,
        refdoc=docname,
    )


class ExerciseList(SphinxDirective):
    """``{exercise-list} FILE``: a section with a table for each chapter."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        relative, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        listed = tomllib.loads(Path(path).read_text("utf-8"))["exercise"]
        chapters = dict.fromkeys(one["id"].partition(".")[0] for one in listed)
        return [
            self.section(n, [one for one in listed if one["id"].partition(".")[0] == n])
            for n in chapters
        ]

    def section(self, chapter: str, listed: list[dict]) -> nodes.section:
        label = f"exercises-of-chapter-{chapter}"
        section = nodes.section("", nodes.title("", f"Chapter {chapter}"), ids=[label])
        section["names"] = [label]
        self.set_source_info(section)
        self.state.document.note_explicit_target(section, section)
        prefix = f"notebooks/{int(chapter):02d}_"
        docname = next(name for name in sorted(self.env.found_docs) if name.startswith(prefix))
        title = reference("doc", f"/{docname}", None, self.env.docname)
        section += nodes.paragraph("", "", title)
        section += table(COLUMNS, [self.row(one) for one in listed], "exercise-list")
        return section

    def row(self, one: dict) -> list[list[nodes.Node]]:
        label = one["id"].replace(".", "-")
        star = " ★" if one.get("hard") else ""
        docname = self.env.docname
        exercise = reference("ref", f"exercise-{label}", f"{one['id']} {one['title']}", docname)
        solution = reference("ref", f"solution-{label}", "solution", docname)
        first = nodes.paragraph("", "", exercise, nodes.Text(star))
        links = nodes.paragraph("", "", solution, classes=["ledger-note"])
        texts = (one["kind"], one["trains"], f"{one['minutes']} min", one["gpu"])
        return [[first, links], *([nodes.paragraph("", text)] for text in texts)]


def add_style(app, pagename, templatename, context, doctree) -> None:
    """Only the page with the list loads its style."""
    if pagename == "book/exercises":
        app.add_css_file(STYLE)


def visit_hint(self, node) -> None:
    self.body.append(f'<details class="exercise-hint"><summary>{node["title"]}</summary>\n')


def depart_hint(self, node) -> None:
    self.body.append("</details>\n")


def visit_hint_in_text(self, node) -> None:
    node.insert(0, nodes.paragraph("", "", nodes.strong("", f"{node['title']}.")))


def depart_hint_in_text(self, node) -> None:
    pass


def setup(app):
    app.setup_extension("sphinx_exercise")
    elsewhere = (visit_hint_in_text, depart_hint_in_text)
    app.add_node(hint_box, html=(visit_hint, depart_hint), latex=elsewhere, text=elsewhere)
    app.connect("html-page-context", add_style)
    app.add_transform(HintsAndLinks)
    app.add_directive("exercise-list", ExerciseList)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
