"""The d2l package from PyPI, behind `d2lgpt.torch` and `d2lgpt.jax`.

d2l serves a whole book, and its modules import at their top what single chapters of it use:
torchvision, pandas, TensorFlow. Nothing here uses those, Google Colab's TensorFlow alone takes ten
seconds to load, and elsewhere they are not installed. So when d2l says `import torchvision`, it is
handed a module that loads torchvision at the first use, if that ever comes. Only d2l sees these
modules: `sys.modules` and everyone else's imports stay as they are.
"""

import builtins
import random
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pkgutil import iter_modules, resolve_name
from types import ModuleType

INSTALL = "pip install --no-deps d2l==1.0.3"  # its requirements name releases of 2022

_LATER = {"pandas", "scipy", "tensorflow", "tensorflow_datasets", "torchvision"}


class _Later(ModuleType):
    """What d2l imports and may never use: loaded at the first use."""

    def __getattr__(self, name: str):
        if name.startswith("__"):  # asked by tools that look at any module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(resolve_name(self.__name__), name)

    def __call__(self, *args, **kwargs):
        return resolve_name(self.__name__)(*args, **kwargs)  # from scipy.spatial import function


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    """What the `import` statement does in d2l."""
    if name == "random" and not level:
        return _random()
    if level or name.partition(".")[0] not in _LATER:
        return builtins.__import__(name, globals, locals, fromlist, level)
    module = _Later(name)
    for attribute in fromlist or ():
        setattr(module, attribute, _Later(f"{name}.{attribute}"))
    return module


def _random() -> ModuleType:
    """`random` for d2l, which says `randint(0, 1e6)`: an error since Python 3.12."""
    module = ModuleType("random")
    vars(module).update(vars(random), randint=lambda a, b: random.randint(int(a), int(b)))
    return module


def load_d2l(name: str) -> ModuleType:
    """The module `d2l.torch` or `d2l.jax`, imported at the first call.

    Raises:
        ImportError: if d2l, or something that it does use, is not installed.
    """
    if name in sys.modules:
        return sys.modules[name]
    try:
        package, spec = import_module("d2l"), find_spec(name)
    except ModuleNotFoundError:
        raise ImportError(f"the package d2l is not installed: {INSTALL}") from None
    module = module_from_spec(spec)
    module.__builtins__ = {**vars(builtins), "__import__": _import}
    sys.modules[name] = module
    state = random.getstate()  # d2l.jax draws a number as it is imported
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        del sys.modules[name]
        raise ImportError(f"d2l needs {error.name!r}, which is not installed") from None
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        random.setstate(state)
    setattr(package, name.rpartition(".")[2], module)
    return module


def fall_through(package: str, name: str) -> tuple[Callable, Callable]:
    """`__getattr__` and `__dir__` for a package that has what the module `name` of d2l has as well.

    They are asked for what the package does not define itself. Names with an underscore in front
    and sub-modules of the package that are not imported yet are never looked for in d2l.
    """
    modules = {module.name for module in iter_modules(sys.modules[package].__path__)}

    def __getattr__(attribute: str):
        hidden = attribute.startswith("_") or attribute in modules
        if not hidden and hasattr(d2l := load_d2l(name), attribute):
            return getattr(d2l, attribute)
        raise AttributeError(f"module {package!r} has no attribute {attribute!r}", name=attribute)

    def __dir__() -> Iterable[str]:
        try:
            more = vars(load_d2l(name))
        except ImportError:
            more = {}
        return sorted({*vars(sys.modules[package]), *(n for n in more if n[0] != "_")})

    return __getattr__, __dir__
