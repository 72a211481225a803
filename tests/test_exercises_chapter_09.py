"""Chapter 9: two factors of the logits, a table that nearly reaches the bound, a trained loss."""

import math

import numpy as np
import pytest
from both import BACKENDS, to_numpy

from d2lgpt.exercises import check
from d2lgpt.exercises.chapter_09 import _cyclic_loss, _logits


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))


def scales(table, eps=1e-6, power=-0.5):
    return ((table**2).mean(1) + eps) ** power


def symmetric(table, gain):
    return (table * gain) @ table.T


def factors(table, gain):
    return scales(table), symmetric(table, gain)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_reference_is_the_model(backend):
    """The logits that the judge compares with are those of GPT itself."""
    model = backend.root.GPT(7, 16, num_blks=0, **backend.rngs())
    table = getattr(model.token_emb, "weight", None)
    table = to_numpy(model.token_emb.embedding[...] if table is None else table)
    gain = np.ones(16)
    logits = to_numpy(model(backend.array(np.arange(7)[None])))[0]
    np.testing.assert_allclose(logits, _logits(table, gain), atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_factors_of_either_backend(backend):
    def by_the_layer(table, gain):
        """The logits of the library's own layer, taken apart; other factors than the usual."""
        table, gain = to_numpy(table), to_numpy(gain)
        s = scales(table)
        M = _logits(table, gain) / s[:, None]
        return backend.array(3 * s), backend.array(M / 3)

    assert check("9.1a", by_the_layer)
    assert check("9.1a", factors)


MISTAKES = [
    (lambda t, g: (scales(t, 0), symmetric(t, g)), "epsilon is forgotten"),
    (lambda t, g: (scales(t, 1e-5), symmetric(t, g)), "epsilon is 1e-6 here"),
    (lambda t, g: (scales(t), t @ t.T), "the gain is forgotten"),
    (lambda t, g: (scales(t), symmetric(t, g * g)), "the gain occurs once"),
    (lambda t, g: (scales(t), symmetric(t, abs(g))), "keeps its sign"),
    (lambda t, g: (scales(t, power=0.5), symmetric(t, g)), "s is upside down"),
    (lambda t, g: (scales(t, power=-1), symmetric(t, g)), "s lacks a root"),
    (lambda t, g: (scales(t) / 3**0.5, symmetric(t, g)), "of the mean, not of the sum"),
    (lambda t, g: (scales(t) * 0 + 1, symmetric(t, g)), "nothing divides by the root mean"),
    (lambda t, g: (scales(t) * 0 + 1, scales(t)[:, None] * symmetric(t, g)), "is not symmetric"),
    (lambda t, g: (-scales(t), -symmetric(t, g)), "s is to be positive"),
    (lambda t, g: (scales(t), scales(t) * symmetric(t, g)), "only row i is normalized"),
    (lambda t, g: factors(t, g)[::-1], "have changed places"),
    (lambda t, g: (scales(t.T), symmetric(t, g)), "s has the shape (3,)"),
    (lambda t, g: (scales(t), (t * g).T @ t), "M has the shape (3, 3)"),
    (lambda t, g: scales(t)[:, None] * symmetric(t, g), "two arrays, s and M"),
    (lambda t, g: (scales(t), symmetric(t - t.mean(1)[:, None], g)), "is not the logit"),
    (lambda t, g: g @ t, "raised an error"),
]


@pytest.mark.parametrize(("answer", "text"), MISTAKES)
def test_a_mistake_in_factors(answer, text):
    verdict = check("9.1a", answer)
    assert not verdict
    assert text in str(verdict)


def sharp(t=100.0):
    table = [[1, 0, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], [0, 1, 0, 0, 1, math.sqrt(6) * t * t]]
    return np.array(table), t * np.array([1, 2, -2, -4, -(t * t + 2), 0])


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_table_near_the_bound(backend):
    table, gain = sharp()
    assert check("9.1c", (table, gain))
    assert check("9.1c", [backend.array(a.astype(np.float32)) for a in (table, gain)])
    assert check("9.1c", (table.tolist(), gain.tolist()))


def test_the_bound_is_one():
    """(ln 2)/3 is what the losses of these tables tend to, and none is below it."""
    losses = [_cyclic_loss(_logits(*sharp(t))) for t in (10, 100, 1000, 10_000)]
    assert np.all(np.diff(losses) < 0)
    assert 0 < losses[-1] - math.log(2) / 3 < 1e-4


TABLES = [
    ((sharp()[0], abs(sharp()[1])), "with gains all positive"),
    (sharp(20), "near."),
    ((sharp()[0][::-1], sharp()[1]), "this predicts kjikji"),
    ((sharp()[0], -sharp()[1]), "one context must pay ln 2"),
    ((np.eye(3), np.zeros(3)), "the loss is 1.099 nats"),
]


def test_a_table_beyond_all_bounds():
    assert "is no finite number" in str(check("9.1c", (np.full((3, 2), 1e300), np.full(2, 1e300))))


@pytest.mark.parametrize(("answer", "text"), TABLES)
def test_a_table_that_is_not_near(answer, text):
    verdict = check("9.1c", answer)
    assert not verdict
    assert text in str(verdict)


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        (sharp()[::-1], "the gain before the table"),
        (sharp()[0], "an array of shape (3, 6)"),
        ((np.ones((4, 2)), np.ones(2)), "arrays of the shapes (4, 2) and (2,)"),
        ((np.ones((3, 2)), np.ones(3)), "arrays of the shapes (3, 2) and (3,)"),
        ((np.ones((3, 2)), [1, float("nan")]), "arrays with NaN or infinity in them"),
        ((np.ones((3, 2)), "one"), "a pair with a str in it"),
    ],
)
def test_another_form_is_one_sentence(answer, form):
    text = str(check("9.1c", answer))
    assert text.startswith("9.1c: this exercise expects a pair (table, gain)")
    assert text.endswith(f", not {form}.")


# Measured in both backends: 2.45 to 2.46 in the quick budget; 2.43 is what full batches tend to.
@pytest.mark.parametrize("loss", [2.43, 2.447, 2.464, 2.478, "2.45", np.float32(2.46)])
def test_an_honest_loss(loss):
    assert check("9.1d", loss)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (-2.45, "is positive"),
        (11.6, "a perplexity"),
        (2.45 / math.log(2), "is it in bits"),
        (2.76, "the gain among them"),  # gains held at 1
        (2.83, "take all 2,000 steps"),  # the unigram level
        (2.29, "with a head of its own"),
        (2.277, "near the bigram entropy"),
        (1.5, "the model is to have no blocks"),
    ],
)
def test_a_loss_that_is_another_models(loss, text):
    verdict = check("9.1d", loss)
    assert not verdict
    assert text in str(verdict)
