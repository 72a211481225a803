"""Let a screen reader read the bibliography as a list.

docutils writes a ``role="list"`` whose entries have the role ``doc-biblioentry``. That role is
deprecated and no longer counts as a list's item, so the list would be announced as empty.
"""


def name_entries(app, pagename, templatename, context, doctree):
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def setup(app):
    app.connect("html-page-context", name_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
