"""Configurations: the four sizes, and an error that names the entry for everything impossible."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from d2lgpt.config import GPT_CONFIG_124M, check_config, check_rate, check_whole, gpt2_config


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


def test_a_configuration_is_a_dictionary():
    with pytest.raises(TypeError, match="a configuration is a dictionary, not a str"):
        check_config("small")
    with pytest.raises(ValueError, match=r"\['small'\]: choose one of small, medium"):
        gpt2_config(["small"])


# --- numbers at the doors ------------------------------------------------------------------------

SCALARS = [np.int64, np.array, torch.tensor, jnp.int32, jnp.array]


@pytest.mark.parametrize("scalar", SCALARS)
def test_whole_numbers_of_any_library(scalar):
    number = check_whole("steps", scalar(3))
    assert (number, type(number)) == (3, int)
    with pytest.raises(ValueError, match=r"steps must be a whole number of at least 4, not .*3"):
        check_whole("steps", scalar(3), least=4)


@pytest.mark.parametrize("scalar", [float, np.float32, torch.tensor, jnp.float32])
def test_rates_of_any_library(scalar):
    rate = check_rate("dropout", scalar(0.25))
    assert (rate, type(rate)) == (0.25, float)
    with pytest.raises(ValueError, match=r"dropout must be a number between 0 and 1, not .*2\."):
        check_rate("dropout", scalar(2.0))


@pytest.mark.parametrize("check", [check_whole, check_rate])
@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        torch.tensor(True),
        jnp.array(True),
        "1",
        None,
        1j,
        [1],
        np.array([1]),
        torch.tensor([1]),
        jnp.array([1]),
        torch.empty((), dtype=torch.int64, device="meta"),
        jax.ShapeDtypeStruct((), "int32"),
        float("nan"),
    ],
    ids=str,
)
def test_what_is_no_number(check, value):
    with pytest.raises(ValueError, match=r"^steps must be a (whole )?number .*, not "):
        check("steps", value)


@pytest.mark.parametrize("value", [1e4, np.float64(1e4), torch.tensor(1e4), jnp.float32(1e4)])
def test_a_whole_number_in_the_form_of_a_float_is_told_what_to_write(value):
    with pytest.raises(ValueError, match=r"num_train must be a whole .*10000\..*: write 10000$"):
        check_whole("num_train", value)


def test_a_number_that_jax_traces_is_named():
    with pytest.raises(ValueError, match=r"steps must be a whole number of at least 1, not .*int"):
        jax.jit(lambda n: check_whole("steps", n))(3)


def test_a_configuration_comes_back_with_numbers_of_python():
    odd = {**GPT_CONFIG_124M, "emb_dim": jnp.int32(768), "n_heads": torch.tensor(12)}
    cfg = check_config({**odd, "drop_rate": np.float64(0.1), "vocab_size": np.int64(50257)})
    assert cfg == GPT_CONFIG_124M
    assert {type(value) for value in cfg.values()} == {int, float, bool}
