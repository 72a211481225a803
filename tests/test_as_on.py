"""book/_scripts/as_on.py: the libraries do without the instructions that are kept from them."""

import importlib.util
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

COMMAND = Path(__file__).resolve().parents[1] / "book/_scripts/as_on.py"
SPEC = importlib.util.spec_from_file_location("as_on", COMMAND)
as_on = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(as_on)

# What PyTorch and NumPy say; what XLA writes into a compiled program, where that can be read (""
# in older releases of JAX); and whether it rounds a * b - c once (then a * a - (a * a) is not 0).
PROBE = """
import json, re
import jax, numpy, torch
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

a = numpy.linspace(1, 2, 1000, dtype="float32")
program = jax.jit(lambda a, b, c: a * b - c).lower(a, a, a).compile()
executable = program.runtime_executable()
code = executable.serialize() if hasattr(executable, "serialize") else b""
print(json.dumps({
    "torch": torch.backends.cpu.get_cpu_capability(),
    "numpy": [name for name in __cpu_dispatch__ if __cpu_features__[name]],
    "xla": re.findall(r"[+](avx512f|avx2|avx)(?![0-9a-z])", code.decode("latin1")),
    "fused": bool(abs(numpy.asarray(program(a, a, a * a))).max() > 0),
}))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="about x86 processors")
@pytest.mark.parametrize("processor", as_on.PROCESSORS)
def test_the_libraries_do_without(processor):
    command = [sys.executable, COMMAND, processor, sys.executable, "-c", PROBE]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    older = processor == "avx"
    assert said["torch"] == ("DEFAULT" if older else "AVX2")
    assert not [name for name in said["numpy"] if "512" in name or name == "X86_V4"]
    assert not older or not {"AVX2", "FMA3", "X86_V3"} & set(said["numpy"])
    assert set(said["xla"]) <= ({"avx"} if older else {"avx", "avx2"})
    assert not (older and said["fused"])


def test_a_mistake_is_named():
    command = [sys.executable, COMMAND, "avx512", "true"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and "avx2, avx" in run.stderr
