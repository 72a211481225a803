"""make check FILE=...: something to run for all that people change."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book/_scripts"))

import check


def paths(*patterns):
    return sorted(p.relative_to(ROOT).as_posix() for one in patterns for p in ROOT.glob(one))


TESTS = paths("tests/test_*.py")
CHAPTERS = paths("notebooks/[0-9]*.md", "notebooks/[0-9]*.ipynb")
SOLUTIONS = paths("notebooks/solutions/[0-9]*.md", "notebooks/solutions/[0-9]*.ipynb")
MODULES = paths("d2lgpt/**/*.py")
PAGES = paths("book/*.md", "book/*.toml", "book/*.json")
SCRIPTS = paths("book/_scripts/*.py", "book/_ext/*.py", "book/_static/*.js", "book/_static/*.css")


@pytest.fixture
def ran(monkeypatch):
    """The commands that would have been run, each without its Python; all of them fail."""
    commands = []

    def run(command, cwd):
        commands.append(command[1:])
        return subprocess.CompletedProcess(command, returncode=1)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


# --- The table ------------------------------------------------------------------------------------


def concerning(file):
    """The files of tests that would be run."""
    try:
        commands = check.commands_of(check.files_of(file))
    except check.Unknown:
        return set()
    return {word for command in commands for word in command if word.startswith("tests/")}


def test_some_test_concerns_every_file():
    assert len(MODULES) > 40
    files = [*TESTS, *CHAPTERS, *SOLUTIONS, *MODULES, *PAGES, *SCRIPTS]
    without = [file for file in files if not concerning(file)]
    assert without == [], "add them to CONCERNS in book/_scripts/check.py"


def test_every_test_concerns_a_file_that_is_no_test():
    others = [*CHAPTERS, *SOLUTIONS, *MODULES, *PAGES, *SCRIPTS, "_config.yml", "pyproject.toml"]
    unreached = set(TESTS) - {test for file in others for test in concerning(file)}
    assert sorted(unreached) == [], "add them to CONCERNS in book/_scripts/check.py"


@pytest.mark.parametrize("pattern", check.CONCERNS)
def test_the_table_names_what_there_is(pattern):
    assert list(ROOT.glob(pattern)), "no such file"
    for name in check.CONCERNS[pattern].split():
        assert f"tests/test_{name}.py" in TESTS


# --- What is run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_module(ran, backend):
    assert check.main([f"d2lgpt/{backend}/gpt.py"]) == 1
    listings, tests = ran
    assert listings[1:] == ["listings", "--check"]
    assert {"tests/test_gpt.py", "tests/test_mirror.py"} <= set(tests)


@pytest.mark.parametrize("what", ["notebooks/07_parameter_census.md", "07", "7", "07_parameter"])
def test_a_chapter(ran, what):
    assert check.main([what]) == 1
    rules, tests, run = ran
    assert rules[1:] == ["check", "07_parameter_census"]
    assert {"tests/test_exercises.py", "tests/test_exercise_pages.py"} <= set(tests)
    assert "tests/test_mutations.py" not in tests
    assert run[1:] == ["test", "07_parameter_census"]


@pytest.mark.parametrize("what", ["notebooks/solutions/08_generating_text.ipynb", "solutions/8"])
def test_a_solution(ran, what):
    assert check.main([what]) == 1
    rules, tests, run = ran
    assert rules[1:] == ["check", "solutions/08_generating_text"]
    assert {"tests/test_exercises_chapter_08.py", "tests/test_mutations.py"} <= set(tests)
    assert tests[tests.index("-k") + 1] == "not test_mutations or [8."
    assert run[1:] == ["test", "solutions/08_generating_text"]


@pytest.mark.parametrize(
    ("what", "test"),
    [
        ("tests/test_gpt.py", "tests/test_gpt.py"),
        ("gpt", "tests/test_gpt.py"),
        ("test_gpt", "tests/test_gpt.py"),
        ("book/dictionary.toml", "tests/test_dictionary.py"),
        ("dictionary", "tests/test_dictionary.py"),
        ("tabs", "tests/test_pages_in_browser.py"),
        ("Makefile", "tests/test_packaging.py"),
    ],
)
def test_a_test_a_page_or_a_bare_name(ran, what, test):
    assert check.main([what]) == 1
    assert test in ran[-1]


def test_a_path_may_start_in_the_folder_where_one_is(ran, monkeypatch):
    monkeypatch.chdir(ROOT / "d2lgpt")
    assert check.files_of("jax/gpt.py") == ["d2lgpt/jax/gpt.py"]


def test_it_says_what_it_runs(ran, capsys):
    check.main(["8"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["$"] * len(ran)
    assert all(command[-1] in line for command, line in zip(ran, lines, strict=True))


def test_one_failure_is_enough(monkeypatch):
    codes = iter([0, 1, 0, 0, 0, 0])
    run = lambda command, cwd: subprocess.CompletedProcess(command, next(codes))  # noqa: E731
    monkeypatch.setattr(subprocess, "run", run)
    assert check.main(["8"]) == 1
    assert check.main(["8"]) == 0


@pytest.mark.parametrize("what", ["grammar", "99", "d2lgpt/jax/gtp.py", "LICENSE", "solutions", ""])
def test_what_it_does_not_know_is_one_sentence(ran, capsys, what):
    assert check.main([what]) == 2
    assert ran == []
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Nothing is ")
    assert said.err.endswith(".\n")
    assert said.err.count("\n") == 1
