"""The census: published counts, without memory for the weights."""

from functools import partial

import pytest
from both import BACKENDS, small_config
from facts import assert_fact
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lgpt.census import parameter_census
from d2lgpt.config import GPT_CONFIG_124M, gpt2_config

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)


@both
def test_the_published_census(backend):
    model = backend.abstract(lambda: backend.scratch.GPTModel(GPT_CONFIG_124M, **backend.rngs()))
    count = backend.root.count_parameters
    total, head, table = count(model), count(model.out_head), count(model.tok_emb)
    assert_fact("census.total", total)
    assert_fact("census.tied", total - head)
    assert_fact("census.table", head)
    assert_fact("census.table", table)
    assert_fact("census.mb", total * 4 / 1024**2)


@both
@pytest.mark.parametrize(
    ("size", "total", "tied"),
    [
        ("medium", 406_212_608, 354_749_440),
        ("large", 838_220_800, 773_891_840),
        ("xl", 1_637_792_000, 1_557_380_800),
    ],
)
def test_the_other_sizes(backend, size, total, tied):
    cfg = gpt2_config(size)
    model = backend.abstract(lambda: backend.scratch.GPTModel(cfg, **backend.rngs()))
    count = backend.root.count_parameters
    assert (count(model), count(model) - count(model.out_head)) == (total, tied)


@both
def test_the_parts_of_a_block(backend):
    make = lambda: backend.scratch.TransformerBlock(GPT_CONFIG_124M, **backend.rngs())  # noqa: E731
    block = backend.abstract(make)
    assert backend.root.count_parameters(block.ff) == 4_722_432
    assert backend.root.count_parameters(block.att) == 2_360_064


@both
def test_dropout_has_no_parameters(backend):
    counts = {
        backend.root.count_parameters(
            backend.scratch.GPTModel(small_config(drop_rate=rate), **backend.rngs())
        )
        for rate in (0.0, 0.1)
    }
    assert len(counts) == 1


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 8), st.integers(1, 3), st.integers(1, 60), st.booleans())
def test_arithmetic_agrees_with_both_backends(heads, head_dim, layers, vocab, bias):
    shape = {"n_heads": heads, "emb_dim": heads * head_dim, "n_layers": layers}
    cfg = small_config(**shape, vocab_size=vocab, qkv_bias=bias)
    for backend in BACKENDS:
        make = partial(backend.scratch.GPTModel, cfg)
        model = backend.abstract(lambda make=make, backend=backend: make(**backend.rngs()))
        assert backend.root.count_parameters(model) == sum(parameter_census(cfg).values())
