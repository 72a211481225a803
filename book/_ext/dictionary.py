"""Draw the PyTorch ↔ Flax NNX dictionary from its data.

``{dictionary} dictionary.toml`` reads groups of rows and makes of them an index, a section for each
group and a section for each row: the two snippets side by side (one below the other on a narrow
screen), then the sentence on the difference, which is Markdown. The same file is read by
``tests/test_dictionary.py``, which runs the snippets and the check of every row, so that the page
shows nothing that was not proved.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

SIDES = {"pytorch": "PyTorch", "jax": "Flax NNX"}
STYLE = "dictionary.css"


class pair(nodes.container):
    """The two snippets of a row."""


class DictionaryDirective(SphinxDirective):
    """``{dictionary} FILE``: the whole page, at the place of a section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        relative, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        try:
            data = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise self.error(f"cannot read the dictionary {relative}: {error}") from error
        groups = data["group"]
        return [
            self.index(groups),
            self.section("prelude", "What every row assumes", self.pair(data["prelude"])),
            *(self.group(group) for group in groups),
        ]

    def index(self, groups: list[dict]) -> nodes.Node:
        """One line per group, with a link to each of its rows."""
        lines = []
        for group in groups:
            links = [
                nodes.reference("", row["topic"], internal=True, refid=anchor(row["id"]))
                for row in group["row"]
            ]
            lines += [
                nodes.definition_list_item(
                    "",
                    nodes.term("", group["title"]),
                    nodes.definition("", nodes.bullet_list("", *map(listed, links))),
                )
            ]
        return nodes.definition_list("", *lines, classes=["dictionary-index"])

    def group(self, group: dict) -> nodes.section:
        name = nodes.make_id(group["title"])
        return self.section(name, group["title"], *map(self.row, group["row"]))

    def row(self, row: dict) -> nodes.section:
        return self.section(row["id"], row["topic"], self.pair(row), *self.prose(row["difference"]))

    def section(self, name: str, title: str, *content: nodes.Node) -> nodes.section:
        label = anchor(name)
        section = nodes.section("", nodes.title("", title), *content, ids=[label], names=[label])
        self.set_source_info(section)
        self.state.document.note_explicit_target(section, section)
        return section

    def pair(self, row: dict) -> nodes.Node:
        columns = pair(classes=["dictionary-pair"])
        for side, label in SIDES.items():
            code = row[side].strip("\n")
            block = nodes.literal_block(code, code, language="python")
            name = nodes.paragraph("", label, classes=["dictionary-side"])
            columns += nodes.container("", name, block, classes=[f"dictionary-{side}"])
        return columns

    def prose(self, text: str) -> list[nodes.Node]:
        """Parse Markdown."""
        parsed = nodes.container()
        lines = StringList(text.strip().splitlines(), self.get_source_info()[0])
        self.state.nested_parse(lines, 0, parsed)
        return parsed.children


def anchor(name: str) -> str:
    return f"dictionary-{name}"


def listed(link: nodes.Node) -> nodes.list_item:
    return nodes.list_item("", nodes.paragraph("", "", link))


def add_style(app, pagename, templatename, context, doctree) -> None:
    """Only the page that shows a dictionary loads its style."""
    if doctree and any(doctree.findall(pair)):
        app.add_css_file(STYLE)


def setup(app):
    visit = (lambda self, node: self.visit_container(node),)
    depart = (lambda self, node: self.depart_container(node),)
    app.add_node(pair, html=visit + depart)
    app.add_directive("dictionary", DictionaryDirective)
    app.connect("html-page-context", add_style)
    return {
        "version": "1",
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
