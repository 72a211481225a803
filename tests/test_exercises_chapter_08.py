"""Exercise 8.2, tried with right functions of both backends and with those that people write."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from d2lgpt.exercises import check
from d2lgpt.exercises.chapter_08 import VOCAB, WINDOWS


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))


# ---- 8.2 ----------------------------------------------------------------------------------------


@torch.no_grad()
def right_in_pytorch(model, idx, max_new_tokens, context_size, stop_id):
    for _ in range(max_new_tokens):
        next_idx = model(idx[:, -context_size:])[:, -1].argmax(dim=-1, keepdim=True)
        idx = torch.cat([idx, next_idx], dim=1)
        if next_idx.item() == stop_id:
            break
    return idx


def right_in_jax(model, idx, max_new_tokens, context_size, stop_id):
    """The input grows, and nothing is compiled as a whole."""
    for _ in range(max_new_tokens):
        next_idx = model(idx[:, -context_size:])[:, -1].argmax(axis=-1, keepdims=True)
        idx = jnp.concatenate([idx, next_idx], axis=1)
        if next_idx.item() == stop_id:
            break
    return idx


@nnx.jit
def jitted_next(model, visible):
    return model(visible)[:, -1].argmax(axis=-1, keepdims=True)


def right_and_jitted(model, idx, max_new_tokens, context_size, stop_id):
    for _ in range(max_new_tokens):
        idx = jnp.concatenate([idx, jitted_next(model, idx[:, -context_size:])], axis=1)
        if idx[0, -1] == stop_id:
            break
    return idx


@partial(jax.jit, static_argnames=("graphdef", "window"))
def fill(graphdef, state, buffer, known, window, stop_id):
    def goes_on(carry):
        t, buffer = carry
        return (t < buffer.shape[1]) & ((t == known) | (buffer[0, t - 1] != stop_id))

    def step(carry):
        t, buffer = carry
        start = jnp.maximum(t - window, 0)
        visible = jax.lax.dynamic_slice_in_dim(buffer, start, window, axis=1)
        logits = nnx.merge(graphdef, state)(visible)[0, t - 1 - start]
        return t + 1, buffer.at[0, t].set(logits.argmax())

    return jax.lax.while_loop(goes_on, step, (known, buffer))


def right_with_a_buffer(model, idx, max_new_tokens, context_size, stop_id):
    """All in one compiled loop; what is filled is cut out afterwards."""
    buffer = jnp.pad(idx, ((0, 0), (0, max_new_tokens)))
    window = min(context_size, buffer.shape[1])
    length, buffer = fill(*nnx.split(model), buffer, idx.shape[1], window, stop_id)
    return buffer[:, :length]


@pytest.mark.parametrize(
    "answer", [right_in_pytorch, right_in_jax, right_and_jitted, right_with_a_buffer]
)
def test_right_functions_of_both_backends(answer):
    assert check("8.2", answer)


def growing(
    see=lambda idx, context: idx[:, -context:],
    choose=lambda logits: logits[:, -1].argmax(dim=-1, keepdim=True),
    ends=lambda idx, new, stop: new.item() == stop,
    before=lambda idx, stop: False,
    give=lambda idx, prompt: idx,
    more=0,
):
    """`right_in_pytorch`, with one of its parts replaced."""

    @torch.no_grad()
    def answer(model, idx, max_new_tokens, context_size, stop_id):
        prompt = idx
        for _ in range(max_new_tokens + more):
            if before(idx, stop_id):
                break
            new = choose(model(see(idx, context_size)))
            idx = torch.cat([idx, new], dim=1)
            if ends(idx, new, stop_id):
                break
        return give(idx, prompt)

    return answer


def without_the_stop_token(model, idx, max_new_tokens, context_size, stop_id):
    out = right_in_pytorch(model, idx, max_new_tokens, context_size, stop_id)
    return out[:, :-1] if out.shape[1] > idx.shape[1] and out[0, -1] == stop_id else out


def crops_what_it_returns(model, idx, max_new_tokens, context_size, stop_id):
    for _ in range(max_new_tokens):
        idx = idx[:, -context_size:]
        new = model(idx)[:, -1].argmax(dim=-1, keepdim=True)
        idx = torch.cat([idx, new], dim=1)
        if new.item() == stop_id:
            break
    return idx


def never_ends(model, idx, max_new_tokens, context_size, stop_id):
    while True:
        new = model(idx[:, -context_size:])[:, -1].argmax(dim=-1, keepdim=True)
        idx = torch.cat([idx, new], dim=1)
    return idx


def cuts_afterwards(model, idx, max_new_tokens, context_size, stop_id):
    never = right_in_pytorch(model, idx, max_new_tokens, context_size, -1)
    places = (never[0, idx.shape[1] :] == stop_id).nonzero().flatten().tolist()
    return never[:, : idx.shape[1] + places[0] + 1] if places else never


def pads_to_full_length(model, idx, max_new_tokens, context_size, stop_id):
    out = right_in_pytorch(model, idx, max_new_tokens, context_size, stop_id)
    return torch.nn.functional.pad(out, (0, idx.shape[1] + max_new_tokens - out.shape[1]))


def changes_its_input(model, idx, max_new_tokens, context_size, stop_id):
    out = right_in_pytorch(model, idx, max_new_tokens, context_size, stop_id)
    idx[0, 0] += 1
    return out


def swapped(model, idx, context_size, max_new_tokens, stop_id):
    return right_in_pytorch(model, idx, max_new_tokens, context_size, stop_id)


MISTAKES = {
    "first position": (
        growing(choose=lambda logits: logits[:, 0].argmax(dim=-1, keepdim=True)),
        "takes the logits of the first position",
    ),
    "position before": (
        growing(choose=lambda logits: logits[:, -2:][:, 0].argmax(dim=-1, keepdim=True)),
        "a position that has not seen the last token",
    ),
    "smallest": (
        growing(choose=lambda logits: logits[:, -1].argmin(dim=-1, keepdim=True)),
        "the smallest logit",
    ),
    "another token": (
        growing(choose=lambda logits: (logits[:, -1].argmax(dim=-1, keepdim=True) + 1) % VOCAB),
        "is not the one with the largest logit",
    ),
    "no crop": (growing(see=lambda idx, context: idx), "crop what it is given"),
    "wrong end": (growing(see=lambda idx, context: idx[:, :context]), "cropped at the wrong end"),
    "one too few": (
        growing(see=lambda idx, context: idx[:, -context:][:, -(context - 1) :]),
        "it is given one fewer",
    ),
    "last token alone": (
        growing(see=lambda idx, context: idx[:, -1:]),
        "sees the last token alone",
    ),
    "never stops": (growing(ends=lambda idx, new, stop: False), "does not stop at the stop token"),
    "one too late": (
        growing(
            ends=lambda idx, new, stop: False,
            before=lambda idx, stop: idx.shape[1] > 3 and idx[0, -2] == stop,
        ),
        "one more token after the stop token",
    ),
    "asks first": (
        growing(ends=lambda *_: False, before=lambda idx, stop: idx[0, -1] == stop),
        "a stop token in the prompt does not count",
    ),
    "asks the whole text": (
        growing(ends=lambda idx, new, stop: (idx == stop).any()),
        "a stop token in the prompt does not count",
    ),
    "leaves it out": (without_the_stop_token, "the stop token is missing"),
    "only new": (
        growing(give=lambda idx, prompt: idx[:, prompt.shape[1] :]),
        "the new tokens alone",
    ),
    "flat": (growing(give=lambda idx, prompt: idx[0]), "has shape (1, tokens)"),
    "floats": (growing(give=lambda idx, prompt: idx.float()), "token ids are whole numbers"),
    "nothing": (growing(give=lambda idx, prompt: None), "it returns nothing"),
    "one more": (growing(more=1), "more than `max_new_tokens`"),
    "one fewer": (growing(more=-1), "3 new tokens where it should return 4"),
    "cropped prompt": (crops_what_it_returns, "cropped prompt"),
    "never ends": (never_ends, "goes on for ever"),
    "cuts afterwards": (cuts_afterwards, "goes on computing when they are complete"),
    "padded": (pads_to_full_length, "something follows the stop token"),
    "changes its input": (changes_its_input, "leave it as it is"),
    "swapped": (swapped, "have changed places"),
    "text": (growing(give=lambda idx, prompt: "text"), "it returns a str, and should return"),
    "raises": (lambda model, idx: idx, "raised an error, TypeError"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_has_its_hint(name):
    answer, text = MISTAKES[name]
    for _ in range(3):  # other random inputs, the same hint
        verdict = check("8.2", answer)
        assert not verdict
        assert text in str(verdict)


def test_mistakes_in_jax():
    def too_late(model, idx, max_new_tokens, context_size, stop_id):
        return right_in_jax(model, idx, max_new_tokens, context_size, -1)

    def first(model, idx, max_new_tokens, context_size, stop_id):
        return right_in_jax(model, idx, 1, context_size, stop_id)

    assert "does not stop" in str(check("8.2", too_late))
    assert "1 new token where it should return 4" in str(check("8.2", first))


@pytest.mark.parametrize("answer", [3, "generate_until", [1, 2], np.arange(3)])
def test_another_form_is_one_sentence(answer):
    assert "8.2: this exercise expects the function generate_until" in str(check("8.2", answer))


# ---- 8.4 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        WINDOWS,
        np.array(WINDOWS),
        [torch.tensor([tokens]) for tokens in WINDOWS],
        [jnp.array(tokens) for tokens in WINDOWS],
    ],
)
def test_forms_of_three_lists(answer):
    assert check("8.4", answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (WINDOWS[:2], "expects three lists of 12 token ids: for a context of 16, of 4 and of 1"),
        (7, "not an int"),
        ([list("abcdefghijkl")] * 3, "not the text 'a'"),
        ([WINDOWS[1], WINDOWS[0], WINDOWS[2]], "in another order"),
        ([WINDOWS[0], WINDOWS[1], WINDOWS[2][:11]], "list 3 has 11 tokens"),
        (
            [WINDOWS[0], WINDOWS[1], WINDOWS[1]],
            "the first and second lists are right: look at the other again",
        ),
        ([[1] * 12] * 3, "none of the three"),
    ],
)
def test_other_answers_to_the_windows(answer, text):
    verdict = check("8.4", answer)
    assert not verdict
    assert text in str(verdict)
