"""The pages around the chapters say what is so.

Outcomes and concepts are those that were fixed, and each chapter lists its own; the glossary is
plain and complete; what *How to use this book* promises happens when you do it.
"""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
NOTEBOOKS = ROOT / "notebooks"


def page(name):
    return (BOOK / f"{name}.md").read_text("utf-8")


def sentences(text):
    return len(re.findall(r"[.!?](?=\s|$)", text.strip()))


# --------------------------------------------------------------------------- outcomes and concepts

# Chapter → the outcomes and the concepts that it serves.
SERVES = {
    "01_dummy_gpt": (
        "gpt-configuration-and-skeleton",
        "gpt-architecture transformer-block layer-normalization",
    ),
    "02_layer_norm": ("layer-normalization", "layer-normalization"),
    "03_feed_forward": ("gelu-and-feed-forward", "gelu-activation feed-forward-network"),
    "04_shortcut_connections": ("shortcut-connections", "shortcut-connections"),
    "05_transformer_block": (
        "transformer-block layer-normalization shortcut-connections",
        "transformer-block layer-normalization feed-forward-network shortcut-connections",
    ),
    "06_gpt_model": (
        "assembling-the-gpt-model transformer-block gelu-and-feed-forward",
        "gpt-architecture transformer-block layer-normalization",
    ),
    "07_parameter_census": ("parameter-count-and-memory", "weight-tying"),
    "08_generating_text": (
        "autoregressive-greedy-generation",
        "greedy-decoding gpt-architecture",
    ),
    "09_language_model": (
        "configurable-language-model rotary-positions",
        "gpt-architecture gated-feed-forward-network rotary-position-embedding weight-tying "
        "cross-entropy training-compute",
    ),
    "10_training": (
        "training-a-language-model normalization-placement",
        "cross-entropy memorization normalization-placement",
    ),
    "11_sampling": (
        "sampling-from-a-model",
        "temperature-and-truncation memorization greedy-decoding",
    ),
    "12_loading_gpt2": (
        "loading-pretrained-weights",
        "checkpoint-layout byte-pair-encoding weight-tying cross-entropy",
    ),
    "13_key_value_cache": ("generating-with-a-cache", "key-value-cache"),
}
OUTCOMES = [
    "gpt-configuration-and-skeleton",
    "layer-normalization",
    "gelu-and-feed-forward",
    "shortcut-connections",
    "transformer-block",
    "assembling-the-gpt-model",
    "parameter-count-and-memory",
    "autoregressive-greedy-generation",
    "configurable-language-model",
    "rotary-positions",
    "training-a-language-model",
    "normalization-placement",
    "sampling-from-a-model",
    "loading-pretrained-weights",
    "generating-with-a-cache",
]
CONCEPTS = [
    "gpt-architecture",
    "layer-normalization",
    "gelu-activation",
    "feed-forward-network",
    "shortcut-connections",
    "transformer-block",
    "weight-tying",
    "greedy-decoding",
    "rotary-position-embedding",
    "gated-feed-forward-network",
    "cross-entropy",
    "training-compute",
    "memorization",
    "normalization-placement",
    "temperature-and-truncation",
    "byte-pair-encoding",
    "checkpoint-layout",
    "key-value-cache",
]


def definitions(kind):
    """Identifier → definition, in the order of the page."""
    blocks = re.findall(
        rf"^```\{{{kind}\}} (\S+)\n(.*?)^```$", page("outcomes_and_concepts"), re.M | re.S
    )
    return dict(blocks)


def boxes(chapter):
    """The closed boxes of a notebook, each as a dictionary of its options."""
    notebook = nbformat.read(NOTEBOOKS / f"{chapter}.ipynb", as_version=4)
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    found = re.findall(r"^```\{serves\}\n(.*?)^```$", text, re.M | re.S)
    return text, [dict(re.findall(r"^:(\w+): *(.*)$", box, re.M)) for box in found]


def test_the_identifiers_are_the_fixed_ones_in_their_order():
    assert list(definitions("outcome")) == OUTCOMES
    assert list(definitions("concept")) == CONCEPTS


@pytest.mark.parametrize("kind", ["outcome", "concept"])
def test_each_is_defined_in_one_to_three_sentences(kind):
    for name, text in definitions(kind).items():
        assert 1 <= sentences(text) <= 3, name


@pytest.mark.parametrize("chapter", SERVES)
def test_a_chapter_lists_what_it_serves_before_its_exercises(chapter):
    if not (NOTEBOOKS / f"{chapter}.ipynb").is_file():
        pytest.skip(f"{chapter} is not written yet")
    text, found = boxes(chapter)
    assert len(found) == 1
    listed = [re.split(r"[,\s]+", found[0][kind]) for kind in ("outcomes", "concepts")]
    assert listed == [names.split() for names in SERVES[chapter]]
    assert text.index("```{serves}") < text.index("## Exercises")


def test_every_identifier_is_served_by_a_chapter():
    assert {name for served, _ in SERVES.values() for name in served.split()} == set(OUTCOMES)
    assert {name for _, served in SERVES.values() for name in served.split()} == set(CONCEPTS)


# ---------------------------------------------------------------------------------------- glossary


def glossary():
    """Term → definition."""
    body = re.search(r"^```\{glossary\}\n:sorted:\n(.*?)^```$", page("glossary"), re.M | re.S)[1]
    entries = re.findall(r"^(\S.*)\n((?:  .*\n|\n)+)", body, re.M)
    return {term: re.sub(r"\s+", " ", text).strip() for term, text in entries}


def test_the_glossary_has_the_words_of_part_one():
    terms = glossary()
    assert len(terms) >= 40
    wanted = """token, vocabulary, embedding, logits, softmax, broadcasting, context length, head,
        mask, causal mask, residual connection, shortcut connection, layer normalization, epsilon,
        biased variance, dropout, parameter, buffer, pytree, tracing, jit, compilation, key (PRNG),
        kernel (weights), ablation, autoregressive, greedy decoding, weight tying, meta device,
        abstract model, parity, fused kernel"""
    assert [term for term in re.split(r",\s+", wanted) if term not in terms] == []


def test_the_glossary_has_the_words_of_part_two():
    terms = glossary()
    wanted = """rotary position embedding, RMS normalization, SwiGLU, SiLU, weight tying, FLOP,
        cross-entropy, nat, entropy, perplexity, AdamW, learning rate, weight decay, warmup,
        plateau, budget, training loss, validation loss, overfitting, memorization, temperature,
        sampling, top-k sampling, nucleus sampling, byte-pair encoding, checkpoint, safetensors,
        stand-in"""
    assert [term for term in re.split(r",\s+", wanted) if term not in terms] == []


def test_each_term_is_explained_in_one_to_three_sentences():
    for term, text in glossary().items():
        assert 1 <= sentences(text) <= 3, term


# ---------------------------------------------------------------------------- how to use this book


def test_the_jobs_and_files_that_are_named_exist():
    text = page("how_to_use")
    jobs = set(re.findall(r"\bmake ([a-z]+)$|`make ([a-z]+)`", text, re.M))
    jobs = {first or second for first, second in jobs}
    assert {"lab", "book", "test", "serve", "listings", "notebooks"} <= jobs
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [job for job in jobs if not re.search(rf"^{job}:", makefile, re.M)] == []
    files = set(re.findall(r"`((?:[\w.]+/)*[\w]+\.(?:md|py|json|yml))`", text)) - {"vocab.json"}
    assert "d2lgpt/jax/scratch.py" in files
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_data_are_looked_for_where_the_page_says():
    from d2lgpt import budget, checkpoint, files, tokenizer
    from d2lgpt.exercises import record

    text = page("how_to_use")
    source = "".join(
        Path(room.__file__).read_text("utf-8") for room in (budget, checkpoint, files, record)
    )
    for name in set(re.findall(r"D2LGPT_\w+", text)):
        assert name in source
    for file in (tokenizer.MERGES, tokenizer.VOCAB):
        assert f"`{file.name}`" in text
        assert f"`{file.package}`" in text


@pytest.fixture
def run():
    """Run the source of a cell in a new IPython; return what it prints and its error, if any."""
    pytest.importorskip("torch")
    pytest.importorskip("flax")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell()

    def run(source):
        with capture_output() as captured:
            result = shell.run_cell(source)
        return captured.stdout, result.error_before_exec or result.error_in_exec

    return run


def test_the_three_cells_do_what_the_page_says(run):
    cells = re.findall(r"^```python\n(.*?)^```$", page("how_to_use"), re.M | re.S)
    *code, last, _ = cells
    assert len(code) == 2
    for source in ["%load_ext d2lgpt", *code]:
        assert run(source)[1] is None
    call, printed = last.split("#")
    assert run(call)[0].strip() == printed.strip()


def test_an_answer_gets_the_sentence_that_the_page_shows(run, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))
    *_, code = re.findall(r"^```python\n(.*?)^```$", page("how_to_use"), re.M | re.S)
    said = re.search(r"check\(.*?# (.*)", code)[1]
    printed, error = run(code)
    assert error is None
    assert printed.splitlines()[0] == said


def test_the_change_has_the_effect_that_the_page_describes(run):
    text = page("how_to_use")
    old, new = re.search(r"replace `(.*?)` by\s+`(.*?)`", text).groups()
    notebook = nbformat.read(NOTEBOOKS / "02_layer_norm.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    changed, outputs = 0, {"pytorch": "", "jax": "", "shared": ""}
    for cell in code:
        tags = cell.metadata.get("tags", [])
        side = next((tag for tag in tags if tag in outputs), "shared")
        source = cell.source
        if side == "jax" and "class LayerNorm" in source:
            assert source.startswith("%%jax") and old in source
            source, changed = source.replace(old, new), changed + 1
        printed, error = run(source)
        outputs[side] += printed
        if "parity" in tags:
            assert isinstance(error, AssertionError)
            break
        assert error is None
    assert changed == 1
    after = text[text.index("The JAX cell that prints the variances") :]
    jax, torch = re.findall(r"(\d\.\d{4}) and\s+(\d\.\d{4})", after)
    assert all(number in outputs["jax"] for number in jax)
    assert all(number in outputs["pytorch"] for number in torch)
    assert not any(number in outputs["jax"] for number in torch)
    assert re.search(r"prints `(.*?)`", after)[1] in outputs["shared"]
