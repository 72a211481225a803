"""Almost right is not right: each function that a solution hands in is changed in one small way.

The functions come from the cells of the worked solutions that say in their metadata which exercise
they solve (`solves: 8.2 generate_until`). Each change (another operator, off by one, arguments
swapped, a line left out) makes one mutant, and its exercise must not accept it. Those that it
accepts compute the same as the solution; each is listed here with the reason.
"""

import ast
import copy
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book/_scripts"))

from notebook_pair import BACKENDS, Pair, code_cells, split_magic, tags

from d2lgpt.exercises import check, desk

MOST = 40  # mutants of one function; of more, every second or third is taken

# Of many thousand tokens the sum may reach 1 early by rounding; the check tries a few tokens only.
GUARD = "for p = 1, and there by rounding alone"

ONE_MASK = "the same mask, once for each head"

# (exercise, backend) → what is accepted, and why it is no mistake.
ACCEPTED: dict[tuple[str, str], dict[str, str]] = {
    ("8.2", "pytorch"): {
        "next_idx = logits.argmax(dim=1, keepdim=True)": "of two axes, 1 is the last",
    },
    ("8.2", "jax"): {
        "window = min(buffer.shape[1], context_size)": "the smaller one, in any order",
        "if buffer[-1, t].item() == stop_id:": "the last row of a batch of one is the first",
        "next_idx = model(visible)[:, t - 1].argmax(axis=-1)": (
            "JAX takes the last place for one that is beyond it"
        ),
    },
    ("11.3a", "pytorch"): {
        "return probas.scatter(-1, ids, ranked)": "every place is written, whatever was there",
        "ranked, ids = probas.sort(dim=-1, descending=True, stable=False)": (
            "which of two equal tokens comes first may differ"
        ),
        **{
            f"ranked = torch.where({condition}, ranked, 0)": GUARD
            for condition in (
                "(before < top_p) | (top_p > 1)",
                "(before < top_p) | (top_p >= 2)",
                "before < top_p",
            )
        },
    },
    ("11.3a", "jax"): {
        "zeros = probas": "every place is written, whatever was there",
        **{
            f"ranked = jnp.where({condition}, ranked, 0)": GUARD
            for condition in (
                "(before < top_p) | (top_p > 1)",
                "(before < top_p) | (top_p >= 2)",
                "before < top_p",
            )
        },
    },
    ("13.4a", "pytorch"): {
        "scores = Q @ K.transpose(3, 2) / math.sqrt(Q.shape[3])": "two axes, in any order",
        "later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)": ONE_MASK,
    },
    ("13.4a", "jax"): {
        "scores = Q @ K.swapaxes(3, 2) / math.sqrt(Q.shape[3])": "two axes, in any order",
        "later = jnp.triu(jnp.ones(scores.shape[1:], dtype=bool), 1)": ONE_MASK,
    },
    **{
        ("13.5", backend): {"causal = places < places[:, None]": "the diagonal is added later"}
        for backend in ("pytorch", "jax")
    },
}

TALLY: dict[tuple[str, str], tuple[int, int]] = {}  # (accepted, made)

SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def solved_in_notebooks() -> Iterator[tuple[str, str, str, str]]:
    """(exercise, name, backend, source): what each solution hands in, with what it needs."""
    folder = ROOT / "notebooks/solutions"
    for path in sorted(folder.glob("*.md")):
        cells = code_cells(Pair(folder, path.stem).text)
        for cell in cells:
            if "solves" not in cell.metadata:
                continue
            id, name = cell.metadata["solves"].split()
            backend = next((one for one in BACKENDS if one in tags(cell)), "")
            seen = [c for c in cells if not tags(c) & set(BACKENDS) or backend in tags(c)]
            before = seen[: next(i for i, one in enumerate(seen) if one is cell)]
            needs = [statement for one in before for statement in what_it_needs(one)]
            yield id, name, backend, "\n".join(needs), split_magic(cell.source)[1]


def what_it_needs(cell) -> list[str]:
    """The imports of a cell, or all of it if it solves something too."""
    code = split_magic(cell.source)[1]
    if "solves" in cell.metadata:
        return [code]
    if code.startswith("%"):
        code = code.partition("\n")[2]
    imports = (ast.Import, ast.ImportFrom)
    return [ast.unparse(node) for node in ast.parse(code).body if isinstance(node, imports)]


SOLVED = list(solved_in_notebooks())


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """(the first line that differs, changed source), one change at a time."""
    tree = ast.parse(source)
    original = ast.unparse(tree).splitlines()
    count = len(list(ast.walk(tree)))
    for index in range(count):
        for way in range(4):
            changed = copy.deepcopy(tree)
            node = list(ast.walk(changed))[index]
            if change(changed, node, way):
                after = ast.unparse(ast.fix_missing_locations(changed))
                pairs = zip_longest(original, after.splitlines(), fillvalue="")
                here = next((line for before, line in pairs if line != before), None)
                if here is not None:  # else it is the same program
                    yield here.strip(), after


def change(tree: ast.AST, node: ast.AST, way: int) -> bool:
    """Change a node in place in one of its ways; false if it has no such way."""
    match node:
        case ast.BinOp() if way == 0 and type(node.op) in SWAPS:
            node.op = SWAPS[type(node.op)]()
        case ast.BinOp() if way == 1:  # a factor or a term is missing
            return put(tree, node, node.left)
        case ast.AugAssign() if way == 0 and type(node.op) in SWAPS:
            node.op = SWAPS[type(node.op)]()
        case ast.BoolOp() if way == 0:
            node.op = SWAPS[type(node.op)]()
        case ast.Compare() if way == 0 and type(node.ops[0]) in SWAPS:
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.Constant(value=bool()) if way == 0:
            node.value = not node.value
        case ast.Constant(value=int()) if way < 2 and not isinstance(node.value, bool):
            node.value += (1, -1)[way]
        case ast.Constant(value=float()) if way == 0 and node.value:  # twice nothing is nothing
            node.value *= 2
        case ast.UnaryOp(op=ast.USub() | ast.Not()) if way == 0:
            return put(tree, node, node.operand)
        case ast.Call() if way == 0 and len(node.args) > 1:
            node.args[:2] = node.args[1::-1]
        case ast.Call() if way == 1 and len(node.args) == 1 and not node.keywords:
            return put(tree, node, node.args[0])  # the function is not applied
        case ast.Expr(value=ast.Constant()):  # a docstring
            return False
        case ast.Assign() | ast.AugAssign() | ast.Expr() | ast.If() if way == 2:
            return put(tree, node, ast.Pass())
        case _:
            return False
    return True


def put(tree: ast.AST, old: ast.AST, new: ast.AST) -> bool:
    """Put another node in the place of one."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
                return True
            if isinstance(value, list) and any(one is old for one in value):
                value[next(i for i, one in enumerate(value) if one is old)] = new
                return True
    return False


def handed_in(source: str, name: str):
    """What a solution's cell defines; linecache knows no source of it, and need not."""
    names: dict = {"__name__": "solution"}
    exec(compile(source, "solution", "exec"), names)
    return (names[name], 0.1, 0.0) if name == "recall" else names[name]  # with two measurements


@pytest.fixture(autouse=True)
def short_and_private(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(desk, "SECONDS", 20)


@pytest.mark.parametrize(
    ("id", "name", "backend", "needs", "source"),
    SOLVED,
    ids=[f"{one[0]}-{one[2] or 'both'}" for one in SOLVED],
)
def test_mutants_are_rejected(id, name, backend, needs, source):
    assert check(id, handed_in(f"{needs}\n{source}", name)), "the solution itself"
    found = list(mutants(source))
    found = found[:: -(-len(found) // MOST)]
    accepted = []
    for what, changed in found:
        try:
            answer = handed_in(f"{needs}\n{changed}", name)
        except Exception:  # it does not even run
            continue
        if check(id, answer):
            accepted.append(what)
    TALLY[id, backend] = len(accepted), len(found)
    assert set(accepted) <= set(ACCEPTED.get((id, backend), {})), f"of {len(found)} mutants"


def test_at_least_95_of_100_are_rejected():
    """Over all exercises; those above must have run before."""
    accepted, made = (sum(column) for column in zip(*TALLY.values(), strict=True))
    assert accepted <= 0.05 * made, f"{accepted} of {made}"


def test_what_is_explained_is_solved_somewhere():
    assert set(ACCEPTED) <= {(id, backend) for id, _, backend, _, _ in SOLVED}
