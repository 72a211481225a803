"""Show adjacent notebook cells of the two backends as one synchronized tab-set.

sphinx-design makes tabs from directives, but an executed notebook cell is not a directive, and
myst-nb drops a ``{code-cell}`` nested in a ``{tab-item}``. So the tabs are made from the document
tree, once the notebook has been read:

- A code cell tagged ``pytorch`` or ``jax`` joins its neighbours in a tab-set. Anything else between
  two cells (prose, a heading, an untagged cell) ends the set, and so does the return of an earlier
  backend: p j p j makes two sets, p p j j makes one with two cells in each tab.
- In the notebook such a cell starts with the magic ``%%pytorch`` or ``%%jax``, which sends it to
  its backend's namespace. The page says the same with a tab, so the line is taken out.
- A cell tagged for both backends, a cell without a counterpart, and a tag that disagrees with the
  magic are warnings, which ``-W`` turns into errors: a reader must never find one backend missing.

The choice of a tab is kept across pages by sphinx-design's own script. The sync group is named
``code``, therefore ``?code=jax`` at the end of an address opens a page in JAX.
"""

from collections import Counter

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx_design.shared import create_component

logger = logging.getLogger(__name__)


class BackendTabs(SphinxTransform):
    """Group the tagged cells of one document."""

    # After sphinx-exercise has moved the cells of an exercise into its node (10), and before the
    # document is pickled. sphinx-design's post-transform then writes the HTML of each tab-set.
    default_priority = 250

    def apply(self, **kwargs):
        number_exercise_bodies(self.document)
        backends = {}  # cell -> its backend, for tagged cells only
        for cell in list(self.document.findall(is_code_cell)):
            tags = cell["cell_metadata"].get("tags", [])
            found = [backend for backend in self.config.backend_tabs if backend in tags]
            if len(found) > 1:
                self.warn(cell, f"is tagged for several backends: {', '.join(found)}")
                continue
            backend = found[0] if found else None
            self.strip_magic(cell, backend)
            if backend:
                backends[cell] = backend
        for parent in dict.fromkeys(cell.parent for cell in backends):
            parent[:] = self.grouped(parent.children, backends)

    def strip_magic(self, cell, backend):
        """Take the backend's magic out of the cell's source, and hold it to the tag."""
        source = next(iter(cell.findall(is_cell_source)), None)
        if source is None:  # the page shows only the output (tag remove-input)
            return
        block = next(iter(source.findall(nodes.literal_block)))
        first, _, rest = block.astext().partition("\n")
        magic = first[2:].strip() if first.startswith("%%") else None
        if backend and magic != backend:
            self.warn(cell, f"is tagged {backend} but does not start with %%{backend}")
        if magic in self.config.backend_tabs:
            if not backend:
                self.warn(cell, f"starts with %%{magic} but has no tag {magic}")
            # Sphinx highlights a block only where its text and its raw source are the same.
            block.rawsource = rest
            block[:] = [nodes.Text(rest)]

    def grouped(self, children, backends):
        """Return the children of one node, each run of tagged cells replaced by a tab-set."""
        result, run = [], []
        for child in children:
            backend = backends.get(child)
            earlier = [backends[cell] for cell in run]
            returns = backend in earlier and backend != earlier[-1]
            if run and (returns or not (backend or isinstance(child, nodes.comment))):
                result.append(self.tab_set(run, backends))
                run = []
            (run if backend else result).append(child)
        if run:
            result.append(self.tab_set(run, backends))
        return result

    def tab_set(self, run, backends):
        """Build what ``{tab-set}`` would have built, with the cells of the run as content."""
        tab_set = create_component("tab-set", ["sd-tab-set", "backend-tabs"])
        tab_set.source, tab_set.line = run[0].source, run[0].line
        for backend, label in self.config.backend_tabs.items():  # one order on every page
            cells = [cell for cell in run if backends[cell] == backend]
            if not cells:
                self.warn(run[0], f"has no adjacent counterpart tagged {backend}")
                continue
            title = nodes.rubric(label, label, classes=["sd-tab-label"])
            title["sync_group"], title["sync_id"] = self.config.backend_tabs_group, backend
            content = create_component("tab-content", ["sd-tab-content"], children=cells)
            tab_set += create_component(
                "tab-item", ["sd-tab-item"], children=[title, content], selected=False
            )
            tab_set[-1].source, tab_set[-1].line = cells[0].source, cells[0].line
        return tab_set

    def warn(self, cell, message):
        number = cell["cell_index"] + 1
        logger.warning(f"cell {number} {message}", location=cell, type="backend_tabs")


def is_code_cell(node):
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def is_cell_source(node):
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code_source"


def number_exercise_bodies(document):
    """Make ids unique: sphinx-exercise names the body of every exercise and solution alike."""
    count = Counter()
    for section in document.findall(nodes.section):
        if section["ids"] in (["exercise-content"], ["solution-content"]):
            name = section["ids"][0]
            count[name] += 1
            section["ids"] = [f"{name}-{count[name]}"]


def setup(app):
    app.setup_extension("sphinx_design")
    app.add_config_value("backend_tabs", {"pytorch": "PyTorch", "jax": "JAX"}, "env")
    app.add_config_value("backend_tabs_group", "code", "env")
    app.add_transform(BackendTabs)
    # Raise env_version with every change here: Sphinx then reads all pages anew.
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
