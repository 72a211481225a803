"""Two namespaces in one notebook: the cell magics `%%pytorch` and `%%jax`.

Both backends use the same names, so that they can be compared line by line; in one namespace the
second `model` would overwrite the first. A cell that starts with `%%pytorch` or `%%jax` runs in a
namespace of its own. It also sees the shared names, those of cells without a magic. Any cell can
look into a backend with `PyTorch.model` or `JAX.model`.
"""

import ast
import os
import sys


class Backend:
    """The names that the cells of one backend have defined, as attributes."""

    def __init__(self, magic: str, label: str, shared: dict):
        # `_names` is what its cells see; `_copies` of it came from the shared names.
        vars(self).update(_magic=magic, _label=label, _shared=shared, _names={}, _copies={})

    def __repr__(self) -> str:
        return f"<{self._label}: {', '.join(dir(self)) or 'nothing defined yet'}>"

    def __dir__(self):
        return [
            k for k, v in self._names.items() if k not in self._copies or self._copies[k] is not v
        ]

    def __getattr__(self, name: str):
        if name.startswith("__") or name not in dir(self):
            raise AttributeError(
                f"no %%{self._magic} cell has defined {name!r} yet: run the one that does"
            )
        self._follow()  # what is taken from here may be a function that uses shared names
        return self._names[name]

    def __setattr__(self, name: str, value) -> None:
        raise AttributeError(
            f"{self._label}.{name} can only be read: set {name} in a %%{self._magic} cell"
        )

    def _follow(self) -> None:
        """Copy the shared names as they are now, except where a name of its own comes first."""
        own = dir(self)
        for name in [k for k in self._names if k not in own]:
            del self._names[name]
        vars(self)["_copies"] = {k: v for k, v in self._shared.items() if k not in own}
        self._names.update(self._copies)

    def _run(self, cell: str, shell) -> None:
        """Run the code of a cell in this namespace and show its last expression."""
        __tracebackhide__ = "__ipython_bottom__"  # a traceback starts in the reader's code
        self._follow()
        code = shell.transform_cell(cell)
        number = len(shell.history_manager.input_hist_parsed) - 1  # execution_count may be ahead
        filename = shell.compile.cache(code, number)
        tree = ast.parse(code, filename)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        flags = shell.compile.flags  # `from __future__ import ...` of earlier cells
        exec(compile(tree, filename, "exec", flags), self._names)
        for name in _bound(tree):
            self._copies.pop(name, None)
        if last is not None:
            code_of_last = compile(ast.Expression(last.value), filename, "eval", flags)
            value = eval(code_of_last, self._names)
            if not code.rstrip().endswith(";"):  # which silences it, as anywhere in IPython
                sys.displayhook(value)


def _bound(tree: ast.Module) -> set[str]:
    """The names that are assigned or imported outside any branch or loop.

    A name that refers to another object than before shows by itself. But `n = 1` gives a backend
    its own `n` even if the shared `n` is 1, and so does importing a module that is shared.
    """
    names = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            found = (node for target in statement.targets for node in ast.walk(target))
            names |= {
                n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names |= {n.asname or n.name.partition(".")[0] for n in statement.names}
    return names


def load(shell) -> None:
    """Register the magics with an IPython shell; loading again keeps what cells have defined."""
    # On some GPUs JAX multiplies float32 matrices with ten bits of precision unless told
    # otherwise, PyTorch with all 24: no parity cell would hold. JAX reads this when it starts.
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    for magic, label in (("pytorch", "PyTorch"), ("jax", "JAX")):
        backend = shell.user_ns.get(label)
        if type(backend).__name__ != "Backend":
            backend = Backend(magic, label, shell.user_ns)
            shell.push({label: backend})
        shell.register_magic_function(
            _cell_magic(backend, shell), magic_kind="cell", magic_name=magic
        )


def _cell_magic(backend: Backend, shell):
    def run_cell(line: str, cell: str) -> None:
        __tracebackhide__ = "__ipython_bottom__"
        if line.strip():
            raise ValueError(f"%%{backend._magic} stands on a line of its own, without {line!r}")
        backend._run(cell, shell)

    return run_cell
