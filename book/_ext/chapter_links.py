"""Under the title of each notebook: open it in Colab, or download it.

The theme hides both in menus of its header. The addresses are made from what `_config.yml` says of
the repository.
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform


class ChapterLinks(SphinxTransform):
    """Insert the two links after the title of a page that is made from a notebook."""

    default_priority = 400

    def apply(self, **kwargs):
        docname = self.env.docname
        if not self.env.doc2path(docname).endswith(".ipynb"):
            return
        title = next(iter(self.document.findall(nodes.title)), None)
        if title is None:
            return
        options = self.config.html_theme_options
        repository = options["repository_url"].removeprefix("https://github.com/")
        branch = options["repository_branch"]
        colab = options["launch_buttons"]["colab_url"].rstrip("/")
        copy = "../" * docname.count("/") + f"_sources/{docname}.ipynb"
        notebook = f"{colab}/github/{repository}/blob/{branch}/{docname}.ipynb"
        links = (
            f'<p class="chapter-links"><a href="{notebook}">Open in Colab</a> '
            f'<a href="{copy}" download>Download the notebook</a></p>'
        )
        place = title.parent
        only = addnodes.only("", nodes.raw("", links, format="html"), expr="html")
        place.insert(place.index(title) + 1, only)


def setup(app):
    app.add_transform(ChapterLinks)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
