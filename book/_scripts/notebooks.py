"""Make, run and check the notebooks. People edit notebooks/NAME.md; the rest is done here.

NAMES are names of chapters or their beginnings (``02``), and those of their solutions
(``solutions/02``); none means all of them.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal
from notebook_pair import Pair, code_cells, label
from notebook_rules import RULES
from notebook_sources import Fault, fill, tidy

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/nbval.cfg"]
NBVAL += ["--nbval-cell-timeout", "300", "--dist", "loadfile", "--no-loadscope-reorder"]


def find(folder: Path, names: list[str]) -> list[Pair]:
    """The pairs in a folder and its solutions, also where one of the two files is missing."""
    files = [path for path in folder.rglob("*.*") if path.suffix in (".md", ".ipynb")]
    names_of_files = (path.relative_to(folder).with_suffix("").as_posix() for path in files)
    stems = sorted({name for name in names_of_files if not re.search(r"(^|/)\.", name)})
    for name in names:
        if not any(stem.startswith(name) for stem in stems):
            raise Fault(f"{name}: no such notebook in {folder}")
    return [Pair(folder, s) for s in stems if not names or s.startswith(tuple(names))]


def listings(pairs: list[Pair], check: bool) -> int:
    """Write set-up and listing cells from their sources (--check: only say which differ)."""
    differing = 0
    for pair in pairs:
        nb = deepcopy(pair.text)
        for changed in fill(nb):
            print(
                f"{pair.name}, {changed}: {'differs from' if check else 'written from'} its source"
            )
            differing += 1
        if not check:
            pair.edit(nb)
    return int(check and differing > 0)


def format(pairs: list[Pair]) -> int:
    """Format the code cells and the layout of the text files."""
    for pair in pairs:
        nb = deepcopy(pair.text)
        for changed in tidy(nb):
            print(f"{pair.name}, {changed}: formatted")
        pair.edit(nb)
    return 0


def build(pairs: list[Pair]) -> int:
    """Make the notebooks from the text files, without executing them."""
    for pair in pairs:
        pair.write(pair.build())
    return 0


def run(pairs: list[Pair], jobs: int, timeout: int) -> int:
    """Build and execute the notebooks; one that fails is left as it was."""
    # Each kernel is a process; one tool in threads sees to it that no two get the same ports.
    with ThreadPoolExecutor(jobs) as pool:
        return max(pool.map(partial(run_one, timeout=timeout), pairs), default=0)


def run_one(pair: Pair, timeout: int) -> int:
    """Build and execute one notebook; return 0 if every cell passed."""
    start, nb, reached = time.perf_counter(), pair.build(), []
    for cell in code_cells(nb):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(nb, timeout=timeout, kernel_name="python3")
    client.record_timing, client.coalesce_streams = False, True
    client.iopub_timeout, client.raise_on_iopub_timeout = 60, True  # else output may be lost
    client.extra_arguments = ["--log-level=ERROR"]
    client.resources = {"metadata": {"path": str(pair.ipynb.parent)}}
    client.on_cell_start = lambda cell, cell_index: reached.append(cell)
    try:
        client.execute()
    except (CellControlSignal, RuntimeError) as error:  # a cell raised or hung, a kernel died
        place = label(nb, reached[-1]) if reached else "before the first cell"
        print(f"{pair.name}, {place}: failed\n{error}", file=sys.stderr)
        return 1
    nb.metadata = pair.text.metadata  # the kernel has described itself there
    pair.write(nb)
    print(f"{pair.name}: executed in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 0


def check(pairs: list[Pair]) -> int:
    """Report every rule that a pair breaks."""
    found = [f"{pair.name}, {fault}" for pair in pairs for fault in faults(pair)]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


def faults(pair: Pair) -> list[str]:
    """What is wrong with a pair, one message each."""
    if missing := [path.name for path in (pair.md, pair.ipynb) if not path.exists()]:
        return [f"{missing[0]} is missing"]
    return [fault for rule in RULES for fault in rule(pair)]


def test(pairs: list[Pair], jobs: int, twice: bool = False) -> int:
    """Execute the notebooks under nbval, which compares every output with the stored one."""
    # The last ones take longest: begun first, they keep no process waiting at the end.
    files = [str(pair.ipynb) for pair in reversed(pairs)]
    folders = [str(pair.ipynb.parent) for pair in pairs]
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", *NBVAL, "-n", str(jobs)]
    command += ["-p", "no:cacheprovider", "--rootdir", os.path.commonpath(folders), *files]
    if twice:
        command += ["-p", "book._scripts.twice"]
    return subprocess.run(command, cwd=ROOT).returncode


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; each command is the function of that name."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (listings, format, build, run, check, test):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.set_defaults(command=command)
        sub.add_argument("names", nargs="*", metavar="NAMES")
        sub.add_argument("--folder", type=Path, default=NOTEBOOKS)
        if command is listings:
            sub.add_argument("--check", action="store_true")
        if command in (run, test):
            sub.add_argument("-j", "--jobs", type=int, default=1)
        if command is test:
            sub.add_argument("--twice", action="store_true", help="run each cell twice in a row")
        if command is run:
            sub.add_argument("--timeout", type=int, default=600, help="seconds for one cell")
    options = vars(parser.parse_args(arguments))
    command, folder, names = (options.pop(key) for key in ("command", "folder", "names"))
    # Side by side, the notebooks share the processors; PyTorch's and XLA's threads would fight
    # over them.
    threads = max(1, (os.cpu_count() or 1) // options.get("jobs", 1))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("PJRT_NPROC", str(threads))
    try:
        return command(find(folder.resolve(), names), **options)
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1


if __name__ == "__main__":
    # Stored outputs are those of a CPU and of the stand-in for GPT-2, whatever this machine has,
    # in the quick budget, and show no progress bars. What the solutions solve, nobody here has.
    os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "D2LGPT_BUDGET": "quick"}
    os.environ |= {"D2LGPT_GPT2": "stand-in", "TQDM_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["D2LGPT_PROGRESS"] = f"{scratch}/progress.json"
        status = main()
    sys.exit(status)
