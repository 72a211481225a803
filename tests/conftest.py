"""What holds for every test: it runs on the CPU, opens no window, and comes out the same twice."""

import os
from importlib.util import find_spec

os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
# Tests compile many small programs and run each once. Notebooks are tested as a reader runs them,
# and so are figures and parity: `compiled_as_for_a_reader`.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # side by side, threads of PyTorch and XLA would fight
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("PJRT_NPROC", "1")

import pytest
from hypothesis import settings

settings.register_profile("same-twice", derandomize=True, deadline=None)
settings.load_profile("same-twice")

# The fixtures of the built book, where its tools are installed: not in Colab's profile.
pytest_plugins = ["built_book"] if find_spec("jupyter_book") else []


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items):
    for item in items:
        if "compiled_as_for_a_reader" in getattr(item, "fixturenames", ()):
            item.add_marker("reader")


@pytest.fixture(scope="module")
def compiled_as_for_a_reader():
    """JAX compiles with all optimizations, for tests in which the last digits count."""
    import jax

    shortcut = jax.config.read("jax_disable_most_optimizations")
    jax.clear_caches()  # other tests may have compiled the same operations
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", shortcut)
