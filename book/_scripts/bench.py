"""The speeds and the memory that the package promises, measured: ratios and medians.

Each measurement of the first table runs in a fresh process, RUNS times (default 3). Seconds drift
with the machine. Where the project has set itself a bound, the last column compares the median with
it: below 1.00 is within.

The second table compares programs that do the same. They run in turns in one process, after a call
that is not measured, and each turn begins with another one. What counts is the share of the first
program's time, turn by turn: the median, and in brackets that of the least times.

Nothing fails here: a timing is not a test.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

# What is timed is the code after TIMED; what comes before it is preparation.
TIMED = "\n#---\n"
TORCH = "import torch\nfrom d2lgpt.config import *\nfrom d2lgpt.torch.scratch import *\n"
TORCH += "from d2lgpt.torch import count_parameters\n"
JAX = "import jax, jax.numpy as jnp\nfrom flax import nnx\nfrom d2lgpt.config import *\n"
JAX += "from d2lgpt.jax.scratch import *\nfrom d2lgpt.jax import count_parameters\n"
BOTH = TORCH.replace("scratch import *", "scratch import GPTModel as TorchGPT")
BOTH += JAX.replace("scratch import *", "scratch import GPTModel as JaxGPT")
BOTH += "from d2lgpt.parity import copy_weights\ncfg = GPT_CONFIG_124M\n"
D2L = "from d2lgpt import {} as d2l\n"
MAIN_RUN = "d2l.TimeMachine(64, 128, 100_000, 3_000, 'char')"
RANDOM_FILE = "from d2lgpt.checkpoint import write_random_gpt2\nimport tempfile, pathlib\n"
RANDOM_FILE += "folder = tempfile.TemporaryDirectory()\n"
RANDOM_FILE += "path = write_random_gpt2(pathlib.Path(folder.name) / 'gpt2', GPT_CONFIG_124M)\n"
GPT2 = "50257, 768, 12, 12, pos='learned', norm='layer', act='gelu', bias=True"
SMALL_GPT = "28, num_hiddens=64, num_heads=4, num_blks=2, max_len=64"
NNX_MODEL = "JaxGPT(cfg, rngs=nnx.Rngs(0))"
TINY = "small = gpt2_config('small', emb_dim=48, n_heads=4, n_layers=2, vocab_size=500)\n"

# A page of the built book, served from this machine; the switch in its header answers at the end.
BROWSER = """
import functools, http.server, threading
from selenium import webdriver
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
handler = functools.partial(Quiet, directory="_build/html")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
options = webdriver.ChromeOptions()
options.page_load_strategy = "eager"  # until the document is there and its scripts have run
for flag in ("headless", "no-sandbox", "disable-gpu"):
    options.add_argument(f"--{flag}")
chrome = webdriver.Chrome(options)
chrome.get(f"http://127.0.0.1:{server.server_port}/book/intro.html")  # where readers come from
"""
OPEN = "chrome.get(f'http://127.0.0.1:{server.server_port}/notebooks/01_dummy_gpt.html')\n"
CLICK = "chrome.execute_script('document.querySelector(\".code-switch [value=jax]\").click()')\n"
CLICK += "assert chrome.execute_script('return document.documentElement.dataset.code') == 'jax'\n"
NOT_HERE = "Build the book first, and install chromium and chromedriver."

# name: (code, bound in seconds, bound in MB above what the preparation needed); None: no bound
MEASURED = {
    "import d2lgpt": (TIMED + "import d2lgpt", 0.1, None),
    "census of XL, PyTorch": (
        TORCH + TIMED + "with torch.device('meta'): m = GPTModel(gpt2_config('xl'))\n"
        "assert count_parameters(m) == 1637792000",
        8,
        300,
    ),
    "census of XL, JAX": (
        JAX + TIMED + "m = nnx.eval_shape(lambda: GPTModel(gpt2_config('xl'), rngs=nnx.Rngs(0)))\n"
        "assert count_parameters(m) == 1637792000",
        8,
        300,
    ),
    "initialize 124M, PyTorch": (TORCH + TIMED + "m = GPTModel(GPT_CONFIG_124M)", None, None),
    "initialize 124M, JAX": (
        JAX + TIMED + "m = GPTModel(GPT_CONFIG_124M, rngs=nnx.Rngs(0))\n"
        "jax.block_until_ready(nnx.state(m))",
        None,
        None,
    ),
    "copy 124M, PyTorch to JAX": (
        BOTH + f"a = TorchGPT(cfg); b = {NNX_MODEL}" + TIMED + "copy_weights(a, b)\n"
        "jax.block_until_ready(nnx.state(b))",
        3,
        None,
    ),
    "copy 124M, PyTorch to abstract JAX": (
        BOTH + "a = TorchGPT(cfg)" + TIMED + f"b = nnx.eval_shape(lambda: {NNX_MODEL})\n"
        "copy_weights(a, b); jax.block_until_ready(nnx.state(b))",
        3,
        None,
    ),
    "copy 124M, JAX to PyTorch": (
        BOTH + f"a = {NNX_MODEL}; b = TorchGPT(cfg)" + TIMED + "copy_weights(a, b)",
        3,
        None,
    ),
    "copy 124M, JAX to abstract PyTorch": (
        BOTH + f"a = {NNX_MODEL}" + TIMED + "with torch.device('meta'): b = TorchGPT(cfg)\n"
        "copy_weights(a, b)",
        3,
        None,
    ),
    "200 tokens, PyTorch, growing input": (
        TORCH + TINY + "m = GPTModel(small); ids = torch.tensor([[1, 2, 3]])\n"
        "generate_text_simple(m, ids, 2, 1024)" + TIMED + "generate_text_simple(m, ids, 200, 1024)",
        None,
        None,
    ),
    "200 tokens, JAX, fixed buffer, first call": (
        JAX
        + TINY
        + "m = GPTModel(small, rngs=nnx.Rngs(0)); ids = jnp.array([[1, 2, 3]])"
        + TIMED
        + "jax.block_until_ready(generate_text_simple(m, ids, 200, 1024))\n"
        "assert fill_buffer._cache_size() == 1",
        None,
        None,
    ),
    "200 tokens, JAX, fixed buffer, second call": (
        JAX + TINY + "m = GPTModel(small, rngs=nnx.Rngs(0)); ids = jnp.array([[1, 2, 3]])\n"
        "generate_text_simple(m, ids, 200, 1024)"
        + TIMED
        + "jax.block_until_ready(generate_text_simple(m, ids, 200, 1024))\n"
        "assert fill_buffer._cache_size() == 1",
        None,
        None,
    ),
    # The bound: 1.2 times (498 MB of weights + 548 MB of the file's pages, which count here too).
    "load GPT-2 into an abstract GPT, PyTorch": (
        TORCH + D2L.format("torch") + RANDOM_FILE + TIMED + "with torch.device('meta'):\n"
        f"    m = d2l.GPT({GPT2})\n"
        "d2l.load_gpt2(m, path)",
        None,
        1255,
    ),
    "load GPT-2 into an abstract GPT, JAX": (
        JAX + D2L.format("jax") + RANDOM_FILE + TIMED + "m = nnx.eval_shape(\n"
        f"    lambda: d2l.GPT({GPT2}, rngs=nnx.Rngs(0)))\n"
        "d2l.load_gpt2(m, path); jax.block_until_ready(nnx.state(m))",
        None,
        1255,
    ),
    "The Time Machine of the main run, PyTorch": (
        D2L.format("torch")
        + "from d2lgpt.corpus import time_machine\ntime_machine()"
        + TIMED
        + f"data = {MAIN_RUN}",
        0.3,
        50,
    ),
    "The Time Machine of the main run, JAX": (
        D2L.format("jax")
        + "from d2lgpt.corpus import time_machine\ntime_machine()"
        + TIMED
        + f"data = {MAIN_RUN}",
        0.3,
        50,
    ),
    "200 drawn tokens, PyTorch": (
        TORCH + D2L.format("torch") + f"m = d2l.GPT({SMALL_GPT}); ids = torch.tensor([[1, 2, 3]])\n"
        "m.generate(ids, 2)" + TIMED + "m.generate(ids, 200, 0.7, 8)",
        None,
        None,
    ),
    "200 drawn tokens, JAX, after another temperature": (
        JAX + D2L.format("jax") + "from d2lgpt.jax.sampling import sample_buffer\n"
        f"m = d2l.GPT({SMALL_GPT}, rngs=nnx.Rngs(0)); ids = jnp.array([[1, 2, 3]])\n"
        "m.generate(ids, 200, 1.0, 8)"
        + TIMED
        + "m.generate(ids, 200, 0.7, 8).block_until_ready()\n"
        "assert sample_buffer._cache_size() == 1",
        None,
        None,
    ),
    "chapter 1 in a browser, until it answers": (
        BROWSER + TIMED + OPEN + CLICK + "import atexit; atexit.register(chrome.quit)",
        1,
        None,
    ),
}

# name: (preparation, {program: expression}, bound): all times as shares of the first program's.
TRAIN = f"""
import torch, optax, jax.numpy as jnp
from flax import nnx
from types import SimpleNamespace
from d2lgpt import torch as d2l_torch, jax as d2l_jax
BATCH = next(iter({MAIN_RUN.replace("d2l", "d2l_torch")}.train_dataloader()))
def one(array):
    batch = tuple(array(ids.numpy()) for ids in BATCH)
    return SimpleNamespace(train_dataloader=lambda: [batch])
a = d2l_torch.GPT(28, dropout=0.1)
b = d2l_jax.GPT(28, dropout=0.1, rngs=nnx.Rngs(0))
adam = torch.optim.AdamW(a.parameters(), lr=1e-3, weight_decay=0)
adam_jax = nnx.Optimizer(b, optax.adamw(1e-3, weight_decay=0), wrt=nnx.Param)
data, data_jax = one(torch.from_numpy), one(jnp.asarray)
"""
LOAD = f"""
import jax
from flax import nnx
from d2lgpt import torch as d2l_torch, jax as d2l_jax
from d2lgpt.config import GPT_CONFIG_124M
{RANDOM_FILE}
def in_torch():
    return d2l_torch.load_gpt2(d2l_torch.abstract_model(lambda: d2l_torch.GPT({GPT2})), path)
def in_jax():
    make = lambda: d2l_jax.GPT({GPT2}, rngs=nnx.Rngs(0))
    model = d2l_jax.load_gpt2(d2l_jax.abstract_model(make), path)
    jax.block_until_ready(nnx.state(model))
    return model
"""
WRITE = (
    LOAD
    + """
import torch, jax.numpy as jnp, numpy as np, transformers
from safetensors.torch import load_file
a, b = in_torch(), in_jax()
settings = transformers.GPT2Config(bos_token_id=None, eos_token_id=None)
judge = transformers.GPT2LMHeadModel.from_pretrained(
    None, config=settings, state_dict=load_file(path)).eval()
known = torch.tensor(np.random.default_rng(0).integers(50257, size=({batch}, {prompt})))
def hugging_face():
    return judge.generate(known, attention_mask=torch.ones_like(known), max_new_tokens=48,
        min_new_tokens=48, do_sample=False, use_cache=True, pad_token_id=0)
def pytorch():
    return a.generate(known, 48, 0, cache=True)
def in_nnx():
    return np.asarray(b.generate(jnp.array(known.numpy()), 48, 0, cache=True))
assert hugging_face().tolist() == pytorch().tolist() == in_nnx().tolist()
"""
)
WRITERS = {"Hugging Face": "hugging_face()", "PyTorch": "pytorch()", "JAX": "in_nnx()"}
COMPARED = {
    "training step of the main run": (
        TRAIN,
        {
            "PyTorch": "d2l_torch.train_lm(a, data, adam, 1)",
            "JAX": "d2l_jax.train_lm(b, data_jax, adam_jax, 1)",
        },
        1.5,
    ),
    "load GPT-2 into an abstract GPT": (LOAD, {"PyTorch": "in_torch()", "JAX": "in_jax()"}, 1.5),
    **{
        f"48 tokens of GPT-2, batch {batch}, prompt {prompt}": (
            WRITE.replace("{batch}", str(batch)).replace("{prompt}", str(prompt)),
            WRITERS,
            1 if batch == 1 else 1 / 0.9,
        )
        for batch in (1, 8)
        for prompt in (4, 200)
    },
}

# Runs programs in turns; prints the seconds of each.
TURNS = """
import json, time
{before}
programs = {programs}
for program in programs.values():
    program()
seconds = {{name: [] for name in programs}}
names = list(programs)
for turn in range({turns}):
    first = turn % len(names)
    for name in names[first:] + names[:first]:
        start = time.perf_counter()
        programs[name]()
        seconds[name].append(time.perf_counter() - start)
print(json.dumps(seconds))
"""

# Peak memory (VmHWM) can be reset on Linux only; elsewhere the column stays empty.
FRAME = """
import json, time
def memory(key):
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))
    except OSError:
        return None
{before}
try:
    open("/proc/self/clear_refs", "w").write("5")
except OSError:
    pass
base, start = memory("VmRSS:"), time.perf_counter()
{timed}
seconds, peak = time.perf_counter() - start, memory("VmHWM:")
print(json.dumps([seconds, peak and peak - base]))
"""


def measure(code: str, runs: int) -> tuple[float, float | None]:
    """Median seconds and the largest peak in MB above the start, over `runs` fresh processes."""
    before, timed = code.split(TIMED)
    program = FRAME.format(before=before, timed=timed)
    results = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        results.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, peaks = zip(*results, strict=True)
    return statistics.median(seconds), None if None in peaks else max(peaks)


def compare(before: str, programs: dict[str, str], turns: int) -> dict[str, list[float]]:
    """The seconds of each program at each turn, all in one fresh process."""
    calls = ", ".join(f"{name!r}: lambda: {call}" for name, call in programs.items())
    code = TURNS.format(before=before, programs=f"{{{calls}}}", turns=turns)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="processes for each row (default 3)")
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    options = parser.parse_args()
    print(f"{'':44}{'seconds':>9}{'peak MB':>9}   share of the bound")
    for name, (code, seconds_bound, memory_bound) in MEASURED.items():
        if options.only not in name:
            continue
        if BROWSER in code and not (shutil.which("chromedriver") and Path("_build/html").is_dir()):
            print(f"{name:44}{NOT_HERE}")
            continue
        seconds, peak = measure(code, options.runs)
        shares = []
        if seconds_bound:
            shares.append(f"time {seconds / seconds_bound:.2f}")
        if memory_bound and peak is not None:
            shares.append(f"memory {peak / memory_bound:.2f}")
        memory = "" if peak is None else f"{peak:.0f}"
        print(f"{name:44}{seconds:9.3f}{memory:>9}   {', '.join(shares)}", flush=True)
    print(f"\n{'':44}{'':14}{'seconds':>9}{'share':>7}{'(of least)':>12}{'bound':>7}")
    for name, (before, programs, bound) in COMPARED.items():
        if options.only not in name:
            continue
        times = compare(before, programs, 2 * options.runs)
        first = next(iter(programs))
        for program, seconds in times.items():
            share = statistics.median(s / f for s, f in zip(seconds, times[first], strict=True))
            least = min(seconds) / min(times[first])
            limit = "" if program == first else f"{bound:.2f}"
            row = f"{name:44}{program:14}{statistics.median(seconds):9.3f}"
            print(f"{row}{share:7.2f}{f'({least:.2f})':>12}{limit:>7}", flush=True)


if __name__ == "__main__":
    main()
