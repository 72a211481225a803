"""Outcomes and concepts: chapters say which they serve, one page defines them, links go both ways.

A chapter ends with a closed box::

    ```{serves}
    :outcomes: transformer-block, layer-normalization
    :concepts: transformer-block
    ```

and the page that lists the identifiers defines each of them once::

    ```{outcome} transformer-block
    You can write a transformer block …
    ```

The links from the box to the definitions, and from each definition back to the chapters, are made
from the same lines, so the two directions cannot disagree. In running text the roles ``{outcome}``
and ``{concept}`` link to a definition. An identifier that no page defines is a warning.
"""

from __future__ import annotations

import re
from typing import ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.domains import Domain, ObjType
from sphinx.roles import XRefRole
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from sphinx_design.shared import create_component

logger = logging.getLogger(__name__)

KINDS = {"outcome": "outcomes", "concept": "concepts"}
BOX_TITLE = "Outcomes and concepts"


def identifiers(argument: str | None) -> list[str]:
    """Split an option such as ``weight-tying, greedy-decoding`` at commas and spaces."""
    return [name for name in re.split(r"[,\s]+", argument or "") if name]


class ServesRole(XRefRole):
    """``{outcome}`name``` and ``{concept}`name```: a link to the definition."""

    def process_link(self, env, refnode, has_explicit_title, title, target):
        refnode["refdomain"] = ServesDomain.name
        return title, target


class ServesDirective(SphinxDirective):
    """The closed box at the end of a chapter."""

    option_spec: ClassVar = dict.fromkeys(KINDS.values(), identifiers)

    def run(self) -> list[nodes.Node]:
        if not any(self.options.values()):
            raise self.error("the box names no outcome and no concept")
        box = create_component(
            "dropdown",
            opened=False,
            type="dropdown",
            has_title=True,
            icon=None,
            chevron=None,
            container_classes=["sd-mb-3", "serves"],
            title_classes=[],
            body_classes=[],
            children=[nodes.rubric(BOX_TITLE, BOX_TITLE)],
        )
        domain = self.env.get_domain(ServesDomain.name)
        for kind, plural in KINDS.items():
            names = self.options.get(plural, [])
            for name in sorted({name for name in names if names.count(name) > 1}):
                self.warn(f"{kind} named twice: {name}")
            if names:
                domain.note_served(self.env.docname, kind, names)
                box += nodes.paragraph("", "", nodes.strong("", plural.capitalize()))
                box += nodes.bullet_list("", *(self.item(kind, name) for name in names))
        self.set_source_info(box)
        return [box]

    def item(self, kind: str, name: str) -> nodes.list_item:
        link = addnodes.pending_xref(
            "",
            nodes.literal("", name),
            refdomain=ServesDomain.name,
            reftype=kind,
            reftarget=name,
            refexplicit=False,
            refwarn=True,
            refdoc=self.env.docname,
        )
        self.set_source_info(link)
        return nodes.list_item("", nodes.paragraph("", "", link))

    def warn(self, message: str) -> None:
        logger.warning(message, location=self.get_location(), type="serves")


class DefinitionDirective(SphinxDirective):
    """``{outcome} name`` or ``{concept} name``: define one identifier, in the content."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        self.assert_has_content()
        kind, name = self.name, self.arguments[0]
        label = nodes.make_id(f"{kind}-{name}")
        term = nodes.term("", "", nodes.literal("", name), ids=[label], names=[label])
        self.state.document.note_explicit_target(term)
        self.env.get_domain(ServesDomain.name).note_definition(
            kind, name, self.env.docname, label, self.get_location()
        )
        definition = nodes.definition()
        self.state.nested_parse(self.content, self.content_offset, definition)
        definition += served_by(kind=kind, name=name)
        entries = nodes.definition_list(
            "",
            nodes.definition_list_item("", term, definition),
            classes=["glossary", "serves", "sd-mb-4"],
        )
        # Inside a glossary node Sphinx gives the term its "link to this" sign.
        return [addnodes.glossary("", entries, sorted=False)]


class served_by(nodes.General, nodes.Element):
    """Where the list of chapters goes; filled once every chapter has been read."""


class ServesDomain(Domain):
    """What is defined where, and which chapter serves what."""

    name = "serves"
    label = "Outcomes and concepts"
    object_types: ClassVar = {kind: ObjType(kind, kind) for kind in KINDS}
    dangling_warnings: ClassVar = {kind: f"unknown {kind}: %(target)s" for kind in KINDS}
    initial_data: ClassVar = {"defined": {}, "served": {}}
    data_version = 1

    @property
    def defined(self) -> dict[tuple[str, str], tuple[str, str]]:
        """(kind, name) → (document, anchor)."""
        return self.data["defined"]

    @property
    def served(self) -> dict[str, set[tuple[str, str]]]:
        """Document → the (kind, name) pairs that its boxes list."""
        return self.data["served"]

    def note_definition(self, kind, name, docname, label, location) -> None:
        if (kind, name) in self.defined:
            other = self.defined[kind, name][0]
            logger.warning(
                f"{kind} defined twice: {name} (also in {other})", location=location, type="serves"
            )
        self.defined[kind, name] = docname, label

    def note_served(self, docname, kind, names) -> None:
        self.served.setdefault(docname, set()).update((kind, name) for name in names)

    def chapters_serving(self, kind: str, name: str) -> list[str]:
        """Documents that serve an identifier, in the order of the book (files are numbered)."""
        return sorted(doc for doc, served in self.served.items() if (kind, name) in served)

    def clear_doc(self, docname) -> None:
        self.served.pop(docname, None)
        for key in [key for key, (doc, _) in self.defined.items() if doc == docname]:
            del self.defined[key]

    def merge_domaindata(self, docnames, otherdata) -> None:
        self.defined.update((k, v) for k, v in otherdata["defined"].items() if v[0] in docnames)
        self.served.update((k, v) for k, v in otherdata["served"].items() if k in docnames)

    def resolve_xref(self, env, fromdocname, builder, typ, target, node, contnode):
        if (typ, target) not in self.defined:
            return None
        docname, label = self.defined[typ, target]
        return make_refnode(builder, fromdocname, docname, label, contnode)

    def resolve_any_xref(self, env, fromdocname, builder, target, node, contnode):
        return []  # `any` would be ambiguous: outcomes and concepts share names

    def get_objects(self):
        for (kind, name), (docname, label) in self.defined.items():
            yield name, name, kind, docname, label, 1


def definition_pages_are_outdated(app, env, added, changed, removed) -> set[str]:
    """Write the page of definitions anew whenever any chapter may list something else."""
    pages = {docname for docname, _ in env.get_domain(ServesDomain.name).defined.values()}
    return pages if added or changed or removed else set()


def fill_served_by(app, doctree, docname) -> None:
    domain = app.env.get_domain(ServesDomain.name)
    for place in list(doctree.findall(served_by)):
        links = []
        for chapter in domain.chapters_serving(place["kind"], place["name"]):
            text = nodes.inline("", chapter_title(app.env, chapter))
            links += [nodes.Text(", "), make_refnode(app.builder, docname, chapter, "", text)]
        if links:
            links[0] = nodes.Text("Served by ")
            place.replace_self(nodes.paragraph("", "", *links, classes=["served-by"]))
        else:
            place.parent.remove(place)


def chapter_title(env, docname: str) -> str:
    """Title of a document, after its number where the table of contents numbers it."""
    number = env.toc_secnumbers.get(docname, {}).get("")
    title = env.titles[docname].astext()
    return f"{'.'.join(map(str, number))}.\N{NO-BREAK SPACE}{title}" if number else title


def setup(app):
    app.setup_extension("sphinx_design")
    app.add_domain(ServesDomain)
    app.add_directive("serves", ServesDirective)
    for kind in KINDS:
        app.add_directive(kind, DefinitionDirective)
        app.add_role(kind, ServesRole(warn_dangling=True, innernodeclass=nodes.inline))
    app.connect("env-get-outdated", definition_pages_are_outdated)
    app.connect("doctree-resolved", fill_served_by)
    return {
        "version": "1",
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
