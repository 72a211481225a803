"""The exercises of chapter 11: right answers in each backend, and the mistakes people make."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from d2lgpt.exercises import check


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))


def rejected(id, answer, text):
    verdict = check(id, answer)
    assert not verdict
    assert text in str(verdict)


# --- 11.1: recall ---


def recall(text, training_text, length=20, step=1):
    windows = [text[i : i + length] for i in range(0, len(text) - length + 1, step)]
    return sum(w in training_text for w in windows) / len(windows) if windows else 0.0


def set_recall(text, training_text):
    windows = {text[i : i + 20] for i in range(len(text) - 19)}
    return sum(w in training_text for w in windows) / len(windows) if windows else 0


def without_last(text, training_text):
    windows = [text[i : i + 20] for i in range(len(text) - 20)]
    return sum(w in training_text for w in windows) / max(1, len(windows))


def of_the_book_without_its_last(text, training_text):
    known = {training_text[i : i + 20] for i in range(len(training_text) - 20)}
    windows = [text[i : i + 20] for i in range(len(text) - 19)]
    return sum(w in known for w in windows) / max(1, len(windows))


def fragile(text, training_text):
    windows = [text[i : i + 20] for i in range(len(text) - 19)]
    return sum(w in training_text for w in windows) / len(windows)


def test_recall_is_right():
    assert check("11.1a", (recall, 0.55, 0.0035))
    assert check("11.1a", [recall, torch.tensor(0.4), jnp.array(0.017)])
    assert check("11.1a", (lambda t, b: np.float64(recall(t, b)), 0.9, 0))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda t, b: 100 * recall(t, b), "percent"),
        (lambda t, b: recall(t, b) * max(0, len(t) - 19), "divide by how many there are"),
        (lambda t, b: recall(t, b) * max(0, len(t) - 19) / max(1, len(t)), "has n − 19 windows"),
        (lambda t, b: recall(t, b, length=19), "windows of 19 characters"),
        (lambda t, b: recall(t, b, length=21), "exactly 20 characters"),
        (lambda t, b: recall(t, b, step=20), "a window begins at every character"),
        (lambda t, b: recall(b, t), "should have recall 1"),
        (without_last, "exactly 20 characters is one window"),
        (of_the_book_without_its_last, "finds another fraction"),
        (set_recall, "comes twice in the text counts twice"),
        (fragile, "shorter than 20 characters"),
        (lambda t, b: float("nan"), "recall returns nan, which is no finite number, and should"),
        (lambda t, b: None, "recall returns None, and should return a fraction"),
        (lambda t, b: recall(t, b) or [0], "recall returns a list"),
    ],
)
def test_another_recall(function, text):
    rejected("11.1a", (function, 0.5, 0.0), text)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((recall, 55, 0.3), "not percent"),
        ((recall, 0.5, 1.0), "103,128"),
        ((recall, 0.0, 0.0035), "recites"),
        (recall, "expects a tuple"),
        ((recall, 0.5), "not a tuple of length 2"),
        ((0.5, 0.5, recall), "not a float in the place of the function"),
        ((recall, None, 0.1), "expects a tuple"),
    ],
)
def test_the_other_parts_of_recall(answer, text):
    rejected("11.1a", answer, text)


def test_early_stop_and_dropout():
    assert check("11.1b", 0.0)
    assert check("11.1c", [2.6, 40, 0.06])
    assert check("11.1c", (1.41, np.int64(400), 0.3))
    rejected("11.1b", 0.6, "hardly begun to recite")
    rejected("11.1b", 30, "not percent")
    rejected("11.1b", -0.1, "between 0 and 1")
    rejected("11.1b", None, "not answered yet")
    rejected("11.1c", [2.6, 3, 0.0], "count training steps")
    rejected("11.1c", [2.6, 40.5, 0.0], "count training steps")
    rejected("11.1c", [3.2, 240, 0.0], "report the lowest")
    rejected("11.1c", [0.2, 240, 0.0], "is this the training loss")
    rejected("11.1c", [2.6, 40, 6.0], "not percent")


# --- 11.2: temperature ---


def torch_tempered(logits, temperature):
    return torch.softmax((logits - logits.max()) / temperature, dim=-1)


def jax_tempered(logits, temperature):
    return jax.nn.softmax((logits - logits.max()) / temperature)


def numpy_tempered(logits, temperature):
    e = np.exp((np.asarray(logits) - np.max(np.asarray(logits))) / temperature)
    return e / e.sum()


@pytest.mark.parametrize("answer", [torch_tempered, jax_tempered, numpy_tempered])
def test_tempered_is_right(answer):
    assert check("11.2a", answer)


def by_hand(logits, temperature):
    e = torch.exp(logits / temperature)
    return e / e.sum()


def halfway(logits, temperature):  # takes the largest off too late
    e = torch.exp(logits - logits.max()) ** (1 / temperature)
    return e / e.sum()


def one_hot_when_cold(logits, temperature):
    if temperature < 0.01:
        return torch.nn.functional.one_hot(logits.argmax(), len(logits)).float()
    return torch_tempered(logits, temperature)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (by_hand, "leaves the range of a float"),
        (lambda z, t: torch_tempered(z, 1 / t), "multiplied by the temperature"),
        (lambda z, t: torch_tempered(z, 1), "gives the same probabilities"),
        (lambda z, t: torch.softmax(z, -1) / t, "the temperature belongs inside"),
        (lambda z, t: torch.log_softmax(z / t, -1), "add up to"),
        (lambda z, t: torch.exp(z / t), "add up to"),
        (lambda z, t: torch.softmax(-z / t, -1), "should be the softmax"),
        (lambda z, t: torch.softmax(z / t, -1).max(), "shape"),
        (lambda z, t: torch.softmax(z / t**2, -1), "not the softmax of z / τ"),
        (one_hot_when_cold, "two logits are equally large"),
        (lambda z, t: torch_tempered(z, min(t, 10)), "nearly equally probable"),
        (lambda z: z, "raised an error, TypeError"),
        (3, "expects the function"),
    ],
)
def test_another_tempered(answer, text):
    rejected("11.2a", answer, text)


def test_four_entropies():
    assert check("11.2b", [0.03, 0.54, 1.66, 2.93])
    assert check("11.2b", torch.tensor([0.0026, 0.05, 1.44, 2.79]))
    rejected("11.2b", [2.93, 1.66, 0.54, 0.03], "these fall")
    rejected("11.2b", [0.04, 0.77, 2.4, 4.2], "a bit is 0.69 nats")
    rejected("11.2b", [3.0, 54.0, 166.0, 293.0], "not the sum")
    rejected("11.2b", [0.4, 0.4, 0.4, 0.4], "should rise")
    rejected("11.2b", [0.1, 0.2, 0.3, 0.4], "softmax(z/τ)")
    rejected("11.2b", [2.9, 3.0, 3.1, 3.3], "has this one been trained")
    rejected("11.2b", [-0.03, -0.5, -1.7, -2.9], "never negative")
    rejected("11.2b", [0.1, 0.2], "2 numbers")


# --- 11.3: nucleus ---


def torch_nucleus(probas, top_p):
    p, ids = probas.sort(dim=-1, descending=True, stable=True)
    p = torch.where(p.cumsum(dim=-1) - p < top_p, p, 0)
    return torch.zeros_like(probas).scatter(-1, ids, p / p.sum(dim=-1, keepdim=True))


def jax_nucleus(probas, top_p):
    ids = jnp.argsort(-probas, axis=-1, stable=True)
    p = jnp.take_along_axis(probas, ids, axis=-1)
    p = jnp.where(jnp.cumsum(p, axis=-1) - p < top_p, p, 0)
    p = p / p.sum(axis=-1, keepdims=True)
    return jnp.put_along_axis(jnp.zeros_like(probas), ids, p, axis=-1, inplace=False)


def other_ties(probas, top_p):
    return torch_nucleus(probas.flip(-1), top_p).flip(-1)


@pytest.mark.parametrize("answer", [torch_nucleus, jax_nucleus, other_ties])
def test_nucleus_is_right(answer):
    assert check("11.3a", answer)


def changed(keep=None, scale=True, dim=-1, back=True):
    """The nucleus in PyTorch with something else in one place."""

    def answer(probas, top_p):
        p, ids = probas.sort(dim=dim, descending=True, stable=True)
        test = keep or (lambda mass, p: mass - p < top_p)
        p = torch.where(test(p.cumsum(dim=dim), p), p, 0)
        if scale:
            p = p / p.sum(dim=dim, keepdim=True)
        return torch.zeros_like(probas).scatter(dim, ids, p) if back else p

    return answer


def stops_before(probas, top_p):
    return changed(keep=lambda mass, p: mass < top_p)(probas, top_p)


def stops_before_but_one(probas, top_p):
    return changed(keep=lambda mass, p: (mass < top_p) | (p == p.amax(-1, True)))(probas, top_p)


def one_too_many(probas, top_p):
    return changed(keep=lambda mass, p: mass - p <= top_p)(probas, top_p)


def by_threshold(probas, top_p):
    p, _ = probas.sort(dim=-1, descending=True)
    least = torch.where(p.cumsum(-1) - p < top_p, p, 2).amin(-1, keepdim=True)
    new = torch.where(probas >= least, probas, 0)
    return new / new.sum(-1, keepdim=True)


def in_place(probas, top_p):
    probas[...] = torch_nucleus(probas, top_p)
    return probas


def by_softmax(probas, top_p):
    new = torch_nucleus(probas, top_p)
    return torch.where(new > 0, probas.exp(), 0) / torch.where(new > 0, probas.exp(), 0).sum(
        -1, True
    )


def for_all_rows(probas, top_p):
    flat = probas.reshape(-1, probas.shape[-1])
    keep = torch_nucleus(flat[:1], top_p) > 0
    new = torch.where(keep, flat, 0)
    return (new / new.sum(-1, keepdim=True)).reshape(probas.shape)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (stops_before, "belongs to the set"),
        (stops_before_but_one, "belongs to the set"),
        (one_too_many, "the smallest set"),
        (by_threshold, "where tokens are equally probable"),
        (changed(keep=lambda mass, p: p < 2), "keeps 9 tokens"),
        (lambda p, q: changed(scale=False)(p, q), "scale them to add up to 1"),
        (lambda p, q: torch.softmax(torch_nucleus(p, q), -1), "the smallest set"),
        (lambda p, q: torch_nucleus(p, q).sort(-1, descending=True)[0], "place of its token"),
        (by_softmax, "keep the ratios"),
        (lambda p, q: torch_nucleus(p, q)[..., :3], "shape"),
        (lambda p, q: torch_nucleus(p.flatten(), q).reshape(p.shape), "each row has its own set"),
        (for_all_rows, "each row has its own set"),
        (in_place, "it changes the array"),
        (lambda p, q: p * float("nan"), "is the set empty"),
        (lambda p, q: 0 * p, "no token is left"),
        ("nucleus", "expects the function"),
    ],
)
def test_another_nucleus(answer, text):
    rejected("11.3a", answer, text)


def test_two_entropies():
    assert check("11.3b", [1.4, 4.1])
    rejected("11.3b", [4.1, 1.4], "the first is the smaller")
    rejected("11.3b", [0.3, 4.1], "the first border lies higher")
    rejected("11.3b", [4.5, 4.8], "should lie lower")
    rejected("11.3b", [2.0, 6.0], "4.93 nats")
    rejected("11.3b", [-1.0, 4.0], "positive")
    rejected("11.3b", 3.0, "expects two entropies")
