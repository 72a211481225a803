"""Recorded runs: full training runs, kept as small JSON files that the chapters draw.

`make record` makes them (book/_scripts/record.py). A record says what ran, where and when, and
bears a fingerprint of the code that ran: once that code or the settings change, it is stale.
"""

import ast
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from d2lgpt.checks import check_choice

_PACKAGE = Path(__file__).resolve().parent

#: In the repository; an installed package carries a copy.
FOLDER = next(
    (f for f in (_PACKAGE / "_recorded", _PACKAGE.parent / "book" / "recorded") if f.is_dir()),
    _PACKAGE / "_recorded",
)

_TIME_MACHINE = {
    "batch_size": 64,
    "num_steps": 128,
    "num_train": 100_000,
    "num_val": 3_000,
    "tokenization": "char",
}
_PLACEMENT = {"data": _TIME_MACHINE, "lr": 3e-3, "seed": 0, "stops": [100, 200, 400, 800]}

#: Name -> settings. `model`: options of `GPT`; `data`: arguments of `TimeMachine`; `stops`: after
#: how many steps the losses are measured; `samples`: settings of `generate` at the end.
EXPERIMENTS = {
    "training": {
        "model": {"dropout": 0.1},
        "data": _TIME_MACHINE,
        "lr": 1e-3,
        "seed": 0,
        "stops": list(range(200, 2001, 200)),
        "samples": {
            "prefix": "the time traveller ",
            "num_tokens": 120,
            "settings": [[1.0, None], [0.7, 8], [2.0, None]],
        },
    },
    "pre-norm": {"model": {"pre_norm": True}, **_PLACEMENT},
    "post-norm": {"model": {"pre_norm": False}, **_PLACEMENT},
}

BACKENDS = ("torch", "jax")


@dataclass(frozen=True)
class Record:
    """One recorded run."""

    name: str  # of EXPERIMENTS
    backend: str  # "torch" or "jax"
    settings: dict
    losses: list[float]  # of every training step: nats per token
    train: list[float]  # at each stop, the mean of the last 50 of them
    val: list[float]  # at each stop, on the validation windows; empty where it is not measured
    samples: list[str]
    corpus: str
    device: str
    versions: dict[str, str]
    date: str  # ISO 8601, UTC
    seconds: float  # of training and measuring, all sessions together
    fingerprint: str

    @property
    def stops(self) -> list[int]:
        """After how many steps the losses were measured."""
        return self.settings["stops"]

    @property
    def stale(self) -> bool:
        """Whether the code or the settings have changed since."""
        if self.name not in EXPERIMENTS or self.settings != EXPERIMENTS[self.name]:
            return True
        return self.fingerprint != fingerprint(self.backend)

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{'STALE, the code has changed since: ' if self.stale else ''}recorded on "
            f"{self.date[:10]}, {self.stops[-1]:,} steps in {self.seconds:.0f} s on "
            f"{self.device} ({versions})"
        )


def recorded(name: str, backend: str, folder: Path | None = None) -> Record | None:
    """The recorded run of an experiment in a backend, or None if there is none yet.

    Raises:
        ValueError: for an experiment or a backend that does not exist, and a damaged record.
    """
    path = record_path(name, backend, folder)
    if not path.is_file():
        return None
    try:
        return Record(**json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is no record ({error}): make it anew with `make record`"
        ) from None


def record_path(name: str, backend: str, folder: Path | None = None) -> Path:
    """Where the record of an experiment in a backend is, or would be."""
    check_choice("the experiment", name, tuple(EXPERIMENTS))
    check_choice("backend", backend, BACKENDS)
    return (folder or FOLDER) / f"{name}-{backend}.json"


def write_record(record: Record, folder: Path | None = None) -> Path:
    """Write a record as JSON; the file changes as a whole or not at all."""
    path = record_path(record.name, record.backend, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(asdict(record), indent=1) + "\n", "utf-8")
    partial.replace(path)
    return path


def fingerprint(backend: str, package: Path = _PACKAGE) -> str:
    """SHA-256 of the code that a run in this backend executes, without comments and docstrings."""
    rooms = ("gpt", "rotary", "sampling", "cache", "training", "corpus", "modes")
    own = [f"{backend}/{name}.py" for name in rooms]
    digest = hashlib.sha256()
    for name in [*own, "corpus.py", "tokenizer.py"]:
        tree = ast.parse(package.joinpath(name).read_text("utf-8"))
        for node in ast.walk(tree):
            documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            if documented and ast.get_docstring(node, clean=False) is not None:
                node.body[0] = ast.Pass()
        digest.update(ast.unparse(tree).encode() + b"\0")
    return digest.hexdigest()
