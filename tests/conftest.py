"""What holds for every test: it runs on the CPU, opens no window, and comes out the same twice."""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}

from hypothesis import settings

settings.register_profile("same-twice", derandomize=True, deadline=None)
settings.load_profile("same-twice")
