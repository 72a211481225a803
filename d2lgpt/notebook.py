"""Two namespaces in one notebook: the cell magics `%%pytorch` and `%%jax`.

Both backends use the same names, so that they can be compared line by line; in one namespace the
second `model` would overwrite the first. A cell that starts with `%%pytorch` or `%%jax` runs in a
namespace of its own. It also sees the shared names, those of cells without a magic. Any cell can
look into a backend with `PyTorch.model` or `JAX.model`.
"""

import ast
import os
import sys
import types


class Backend:
    """The names that the cells of one backend have defined, as attributes."""

    def __init__(self, magic: str, label: str):
        self._magic, self._label = magic, label
        self._module = types.ModuleType("__main__")
        self._own: set[str] = set()

    def __repr__(self) -> str:
        return f"<{self._label}: {', '.join(sorted(self._own)) or 'nothing defined yet'}>"

    def __dir__(self):
        return sorted(self._own)

    def __getattr__(self, name: str):
        if name.startswith("__") or name not in self._own:
            raise AttributeError(
                f"no %%{self._magic} cell has defined {name!r} yet: run the one that does"
            )
        return vars(self._module)[name]

    def run(self, cell: str, shell) -> None:
        """Run the code of a cell in this namespace and show its last expression."""
        __tracebackhide__ = "__ipython_bottom__"  # a traceback starts in the reader's code
        names = vars(self._module)
        shared = {k: v for k, v in shell.user_ns.items() if k not in self._own}
        for name in [k for k in names if k not in self._own and k not in shared]:
            del names[name]  # deleted from the shared names since
        names.update(shared)
        code = shell.transform_cell(cell)
        filename = shell.compile.cache(code, shell.execution_count)
        tree = ast.parse(code, filename)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        flags = shell.compile.flags  # `from __future__ import ...` of earlier cells
        try:
            exec(compile(tree, filename, "exec", flags), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), filename, "eval", flags), names)
                if not code.rstrip().endswith(";"):  # which silences it, as anywhere in IPython
                    sys.displayhook(value)
        finally:
            self._own.update(k for k in names if k not in shared or names[k] is not shared[k])
            self._own.intersection_update(names)


def load(shell) -> None:
    """Register the magics with an IPython shell; loading again keeps what cells have defined."""
    # On some GPUs JAX multiplies float32 matrices with ten bits of precision unless told
    # otherwise, PyTorch with all 24: no parity cell would hold. JAX reads this when it starts.
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    for magic, label in (("pytorch", "PyTorch"), ("jax", "JAX")):
        backend = shell.user_ns.get(label)
        if type(backend).__name__ != "Backend":
            backend = Backend(magic, label)
            shell.push({label: backend})
        shell.register_magic_function(
            _cell_magic(backend, shell), magic_kind="cell", magic_name=magic
        )


def _cell_magic(backend: Backend, shell):
    def run_cell(line: str, cell: str) -> None:
        __tracebackhide__ = "__ipython_bottom__"
        if line.strip():
            raise ValueError(f"%%{backend._magic} stands on a line of its own, without {line!r}")
        backend.run(cell, shell)

    return run_cell
