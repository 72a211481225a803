"""Run a command as on an older processor: `python book/_scripts/as_on.py avx make test`.

The libraries choose their code by the instructions that they find, so results differ between
processors in their last digits. These settings keep the newer instructions from them.
"""

import os
import sys

# What NumPy must do without, by the names of its releases up to 2.3 and from then on.
AVX512 = "AVX512F AVX512CD AVX512_SKX AVX512_KNL AVX512_KNM AVX512_CLX AVX512_CNL AVX512_ICL"
AVX512 += " AVX512_SPR X86_V4"
PROCESSORS = {
    # Without AVX-512, as most processors are, those of Google Colab among them.
    "avx2": {
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": AVX512,
    },
    # Also without the fused multiply-add, which rounds once where two instructions round twice.
    # (With SSE4_2, XLA fails to compile a conversion of bfloat16.)
    "avx": {
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "NPY_DISABLE_CPU_FEATURES": f"{AVX512} AVX2 FMA3 X86_V3",
    },
}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in PROCESSORS:
        sys.exit(f"usage: as_on.py PROCESSOR COMMAND, with one of {', '.join(PROCESSORS)}")
    os.execvpe(sys.argv[2], sys.argv[2:], os.environ | PROCESSORS[sys.argv[1]])
