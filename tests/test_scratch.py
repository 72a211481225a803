"""The classes of Part I: published figures, parity, and the layer traps, in both backends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, in_one_go, small_config, to_numpy, twins
from facts import assert_fact
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lgpt.config import GPT_CONFIG_124M
from d2lgpt.parity import copy_weights, max_abs_diff

pytestmark = pytest.mark.usefixtures("compiled_as_for_a_reader")

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
few = settings(max_examples=6, deadline=None, derandomize=True)


# --- chapter 1: the outline ------------------------------------------------------------------


@both
def test_dummy_model_gives_logits_of_the_published_shape(backend):
    model = backend.abstract(
        lambda: backend.scratch.DummyGPTModel(GPT_CONFIG_124M, **backend.rngs())
    )
    ids = [[6109, 3626, 6100, 345], [6109, 1110, 6622, 257]]
    if backend is JAX:
        shape = nnx.eval_shape(lambda model, ids: model(ids), model, jnp.array(ids)).shape
    else:
        shape = model(torch.tensor(ids, device="meta")).shape
    assert_fact("dummy.shape", tuple(shape))


@both
def test_a_square_matrix_of_2048(backend):
    layer = backend.abstract(lambda: backend.Linear(2048, 2048))
    weights = layer.kernel if backend is JAX else layer.weight
    assert_fact("matrix.params", np.prod(weights.shape))


@both
def test_the_dummies_do_nothing(backend):
    x = backend.array(np.random.default_rng(0).normal(size=(2, 3, 24)).astype("float32"))
    block = backend.scratch.DummyTransformerBlock(small_config(), **backend.rngs())
    assert max_abs_diff(block(x), x) == 0
    assert max_abs_diff(backend.scratch.DummyLayerNorm(24, **backend.rngs())(x), x) == 0


# --- chapter 2: layer normalization ----------------------------------------------------------


@pytest.fixture(scope="module")
def layer_output():
    torch.manual_seed(123)
    batch = torch.randn(2, 5)
    layer = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU())
    twin = copy_weights(layer, nnx.Sequential(nnx.Linear(5, 6, rngs=nnx.Rngs(0)), nnx.relu))
    return {"pytorch": layer(batch).detach(), "jax": twin(jnp.array(batch.numpy()))}


@both
def test_normalization_figures(backend, layer_output):
    out = layer_output[backend.name]
    rows = to_numpy(out)
    assert_fact("ln.out", rows)
    assert_fact("ln.mean", rows.mean(-1))
    assert_fact("ln.var", rows.var(-1, ddof=1))
    by_hand = (rows - rows.mean(-1, keepdims=True)) / rows.std(-1, ddof=1, keepdims=True)
    assert_fact("ln.hand", by_hand.mean(-1))
    normed = to_numpy(backend.scratch.LayerNorm(6, **backend.rngs())(out))
    assert_fact("ln.module.var", normed.var(-1))
    np.testing.assert_allclose(normed.mean(-1), 0, atol=1e-6)


@both
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1, 2, 3, 4], [-1.34164, -0.44721, 0.44721, 1.34164]),  # unbiased would give 1.1619
        ([1e-3, -1e-3] * 4, [0.3015, -0.3015] * 4),  # eps = 1e-6 would give 0.7071
        ([10000, 10001, 10002, 10003], [-1.3416, -0.4472, 0.4472, 1.3416]),  # one pass collapses
        ([5, 5, 5, 5], [0, 0, 0, 0]),
    ],
)
def test_layer_norm_of_telling_rows(backend, row, expected):
    norm = backend.scratch.LayerNorm(len(row), **backend.rngs())
    out = norm(backend.array(np.array([row], dtype="float32")))
    np.testing.assert_allclose(to_numpy(out)[0], expected, atol=6e-5)


# --- chapter 3: GELU and the feed-forward network --------------------------------------------


def test_gelu_agrees_everywhere():
    x = np.linspace(-8, 8, 1001, dtype="float32")
    ours = [to_numpy(b.scratch.GELU(**b.rngs())(b.array(x))) for b in BACKENDS]
    references = [
        torch.nn.functional.gelu(torch.tensor(x), approximate="tanh").numpy(),
        np.asarray(jax.nn.gelu(x, approximate=True)),
    ]
    for got in ours:
        for reference in references:
            # Up to 20 units in the last place of 8; the exact form is 4.7e-4 away.
            np.testing.assert_allclose(got, reference, rtol=0, atol=1e-5)
    assert np.isfinite(ours).all()


@both
def test_gelu_at_one_and_the_gap_to_the_exact_form(backend):
    gelu = backend.scratch.GELU(**backend.rngs())
    assert float(gelu(backend.array(np.float32([1.0])))[0]) == pytest.approx(0.84119, abs=5e-6)
    # The gap at x and -x is the same, and left of zero numbers are small: rounding is below 2e-7.
    x = np.linspace(-5, 0, 10001, dtype="float32")
    exact = torch.nn.functional.gelu(torch.tensor(x), approximate="none").numpy()
    assert_fact("gelu.gap", np.abs(to_numpy(gelu(backend.array(x))) - exact).max())


@both
def test_feed_forward_keeps_its_shape_and_treats_positions_alone(backend):
    ff = backend.scratch.FeedForward(GPT_CONFIG_124M, **backend.rngs())
    x = np.random.default_rng(1).normal(size=(2, 3, 768)).astype("float32")
    out = to_numpy(ff(backend.array(x)))
    assert_fact("ff.shape", out.shape)
    x[:, 1] += 1
    changed = to_numpy(ff(backend.array(x))) != out
    assert changed[:, 1].any() and not changed[:, [0, 2]].any()


# --- chapter 4: shortcuts --------------------------------------------------------------------


@pytest.mark.parametrize(("fact", "use_shortcut"), [("grad.plain", False), ("grad.shortcut", True)])
def test_gradient_means(fact, use_shortcut):
    sizes, x = [3, 3, 3, 3, 3, 1], [[1.0, 0.0, -1.0]]
    torch.manual_seed(123)
    a = PYTORCH.scratch.ExampleDeepNeuralNetwork(sizes, use_shortcut)
    b = copy_weights(a, JAX.scratch.ExampleDeepNeuralNetwork(sizes, use_shortcut, rngs=nnx.Rngs(0)))
    for backend, model in ((PYTORCH, a), (JAX, b)):
        means = backend.scratch.gradient_means(model, backend.array(x))
        assert_fact(fact, means)
        if not use_shortcut:
            assert_fact("grad.ratio", means[-1] / means[0])


def test_gradient_means_come_first_layer_first_beyond_ten_layers():
    sizes = 13 * [2] + [1]
    a, b = twins("ExampleDeepNeuralNetwork", sizes, True)
    x = np.float32([[1, -1]])
    means = [m.scratch.gradient_means(n, m.array(x)) for m, n in ((PYTORCH, a), (JAX, b))]
    assert len(means[0]) == len(sizes) - 1
    np.testing.assert_allclose(means[0], means[1], rtol=1e-4)


def test_gradient_means_leave_no_gradient_behind():
    model = PYTORCH.scratch.ExampleDeepNeuralNetwork([3, 3, 1], True)
    PYTORCH.scratch.gradient_means(model, torch.ones(1, 3))
    assert all(p.grad is None for p in model.parameters())


# --- chapter 5: attention and the block ------------------------------------------------------


def attention_by_loop(att: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    """Multi-head attention as it is defined: head by head, token by token, in float64."""
    w = {name: p.detach().double().numpy() for name, p in att.named_parameters()}
    B, T, _ = x.shape
    d = w["W_query.weight"].shape[0] // att.num_heads
    out = np.zeros((B, T, att.num_heads * d))
    q, k, v = (
        x @ w[f"{n}.weight"].T + w.get(f"{n}.bias", 0) for n in ("W_query", "W_key", "W_value")
    )
    for b in range(B):
        for h in range(att.num_heads):
            part = slice(h * d, (h + 1) * d)
            for t in range(T):
                scores = np.array([q[b, t, part] @ k[b, s, part] for s in range(t + 1)]) / d**0.5
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                out[b, t, part] = weights @ v[b, : t + 1, part]
    return out @ w["out_proj.weight"].T + w["out_proj.bias"]


@few
@given(
    heads=st.integers(1, 4),
    head_dim=st.integers(1, 5),
    d_in=st.integers(1, 9),
    T=st.integers(1, 7),
    bias=st.booleans(),
)
def test_attention_is_the_loop_over_heads(heads, head_dim, d_in, T, bias):
    a, b = twins("MultiHeadAttention", d_in, heads * head_dim, 7, 0.5, heads, bias)
    x = np.random.default_rng(0).normal(size=(2, T, d_in)).astype("float32")
    expected = attention_by_loop(a, x)
    np.testing.assert_allclose(to_numpy(a(torch.tensor(x))), expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(b(jnp.array(x))), expected, atol=1e-5)


@both
def test_attention_weights_of_two_tokens(backend):
    """Q = K = [[1, 0], [1, 1]], V = 1: each output is the weights times the values."""
    att = backend.scratch.MultiHeadAttention(2, 2, 2, 0.0, 1, **backend.rngs())
    x = np.float32([[[1, 0], [1, 1]]])
    eye, zero = np.eye(2, dtype="float32"), np.zeros(2, dtype="float32")
    for name in ("W_query", "W_key", "W_value", "out_proj"):
        set_linear(getattr(att, name), eye, zero if name == "out_proj" else None)
    weights = np.array([[1, 0], [0.3302, 0.6698]])
    np.testing.assert_allclose(to_numpy(att(backend.array(x)))[0], weights @ x[0], atol=5e-5)


def set_linear(layer, weight, bias):
    """Overwrite a linear layer of either backend (weight as PyTorch has it)."""
    if isinstance(layer, torch.nn.Module):
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            if bias is not None:
                layer.bias.copy_(torch.tensor(bias))
    else:
        layer.kernel[...] = jnp.array(weight.T)
        if bias is not None:
            layer.bias[...] = jnp.array(bias)


@both
@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", ["MultiHeadAttention", "TransformerBlock"])
def test_the_future_is_hidden_to_the_last_bit(backend, train, name):
    def build():
        torch.manual_seed(0)
        if name == "TransformerBlock":
            module = backend.scratch.TransformerBlock(small_config(), **backend.rngs())
        else:
            module = backend.scratch.MultiHeadAttention(24, 24, 12, 0.1, 3, **backend.rngs())
        module.train() if train else module.eval()
        torch.manual_seed(1)  # the same dropout in both runs
        return module

    x = np.random.default_rng(0).normal(size=(2, 8, 24)).astype("float32")
    out = to_numpy(build()(backend.array(x)))
    x[:, 5] += 10
    other = to_numpy(build()(backend.array(x)))
    assert (out[:, :5] == other[:, :5]).all()
    assert (out[:, 5:] != other[:, 5:]).any(axis=(0, 2)).all()


def test_the_block_keeps_its_shape():
    torch.manual_seed(123)
    x = torch.rand(2, 4, 768)
    a = PYTORCH.scratch.TransformerBlock(GPT_CONFIG_124M).eval()
    b = copy_weights(a, JAX.scratch.TransformerBlock(GPT_CONFIG_124M, rngs=nnx.Rngs(0)))
    b.eval()
    out = a(x)
    assert_fact("block.shape", tuple(out.shape))
    other = b(jnp.array(x.numpy()))
    assert_fact("block.shape", tuple(other.shape))
    assert max_abs_diff(out, other) < 1e-5


@both
def test_dropout_is_new_at_each_call_and_off_in_evaluation(backend):
    block = backend.scratch.TransformerBlock(small_config(drop_rate=0.5), **backend.rngs())
    x = backend.array(np.random.default_rng(0).normal(size=(1, 4, 24)).astype("float32"))
    step = nnx.jit(lambda block, x: block(x)) if backend is JAX else lambda block, x: block(x)
    assert max_abs_diff(step(block, x), step(block, x)) > 0
    block.eval()
    assert max_abs_diff(step(block, x), step(block, x)) == 0
    block.train()
    assert max_abs_diff(step(block, x), step(block, x)) > 0


# --- chapter 6: the model --------------------------------------------------------------------

configs = st.builds(
    lambda heads, head_dim, layers, vocab, context, bias: small_config(
        emb_dim=heads * head_dim,
        n_heads=heads,
        n_layers=layers,
        vocab_size=vocab,
        context_length=context,
        qkv_bias=bias,
    ),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(1, 9),
    st.booleans(),
)


@few
@given(configs, st.data())
@pytest.mark.parametrize("name", ["DummyGPTModel", "FeedForward", "TransformerBlock", "GPTModel"])
def test_both_backends_are_one_function(name, cfg, data):
    a, b = twins(name, cfg)
    T = data.draw(st.integers(1, cfg["context_length"]))
    rng = np.random.default_rng(0)
    if "GPT" in name:
        x = rng.integers(cfg["vocab_size"], size=(2, T))
    else:
        x = rng.normal(size=(2, T, cfg["emb_dim"])).astype("float32")
    with torch.no_grad():
        assert max_abs_diff(a(torch.tensor(x)), in_one_go(b, jnp.array(x))) < 1e-5


@both
def test_the_model_has_logits_of_the_published_shape(backend):
    model = backend.abstract(lambda: backend.scratch.GPTModel(GPT_CONFIG_124M, **backend.rngs()))
    if backend is JAX:
        ids = jnp.zeros((2, 4), dtype=int)
        shape = nnx.eval_shape(lambda model, ids: model(ids), model, ids).shape
    else:
        shape = model(torch.zeros(2, 4, dtype=torch.long, device="meta")).shape
    assert_fact("gpt.shape", tuple(shape))


def turned(stored: torch.Tensor) -> torch.Tensor:
    """A Conv1D weight, stored (in, out), as PyTorch's (out, in); a bias as it is."""
    return stored.T if stored.ndim == 2 else stored


def test_hugging_face_agrees():
    """An outside judge: GPT-2 of the transformers library with the same random weights."""
    transformers = pytest.importorskip("transformers")
    cfg = small_config(qkv_bias=True, drop_rate=0.0)
    judge = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=cfg["vocab_size"],
            n_positions=cfg["context_length"],
            n_embd=cfg["emb_dim"],
            n_layer=cfg["n_layers"],
            n_head=cfg["n_heads"],
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    theirs = judge.state_dict()
    ours = {"tok_emb.weight": theirs["transformer.wte.weight"]}
    ours["pos_emb.weight"] = theirs["transformer.wpe.weight"]
    ours["out_head.weight"] = theirs["lm_head.weight"]
    norms = [("final_norm", "transformer.ln_f")]
    for i in range(cfg["n_layers"]):
        block, h = f"trf_blocks.{i}", f"transformer.h.{i}"
        norms += [(f"{block}.norm1", f"{h}.ln_1"), (f"{block}.norm2", f"{h}.ln_2")]
        for kind in ("weight", "bias"):  # stored (in, out), and q, k, v side by side
            thirds = theirs[f"{h}.attn.c_attn.{kind}"].chunk(3, dim=-1)
            for name, third in zip(("W_query", "W_key", "W_value"), thirds, strict=True):
                ours[f"{block}.att.{name}.{kind}"] = turned(third)
            ours[f"{block}.att.out_proj.{kind}"] = turned(theirs[f"{h}.attn.c_proj.{kind}"])
            ours[f"{block}.ff.layers.0.{kind}"] = turned(theirs[f"{h}.mlp.c_fc.{kind}"])
            ours[f"{block}.ff.layers.2.{kind}"] = turned(theirs[f"{h}.mlp.c_proj.{kind}"])
    for name, norm in norms:
        ours[f"{name}.scale"], ours[f"{name}.shift"] = (
            theirs[f"{norm}.weight"],
            theirs[f"{norm}.bias"],
        )
    a = PYTORCH.scratch.GPTModel(cfg).eval()
    a.load_state_dict(ours, strict=True)
    b = copy_weights(a, JAX.scratch.GPTModel(cfg, rngs=nnx.Rngs(0)))
    b.eval()
    ids = np.random.default_rng(0).integers(cfg["vocab_size"], size=(2, 12))
    with torch.no_grad():
        expected = judge(torch.tensor(ids)).logits
        assert max_abs_diff(a(torch.tensor(ids)), expected) < 1e-5
    assert max_abs_diff(b(jnp.array(ids)), expected) < 1e-5
