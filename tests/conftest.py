"""What holds for every test: it runs on the CPU, opens no window, and comes out the same twice."""

import os
from importlib.util import find_spec

os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
# Tests compile many small programs and run each once. The notebooks, which are tested as a reader
# runs them, are compiled with all optimizations.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # side by side, PyTorch's threads would fight
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

settings.register_profile("same-twice", derandomize=True, deadline=None)
settings.load_profile("same-twice")

# The fixtures of the built book, where its tools are installed: not in Colab's profile.
pytest_plugins = ["built_book"] if find_spec("jupyter_book") else []
