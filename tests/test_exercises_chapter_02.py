"""Chapter 2: the function wrong_norm."""

import numpy as np
import pytest
from both import BACKENDS

from d2lgpt.exercises import check


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))


def wrong_norm(axis=1, eps=1e-5, ddof=0, result=None):
    """As a reader would write it, but for one mistake; arrays of both backends can do this."""

    def norm(x):
        n = np.prod([x.shape[i] for i in (axis if isinstance(axis, tuple) else (axis,))])
        mean = x.mean(axis, keepdims=True)
        var = ((x - mean) ** 2).sum(axis, keepdims=True) / float(n - ddof)
        return result(x, mean, var) if result else (x - mean) / (var + eps) ** 0.5

    return norm


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_right_answer(backend):
    def from_the_layer(x):
        """Another way to the same: the last axis is where the layer looks."""
        norm = backend.scratch.LayerNorm(x.shape[1])
        return norm(x.swapaxes(1, 2)).swapaxes(1, 2)

    assert check("2.2a", from_the_layer)
    assert check("2.2a", wrong_norm())


MISTAKES = [
    (wrong_norm(axis=-1), "goes along the axis of length D"),
    (wrong_norm(axis=0), "goes along the batch"),
    (wrong_norm(axis=(1, 2)), "one mean for all features"),
    (wrong_norm(ddof=1), "divides by T - 1"),
    (wrong_norm(eps=0), "has lost its eps"),
    (wrong_norm(eps=1e-6), "eps is 1e-6"),
    (wrong_norm(result=lambda x, m, v: (x - m) / (v**0.5 + 1e-5)), "eps belongs under the root"),
    (wrong_norm(result=lambda x, m, v: (x - m) / (v + 1e-5)), "by the variance, and not by"),
    (wrong_norm(result=lambda x, m, v: x - m), "divides by nothing"),
    (wrong_norm(result=lambda x, m, v: x / (v + 1e-5) ** 0.5), "does not subtract the mean"),
    (wrong_norm(result=lambda x, m, v: x + m), "is not what comes out along T"),
    (wrong_norm(result=lambda x, m, v: x[:, :1]), "an array of shape (2, 1, 8)"),
    (lambda x: x.mean(7), "raised an error"),
    (lambda: 3, "raised an error, TypeError"),
]


@pytest.mark.parametrize(("answer", "text"), MISTAKES)
def test_a_mistake_in_the_function(answer, text):
    verdict = check("2.2a", answer)
    assert not verdict
    assert text in str(verdict)


@pytest.mark.parametrize(
    ("answer", "form"), [([wrong_norm()], "a list"), ("x", "a str"), (float("nan"), "a float")]
)
def test_another_form_is_one_sentence(answer, form):
    expects = "the function wrong_norm(x), of either backend"
    assert str(check("2.2a", answer)) == f"2.2a: this exercise expects {expects}, not {form}."
