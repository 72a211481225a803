"""The reproduction ledger: what was published, what this book found, and where to see it.

A cell that prints published figures says so in its metadata, ``facts: ln.mean ln.var``; this gives
the place an anchor. ``{ledger} facts.json ledger.json`` draws a table for each chapter with a row
for each fact, linked to the cell of that chapter. A fact that no cell claims is a warning, and so
is a cell that claims what is no fact of its chapter.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

logger = logging.getLogger(__name__)

BACKENDS = {"torch": "PyTorch", "jax": "Flax NNX"}
STYLE = "ledger.css"
COLUMNS = ("What", "Published", *BACKENDS.values())
SIGNS = {"reproduced": "✓ reproduced", "not reproduced": "✗ not reproduced"}


class FactAnchors(SphinxTransform):
    """Put an anchor before each cell, or set of tabs, that prints published figures."""

    default_priority = 260  # after the cells have been gathered in tabs

    def apply(self) -> None:
        anchors = facts_of(self.env)
        for cell in list(self.document.findall(nodes.container)):
            names = str(cell.get("cell_metadata", {}).get("facts", "")).split()
            place = cell
            while isinstance(place.parent, nodes.container):
                place = place.parent
            for name in names:
                key = name, self.env.docname
                if key not in anchors:
                    anchors[key] = label = nodes.make_id(f"fact-{name}")
                    target = nodes.target("", "", ids=[label])
                    place.parent.insert(place.parent.index(place), target)


def facts_of(env) -> dict[tuple[str, str], str]:
    """(fact, document) → anchor."""
    if not hasattr(env, "d2lgpt_facts"):
        env.d2lgpt_facts = {}
    return env.d2lgpt_facts


def ledgers_of(env) -> set[str]:
    """The documents that show a ledger."""
    if not hasattr(env, "d2lgpt_ledgers"):
        env.d2lgpt_ledgers = set()
    return env.d2lgpt_ledgers


def purge(app, env, docname: str) -> None:
    ledgers_of(env).discard(docname)
    for key in [key for key in facts_of(env) if key[1] == docname]:
        del facts_of(env)[key]


def merge(app, env, docnames, other) -> None:
    ledgers_of(env).update(ledgers_of(other) & set(docnames))
    facts_of(env).update((k, v) for k, v in facts_of(other).items() if k[1] in docnames)


class fact_link(nodes.General, nodes.Element):
    """The name of a figure; becomes a link once every chapter has been read."""


class LedgerDirective(SphinxDirective):
    """``{ledger} FACTS LEDGER``: a section with a table for each chapter."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        ledgers_of(self.env).add(self.env.docname)
        facts, ledger = (self.load(argument) for argument in self.arguments)
        if missing := {fact["id"] for fact in facts} ^ set(ledger):
            raise self.error(f"facts and ledger do not fit: {', '.join(sorted(missing))}")
        chapters = sorted({fact["chapter"] for fact in facts})
        states = Counter(entry["status"] for row in ledger.values() for entry in row.values())
        total = ", ".join(f"{count} {status}" for status, count in states.items())
        return [
            nodes.paragraph("", f"All chapters together, both backends counted: {total}."),
            *(
                self.section(n, [fact for fact in facts if fact["chapter"] == n], ledger)
                for n in chapters
            ),
        ]

    def load(self, argument: str):
        relative, path = self.env.relfn2path(argument)
        self.env.note_dependency(relative)
        try:
            return json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise self.error(f"cannot read {relative}: {error}") from error

    def section(self, chapter: int, facts: list[dict], ledger: dict) -> nodes.section:
        label = f"ledger-chapter-{chapter}"
        section = nodes.section("", nodes.title("", f"Chapter {chapter}"), ids=[label])
        section["names"] = [label]
        self.set_source_info(section)
        self.state.document.note_explicit_target(section, section)
        body = [self.row(fact, ledger[fact["id"]]) for fact in facts]
        section += table(COLUMNS, body)
        return section

    def row(self, fact: dict, entries: dict) -> list[list[nodes.Node]]:
        link = fact_link(fact=fact["id"], chapter=fact["chapter"], text=fact["what"])
        self.set_source_info(link)
        what = [nodes.paragraph("", "", link)]
        if note := fact.get("note"):
            what.append(nodes.paragraph("", note, classes=["ledger-note"]))
        published = [nodes.paragraph("", "", shown(fact["value"]))]
        if tolerance := tolerance_of(fact):
            published.append(nodes.paragraph("", tolerance, classes=["ledger-note"]))
        return [what, published, *(found(entries.get(name)) for name in BACKENDS)]


def table(columns, body, name: str = "ledger") -> nodes.table:
    group = nodes.tgroup("", cols=len(columns))
    group += [nodes.colspec(colwidth=1) for _ in columns]
    heads = [nodes.entry("", nodes.paragraph("", text)) for text in columns]
    group += nodes.thead("", nodes.row("", *heads))
    rows = [nodes.row("", *(nodes.entry("", *cell) for cell in row)) for row in body]
    group += nodes.tbody("", *rows)
    return nodes.table("", group, classes=[name])


def found(entry: dict | None) -> list[nodes.Node]:
    """What a backend gave: the value and the verdict, or why it was not run."""
    if entry is None:
        return [nodes.paragraph("", "published for the other backend", classes=["ledger-note"])]
    status = entry["status"]
    if "value" not in entry:
        text = f"{status}: {entry['why']}"
        return [nodes.paragraph("", text, classes=["ledger-not-run"])]
    name = status.replace(" ", "-")
    return [
        nodes.paragraph("", "", shown(entry["value"])),
        nodes.paragraph("", SIGNS[status], classes=[f"ledger-{name}"]),
    ]


def shown(value) -> nodes.Node:
    """A value as the reader sees it: thousands with commas, texts in quotes."""
    return nodes.literal("", text_of(value))


def text_of(value) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)  # token ids are no quantities
    return f"{value:.7g}"


def tolerance_of(fact: dict) -> str:
    parts = [f"± {fact['abs']:g}"] if "abs" in fact else []
    parts += [f"± {fact['rel'] * 100:g} %"] if "rel" in fact else []
    return " and ".join(parts)


def link_facts(app, doctree, docname) -> None:
    anchors = facts_of(app.env)
    for link in list(doctree.findall(fact_link)):
        chapter = f"notebooks/{link['chapter']:02d}_"
        places = [d for fact, d in anchors if fact == link["fact"] and d.startswith(chapter)]
        text = nodes.inline("", link["text"])
        if places:
            anchor = anchors[link["fact"], places[0]]
            text = make_refnode(app.builder, docname, places[0], anchor, text)
        else:
            logger.warning(
                f"no cell of chapter {link['chapter']} has {link['fact']} in its metadata `facts`",
                location=link,
                type="ledger",
            )
        link.replace_self(text)


def ledgers_are_outdated(app, env, added, changed, removed) -> set[str]:
    """Any chapter may have moved a figure: draw the ledger anew with its links."""
    return ledgers_of(env) - removed if added or changed or removed else set()


def add_style(app, pagename, templatename, context, doctree) -> None:
    """Only the page that shows a ledger loads its style."""
    if pagename in ledgers_of(app.env):
        app.add_css_file(STYLE)


def setup(app):
    app.connect("html-page-context", add_style)
    app.add_transform(FactAnchors)
    app.add_directive("ledger", LedgerDirective)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("env-get-outdated", ledgers_are_outdated)
    app.connect("doctree-resolved", link_facts)
    return {
        "version": "1",
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
