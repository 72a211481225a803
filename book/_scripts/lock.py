"""Write requirements.lock and requirements-colab.lock from what pyproject.toml asks for: make lock.

pip resolves the requirements without installing anything, and its report is written down as exact
pins. There are no hashes in them: builds of torch for a CPU and for a GPU bear the same version.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)  # what suits the oldest Python suits the newer ones as well
# Needed on some systems only. pip adds them there, so the lock files hold on all of them.
PLATFORM = re.compile(r"nvidia-|cuda-|triton|appnope|colorama|pywin")
HEADER = """\
# Written by `make lock` from pyproject.toml: change the requirements there.
# To install: pip install --no-deps -r {name}
#             pip install -c {name} -e ".[{extras}]"
# The second line adds what only some systems need.
"""


def normal(name: str) -> str:
    """The one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(requirements: list[str]) -> dict[str, str]:
    """What pip would install into an empty environment: name -> version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--report", str(report), *requirements]
        subprocess.run(command, check=True, cwd=ROOT)
        packages = json.loads(report.read_text("utf-8"))["install"]
    return {
        normal(package["metadata"]["name"]): package["metadata"]["version"].partition("+")[0]
        for package in packages
        if "dir_info" not in package["download_info"]  # d2lgpt itself
    }


def write(name: str, extras: str, held: list[str], without_dependencies: list[str]) -> None:
    pins = resolve([f".[{extras}]", *held])
    pins |= dict(pin.split("==") for pin in without_dependencies)
    lines = [f"{name}=={pins[name]}\n" for name in sorted(pins) if not PLATFORM.match(name)]
    text = HEADER.format(name=name, extras=extras) + "".join(lines)
    (ROOT / name).write_text(text, "utf-8", newline="\n")
    print(f"{name}: {len(lines)} packages")


def main() -> None:
    if sys.version_info[:2] != OLDEST:
        sys.exit(f"make lock needs Python {OLDEST[0]}.{OLDEST[1]}, the oldest one supported.")
    lock = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["d2lgpt"]["lock"]
    alone = lock["without-dependencies"]
    tools = lock["newest-without-dependencies"]
    write("requirements.lock", "dev", lock["newest"], alone + tools)
    write("requirements-colab.lock", "torch,jax,test", lock["colab"], alone)


if __name__ == "__main__":
    main()
