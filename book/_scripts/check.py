"""Run what concerns one thing that you have changed: make check FILE=...

FILE is a file of this repository, the beginning of a chapter's name (10, solutions/10), or the bare
name of a module, a test or a page (gpt, dictionary).
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.path.relpath(sys.executable, ROOT)
NOTEBOOKS = [PYTHON, "book/_scripts/notebooks.py"]

# The tests that concern a file, beside the one that has its name (tests/test_gpt.py for gpt.py).
# Of several patterns that fit, each counts. What only the whole of the tests can judge is not here.
CONCERNS = {
    # The package
    "d2lgpt/__init__.py": "packaging",
    "d2lgpt/bridge.py": "five_way",
    "d2lgpt/census.py": "ledger",
    "d2lgpt/checkpoint.py": "loading stand_in five_way",
    "d2lgpt/config.py": "checks",
    "d2lgpt/corpus.py": "time_machine",
    "d2lgpt/data_hub.py": "files",
    "d2lgpt/notebook.py": "notebook_magics",
    "d2lgpt/parameters.py": "census",
    "d2lgpt/text.py": "sampling",
    "d2lgpt/checks.py": "careful_users",
    "d2lgpt/torch/*.py": "mirror checks",
    "d2lgpt/jax/*.py": "mirror checks",
    "d2lgpt/*/__init__.py": "packaging",
    "d2lgpt/*/abstract.py": "loading",
    "d2lgpt/*/cache.py": "sampling",
    "d2lgpt/*/corpus.py": "time_machine",
    "d2lgpt/*/gpt.py": "cache generation training parity wrapped",
    "d2lgpt/*/loading.py": "five_way",
    "d2lgpt/*/modes.py": "generation sampling training",
    "d2lgpt/*/rotary.py": "gpt cache",
    "d2lgpt/*/sampling.py": "generation cache",
    "d2lgpt/*/scratch.py": "parity generation five_way",
    "d2lgpt/*/training.py": "recorded wrapped",
    "d2lgpt/exercises/*.py": "exercises exercise_pages",
    "d2lgpt/exercises/broken_caches.py": "exercises_chapter_13",
    "d2lgpt/exercises/gpt2_reference.py": "exercises_chapter_12",
    "d2lgpt/data/*": "stand_in",
    # The pages around the chapters, and what they are made with
    "book/*.md": "reference_pages",
    "book/exercises.*": "exercise_pages",
    "book/facts.json": "ledger",
    "book/recorded/*": "recorded",
    "book/_ext/*.py": "reference_extensions",
    "book/_static/*": "pages_in_browser all_pages_in_browser",
    "book/_templates/*": "pages_in_browser",
    "_config.yml": "book",
    "_toc.yml": "book",
    # Scripts
    "book/_scripts/bench.py": "packaging",
    "book/_scripts/check.py": "check_command",
    "book/_scripts/lock.py": "packaging",
    "book/_scripts/notebook*.py": "notebook_tool notebooks",
    "book/_scripts/record.py": "recorded",
    "book/_scripts/setup_cell.py": "packaging",
    "book/_scripts/twice.py": "notebook_tool notebooks",
    # Around all of it
    "CITATION.cff": "packaging",
    "CONTRIBUTING.md": "packaging",
    "Makefile": "packaging",
    "README.md": "packaging reference_pages",
    "environment.yml": "packaging",
    "pyproject.toml": "packaging",
    "requirements*.lock": "packaging bridge",
    "tests/built_book.py": "book",
    "tests/facts.py": "ledger",
    "tests/nbval.cfg": "notebooks",
}


class Unknown(Exception):
    """Nothing has this name, or nothing is known to concern it."""


def files_of(what: str) -> list[str]:
    """The files that are meant: one that is named by its path, else all that have the name.

    Raises:
        Unknown: if there are none.
    """
    for folder in (Path.cwd(), ROOT):
        path = (folder / what).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            return [path.relative_to(ROOT).as_posix()]
    files = sorted(
        path.relative_to(ROOT).as_posix()
        for folder in ("d2lgpt", "book", "notebooks", "tests")
        for path in (ROOT / folder).rglob("*.*")
        if path.is_file() and not re.search(r"/\.|/__pycache__/", path.as_posix())
    )
    if re.match(r"(solutions/)?\d", what):
        what = re.sub(r"^(solutions/)?(\d)(?!\d)", r"\g<1>0\2", what)  # 7 is 07
        found = [file for file in files if file.startswith(f"notebooks/{what}")]
    else:
        found = [file for file in files if Path(file).stem in (what, f"test_{what}")]
    if not found:
        raise Unknown(
            f'Nothing is called "{what}": name a file of this repository, a chapter or its '
            "solutions (10, solutions/10), or a module, a test or a page (gpt, dictionary)."
        )
    return found


def tests_of(file: str) -> list[str]:
    """The files of tests that concern a file."""
    path = PurePosixPath(file)
    names = [path.stem, path.stem.removeprefix("test_")]
    if number := re.match(r"notebooks/(?:solutions/)?(\d\d)|d2lgpt/exercises/chapter_(\d\d)", file):
        names += ["exercise_pages", "exercises"]
        names += [f"exercises_chapter_{number[1] or number[2]}"]
    for pattern, more in CONCERNS.items():
        if path.match(pattern):
            names += more.split()
    tests = [f"tests/test_{name}.py" for name in dict.fromkeys(names)]
    return [test for test in tests if (ROOT / test).is_file()]


def commands_of(files: list[str]) -> list[list[str]]:
    """What to run for these files, the quickest first.

    Raises:
        Unknown: if nothing is known to concern them.
    """
    tests = list(dict.fromkeys(test for file in files for test in tests_of(file)))
    notebooks = [
        Path(file).relative_to("notebooks").with_suffix("").as_posix()
        for file in files
        if file.startswith("notebooks/")
    ]
    notebooks = list(dict.fromkeys(notebooks))
    commands, select = [], []
    if any(re.match(r"d2lgpt/.*\.py|book/_scripts/setup_cell", file) for file in files):
        commands.append([*NOTEBOOKS, "listings", "--check"])
    if notebooks:
        commands.append([*NOTEBOOKS, "check", *notebooks])
    # What a solution hands in is tried in mutants, and so is the check of an exercise.
    solved = re.findall(r"(?:solutions/|exercises/chapter_)(\d\d)", " ".join(files))
    if solved:
        tests.append("tests/test_mutations.py")
        mine = " or ".join(f"[{int(number)}." for number in dict.fromkeys(solved))
        select = ["-k", f"not test_mutations or {mine}"]
    if tests:
        commands.append([PYTHON, "-m", "pytest", "-q", *select, *tests])
    if notebooks:
        commands.append([*NOTEBOOKS, "test", *notebooks])
    if not commands:
        raise Unknown(f"Nothing is known to concern {' '.join(files)} alone: run make test.")
    return commands


def main(arguments: list[str] | None = None) -> int:
    """Run all of it, and return 0 if all of it passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", metavar="FILE")
    try:
        commands = commands_of(files_of(parser.parse_args(arguments).what))
    except Unknown as unknown:
        print(unknown, file=sys.stderr)
        return 2
    failed = 0
    for command in commands:
        print("$", shlex.join(command), flush=True)
        failed += subprocess.run(command, cwd=ROOT).returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
