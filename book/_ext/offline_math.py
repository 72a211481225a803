"""Serve MathJax from the book itself, so that formulas need no network.

Sphinx would load MathJax from a content-delivery network. The wheel of sphinx-mathjax-offline ships
a copy, but as an extension it adds all 24 MB to a build; a page needs the 2 MB named in ``NEEDED``:
the program, its fonts, and the TeX packages it loads when a formula first uses them.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("tex-chtml.js", "output/chtml/fonts", "input/tex/extensions")


def mathjax_folder() -> Path:
    """Return the folder of MathJax in the installed wheel, without importing the wheel's code."""
    spec = find_spec("sphinx-mathjax-offline")
    if spec is None:
        raise ModuleNotFoundError("offline_math needs: pip install sphinx-mathjax-offline")
    return Path(spec.origin).parent / "static" / "mathjax"


def copy_mathjax(app, exception):
    if exception is not None or app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static" / "mathjax"
    for name in NEEDED:
        source = mathjax_folder() / name
        if source.is_dir():
            shutil.copytree(source, target / name, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)


def use_local_copy(app, config):
    # The path is relative to _static/.
    config.mathjax_path = "mathjax/tex-chtml.js"


def setup(app):
    app.connect("config-inited", use_local_copy)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
