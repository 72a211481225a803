"""Configurations: the four sizes, and an error that names the entry for everything impossible."""

import pytest

from d2lgpt.config import GPT_CONFIG_124M, check_config, gpt2_config


def test_the_configuration_of_the_book():
    assert GPT_CONFIG_124M == {
        "vocab_size": 50257,
        "context_length": 1024,
        "emb_dim": 768,
        "n_heads": 12,
        "n_layers": 12,
        "drop_rate": 0.1,
        "qkv_bias": False,
    }


@pytest.mark.parametrize(
    ("size", "width", "blocks", "heads"),
    [
        ("small", 768, 12, 12),
        ("medium", 1024, 24, 16),
        ("large", 1280, 36, 20),
        ("xl", 1600, 48, 25),
    ],
)
def test_the_four_sizes(size, width, blocks, heads):
    cfg = gpt2_config(size)
    assert (cfg["emb_dim"], cfg["n_layers"], cfg["n_heads"]) == (width, blocks, heads)
    rest = ("vocab_size", "context_length", "drop_rate", "qkv_bias")
    assert all(cfg[key] == GPT_CONFIG_124M[key] for key in rest)


def test_overrides_make_a_new_dictionary():
    before = dict(GPT_CONFIG_124M)
    cfg = gpt2_config("small", drop_rate=0.0, qkv_bias=True)
    assert (cfg["drop_rate"], cfg["qkv_bias"]) == (0.0, True)
    cfg["emb_dim"] = 1
    assert before == GPT_CONFIG_124M


def test_an_unknown_size_is_an_error_that_lists_the_sizes():
    with pytest.raises(ValueError, match=r"'tiny'.*small, medium, large, xl"):
        gpt2_config("tiny")


@pytest.mark.parametrize("key", list(GPT_CONFIG_124M))
def test_a_missing_entry_is_named(key):
    cfg = {k: v for k, v in GPT_CONFIG_124M.items() if k != key}
    with pytest.raises(ValueError, match=key):
        check_config(cfg)


def test_an_unknown_entry_is_named():
    with pytest.raises(ValueError, match=r"dropout.*drop_rate"):
        check_config({**GPT_CONFIG_124M, "dropout": 0.1})
    with pytest.raises(ValueError, match="n_layer"):
        gpt2_config("small", n_layer=3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocab_size", 0),
        ("context_length", -1),
        ("emb_dim", 768.0),
        ("n_heads", "12"),
        ("n_layers", None),
        ("n_layers", True),
        ("n_heads", 7),  # does not divide 768
        ("drop_rate", -0.1),
        ("drop_rate", 1.5),
        ("drop_rate", float("nan")),
        ("drop_rate", None),
        ("qkv_bias", 1),
        ("qkv_bias", "False"),
    ],
)
def test_an_impossible_entry_is_named(key, value):
    with pytest.raises(ValueError, match=key):
        check_config({**GPT_CONFIG_124M, key: value})
