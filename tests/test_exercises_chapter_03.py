"""Chapter 3: the function quick_gelu with its numbers, and the shares of silent units."""

from functools import partial

import jax
import numpy as np
import pytest
import torch

from d2lgpt.exercises import check


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))


def of_torch(x):
    return x * torch.sigmoid(1.702 * x)


def of_jax(x):
    return x * jax.nn.sigmoid(1.702 * x)


def sigmoid(z):
    return 1 / (1 + np.e ** (-z))


@pytest.mark.parametrize("answer", [of_torch, of_jax, lambda x: x * sigmoid(1.702 * x)])
def test_the_right_answer(answer):
    assert check("3.2a", answer)


class InAnObject:
    def __call__(self, x):
        return x * torch.sigmoid(1.702 * x)


OTHER_FORMS = [
    jax.jit(of_jax),
    jax.vmap(of_jax),
    partial(lambda factor, x: x * jax.nn.sigmoid(factor * x), 1.702),
    InAnObject(),
    InAnObject().__call__,
    torch.no_grad()(of_torch),
    lambda x: of_torch(x.double()),
    lambda x: x.mul_(torch.sigmoid(1.702 * x)),
    lambda x: np.asarray(x) * sigmoid(1.702 * np.asarray(x)),
    lambda x: [[v * sigmoid(1.702 * v) for v in row] for row in x.tolist()],
]


@pytest.mark.parametrize("answer", OTHER_FORMS)
def test_the_right_answer_in_another_form(answer):
    assert check("3.2a", answer)


def test_the_error_is_that_of_the_right_backend():
    wrong = partial(lambda factor, x: jax.nn.sigmoyd(factor * x), 1.702)
    assert "'jax.nn' has no attribute 'sigmoyd'" in str(check("3.2a", wrong))
    wrong = jax.jit(lambda x: x * jax.nn.sigmoid(1.702 * x[:7, :, 0]))
    assert "indices" in str(check("3.2a", wrong))

    def of_others(x):  # of which the names in the function do not tell
        return of_jax(x)[0, 0, 0]

    assert "indices" in str(check("3.2a", jax.jit(of_others)))


def test_numbers_of_any_kind():
    assert check("3.2b", (np.float32(0.0203), torch.tensor(2.27), "43"))


MISTAKES = [
    (lambda x: sigmoid(1.702 * x), "x is a factor too"),
    (lambda x: x * sigmoid(x), "the 1.702 inside σ is missing"),
    (lambda x: 1.702 * x * sigmoid(x), "belongs inside σ"),
    (lambda x: x * sigmoid(-1.702 * x), "a sign in the exponent"),
    (lambda x: x * (2 * sigmoid(2 * 1.702 * x) - 1), "not tanh"),
    (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "that is the tanh form"),
    (lambda x: torch.nn.functional.gelu(x), "is not x·σ(1.702·x)"),
    (lambda x: x * sigmoid(1.701 * x), "is not x·σ(1.702·x)"),
    (lambda x: x * sigmoid(1.702 * x).mean(), "is not x·σ(1.702·x)"),
    (lambda x: (x * sigmoid(1.702 * x)).sum(), "an array of shape ()"),
    (lambda x: x.zero_(), "is not x·σ(1.702·x)"),
    (lambda x: float(x), "raised an error"),
    (lambda x: None, "it returns nothing: end it with a `return`"),
    (lambda x: "x", "it returns a str, and should return an array of numbers"),
    (lambda x: x / 0, "it returns"),
]


@pytest.mark.parametrize(("answer", "text"), MISTAKES)
def test_a_mistake_in_the_function(answer, text):
    verdict = check("3.2a", answer)
    assert not verdict
    assert text in str(verdict)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0.0203, 2.27, 1 / 43], "divide the other way"),
        ([0.0203, 2.27, 0.0199], "a ratio of the two gaps"),
        ([0.0203, -2.27, 43], "which is not negative"),
        ([0.0207, 2.3, 44], "the gap to the tanh form"),
        ([0.0193, 2.3, 43], "the second and third numbers are right: look at the other again"),
        ([0.0203, 2.4, 43], "the first and third numbers are right: look at the other again"),
        ([2.27, 0.0203, 43], "in another order"),
        ([0.0203, 2.27], "not 2 numbers"),
        ([0.0203, 2.27, None], "not None"),
    ],
)
def test_a_mistake_in_the_numbers(numbers, text):
    verdict = check("3.2b", numbers)
    assert not verdict
    assert text in str(verdict)


@pytest.mark.parametrize("answer", [[of_torch], 0.02, "quick_gelu"])
def test_another_form_is_one_sentence(answer):
    assert str(check("3.2a", answer)).startswith("3.2a: this exercise expects the function quick")


def test_shares_of_another_draw_are_told_apart():
    """The chapter's cell for `x`, run a second time, gives other numbers of the same kind."""
    assert "this comes from another `x`" in str(check("3.3", [0.498, 0.0141]))
    assert "this comes from another `x`" not in str(check("3.3", [0.501, 0.106]))
    assert "not what comes out here" in str(check("3.3", [0.3, 0.3]))
