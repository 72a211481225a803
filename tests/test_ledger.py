"""The reproduction ledger: its values are what the code gives, and its page says what they are."""

import importlib.util
import io
import json
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pytest
from facts import FACTS, assert_fact

from d2lgpt import corpus
from d2lgpt.checkpoint import gpt2_file_config, stand_in_path
from d2lgpt.recorded import EXPERIMENTS, Record, fingerprint, write_record

pytest.importorskip("torch")
pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("compiled_as_for_a_reader")

BOOK = Path(__file__).resolve().parents[1] / "book"
SPEC = importlib.util.spec_from_file_location("make_ledger", BOOK / "_scripts/ledger.py")
command = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(command)

LEDGER = json.loads((BOOK / "ledger.json").read_text("utf-8"))
backends = pytest.mark.parametrize("b", command.BACKENDS, ids=lambda b: b.name)


@pytest.mark.slow
@backends
def test_every_cheap_row_is_what_the_code_gives(b):
    values = command.cheap(b)
    cheap = {name for name, fact in FACTS.items() if fact["budget"] == "cheap"}
    missing = cheap - set(values)
    if corpus.time_machine().source.startswith("The Time Machine"):
        assert not missing
    assert missing <= {"entropy.unigram", "entropy.bigram"}
    assert set(values) <= cheap
    for name, value in values.items():
        assert_fact(name, command.plain(value))
        entry = LEDGER[name][b.name]
        assert entry["status"] == "reproduced"
        if isinstance(entry["value"], str):
            assert entry["value"] == value
        else:
            np.testing.assert_allclose(
                np.asarray(entry["value"], float), np.asarray(value, float), rtol=2e-4, atol=1e-6
            )


def test_every_fact_has_a_row_and_nothing_is_hidden():
    assert set(LEDGER) == set(FACTS)
    for name, row in LEDGER.items():
        backend = FACTS[name]["backend"]
        assert set(row) == ({"torch", "jax"} if backend == "both" else {backend})
        for entry in row.values():
            if "value" in entry:
                verdict = command.reproduced(FACTS[name], entry["value"])
                assert entry["status"] == ("reproduced" if verdict else "not reproduced")
            else:
                assert entry["status"] == "not run here"
                assert entry["why"]


def test_rows():
    facts = [
        {"id": "a", "value": 7, "backend": "both", "budget": "cheap"},
        {"id": "b", "value": [1.0, 2.0], "backend": "torch", "budget": "full", "abs": 0.1},
        {"id": "c", "value": 49, "backend": "jax", "budget": "weights", "rel": 0.01},
    ]
    values = {"torch": {"a": 7, "b": [1.05, 2.2]}, "jax": {"a": 8}}
    assert command.rows(facts, values) == {
        "a": {
            "torch": {"value": 7, "status": "reproduced"},
            "jax": {"value": 8, "status": "not reproduced"},
        },
        "b": {"torch": {"value": [1.05, 2.2], "status": "not reproduced"}},
        "c": {"jax": {"status": "not run here", "why": command.WHY_NOT["weights"]}},
    }


@pytest.mark.parametrize(
    ("fact", "value", "expected"),
    [
        ({"value": 2.0, "abs": 0.1}, 2.09, True),
        ({"value": 2.0, "abs": 0.1}, 2.11, False),
        ({"value": 2.0, "rel": 0.1}, 2.19, True),
        ({"value": [1, 2], "abs": 0.1}, [1, 2, 3], False),
        ({"value": [1, 2]}, [1, 2], True),
        ({"value": [1, 2]}, [2, 1], False),
        ({"value": "text"}, "text", True),
    ],
)
def test_a_tolerance_is_kept(fact, value, expected):
    assert command.reproduced(fact, value) is expected


def test_full_rows_come_from_recorded_runs(tmp_path):
    assert command.full(command.PyTorch, tmp_path) == {}
    settings = EXPERIMENTS["training"]
    run = Record(
        name="training",
        backend="torch",
        settings=settings,
        losses=[],
        train=[2.0, 1.4, 1.2, 1.0, 0.9, 0.7, 0.5, 0.3, 0.2, 0.14],
        val=[1.5, 1.6, 1.8, 2.0, 2.3, 2.6, 2.9, 3.1, 3.3, 3.5],
        samples=[],
        corpus="",
        device="",
        versions={},
        date="2026-11-29",
        seconds=1,
        fingerprint=fingerprint("torch"),
    )
    write_record(run, tmp_path)
    write_record(
        replace(run, name="post-norm", settings=EXPERIMENTS["post-norm"], train=[2.83] * 4),
        tmp_path,
    )
    assert command.full(command.PyTorch, tmp_path) == {
        "train.torch.best": 1.5,
        "train.torch.beststep": 200,
        "train.torch.final": [0.14, 3.5],
        "norm.post": [2.83] * 4,
    }
    write_record(replace(run, fingerprint="of other code"), tmp_path)
    assert set(command.full(command.PyTorch, tmp_path)) == {"norm.post"}


def test_a_loaded_file_says_the_same_in_both_backends():
    """What `make ledger` does with the released weights, done with the stand-in."""
    cfg = gpt2_file_config(stand_in_path())
    names = ("vocab_size", "emb_dim", "n_heads", "n_layers", "context_length")
    sizes = [cfg[name] for name in names]
    a, b = (command.loaded(backend, stand_in_path(), *sizes) for backend in command.BACKENDS)
    assert a["gpt2.loss"] == pytest.approx(b["gpt2.loss"], abs=1e-4)
    assert a["gpt2.loss"] == pytest.approx(5.84, abs=0.1)
    assert a["gpt2.ppl"] == pytest.approx(np.exp(a["gpt2.loss"]))
    assert a["gpt2.greedy"] == b["gpt2.greedy"]
    assert set(a) == {name for name, fact in FACTS.items() if fact["budget"] == "weights"}


# ---- The page -----------------------------------------------------------------------------------

FACTS_OF_PAGE = [
    {"id": "x.y", "chapter": 2, "what": "a mean", "value": 0.5, "backend": "both", "abs": 0.01},
    {"id": "z", "chapter": 2, "what": "ids", "value": [1, 2], "backend": "jax", "note": "a note"},
]
LEDGER_OF_PAGE = {
    "x.y": {
        "torch": {"value": 0.501, "status": "reproduced"},
        "jax": {"value": 0.7, "status": "not reproduced"},
    },
    "z": {"jax": {"status": "not run here", "why": "needs patience"}},
}


@pytest.fixture
def build(tmp_path, monkeypatch):
    pytest.importorskip("myst_nb", reason="the book's tools are not installed")
    from bs4 import BeautifulSoup
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    monkeypatch.syspath_prepend(str(BOOK / "_ext"))

    def build(facts_of_cells: str):
        source = tmp_path / "source"
        (source / "notebooks").mkdir(parents=True, exist_ok=True)
        metadata = {"facts": facts_of_cells} if facts_of_cells else {}
        cells = [
            nbformat.v4.new_markdown_cell("# Two"),
            *(
                nbformat.v4.new_code_cell(f"%%{tag}\nx", metadata={"tags": [tag], **metadata})
                for tag in ("pytorch", "jax")
            ),
        ]
        language = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
        nbformat.write(
            nbformat.v4.new_notebook(cells=cells, metadata=language),
            source / "notebooks/02_two.ipynb",
        )
        (source / "index.md").write_text(
            "# Ledger\n\n```{toctree}\nnotebooks/02_two\n```\n\n"
            "```{ledger} facts.json ledger.json\n```\n"
        )
        (source / "facts.json").write_text(json.dumps(FACTS_OF_PAGE))
        (source / "ledger.json").write_text(json.dumps(LEDGER_OF_PAGE))
        config = {
            "extensions": ["myst_nb", "backend_tabs", "ledger"],
            "nb_execution_mode": "off",
            "html_theme": "basic",
            "suppress_warnings": ["config.cache"],
        }
        warnings = io.StringIO()
        folders = (str(source), None, str(tmp_path / "out"), str(tmp_path / "trees"))
        with docutils_namespace():
            Sphinx(*folders, "html", config, status=None, warning=warnings).build()
        pages = {
            name: BeautifulSoup((tmp_path / f"out/{name}.html").read_text("utf-8"), "html.parser")
            for name in ("index", "notebooks/02_two")
        }
        return pages, warnings.getvalue()

    return build


def test_a_row_says_all_and_leads_to_its_cell(build):
    pages, warnings = build("x.y z")
    assert warnings == ""
    first, second = pages["index"].select("table.ledger tbody tr")
    what, published, torch, jax = first.select("td")
    assert what.a["href"] == "notebooks/02_two.html#fact-x-y"
    assert pages["notebooks/02_two"].select("#fact-x-y, #fact-z")[1]["id"] == "fact-z"
    assert published.get_text(" ", strip=True) == "0.5 ± 0.01"
    assert torch.get_text(" ", strip=True) == "0.501 ✓ reproduced"
    assert jax.get_text(" ", strip=True) == "0.7 ✗ not reproduced"
    what, published, torch, jax = second.select("td")
    assert what.get_text(" ", strip=True) == "ids a note"
    assert published.get_text(" ", strip=True) == "[1, 2]"
    assert torch.get_text(" ", strip=True) == "published for the other backend"
    assert jax.get_text(" ", strip=True) == "not run here: needs patience"
    # The anchor stands outside the tabs, where a browser can go whichever tab is shown.
    target = pages["notebooks/02_two"].select_one("#fact-x-y")
    assert not target.find_parents(class_="sd-tab-content")


def test_a_fact_without_a_cell_is_a_warning_and_its_cell_may_come_later(build):
    assert "no cell of chapter 2 has z in its metadata" in build("x.y")[1]
    pages, warnings = build("x.y z")
    assert warnings == ""
    assert pages["index"].find("a", href="notebooks/02_two.html#fact-z")
