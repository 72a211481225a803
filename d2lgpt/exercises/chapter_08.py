"""The exercises of chapter 8: generating text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from d2lgpt.exercises.backends import PYTORCH, Backend
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import ORDINALS, WrongForm, counted, kind_of, parts, rights, to_numbers
from d2lgpt.exercises.judges import array_of, number, numbers_in_order, tried
from d2lgpt.exercises.sizes import TABLE

# ---- 8.2 Stop at a token ------------------------------------------------------------------------

VOCAB = 40  # ids of the model on which answers are tried
ROWS = VOCAB + 1  # rows of its table; a visible token adds id + 1, so that none goes unnoticed
PATIENCE = 25  # steps that an answer is allowed over those that it needs


class _Endless(Exception):
    """The model has been asked for far more tokens than anybody wanted."""


@dataclass(frozen=True)
class _Case:
    """One call of an answer: a prompt, what goes with it, and the ids that should come back."""

    prompt: list[int]
    new: int
    context: int
    stop: int
    wanted: list[int]


def _greedy(
    scores: np.ndarray,
    prompt: list[int],
    new: int,
    context: int,
    stop: int | None = None,
    *,
    crop: Callable[[list[int], int], list[int]] = lambda ids, context: ids[-context:],
    place: int = -1,
    best: Callable = np.argmax,
) -> list[int]:
    """The continuation of a prompt under the scoring model; the keywords make known mistakes."""
    ids = list(prompt)
    for _ in range(new):
        visible = crop(ids, context) or ids[-1:]
        sums = np.cumsum(np.add(visible, 1))
        ids.append(int(best(scores[sums[max(place, -len(sums))] % ROWS])))
        if ids[-1] == stop:
            break
    return ids


# What `_greedy` does with it, and the hint for an answer that does the same.
_SLIPS = (
    (
        {"place": 0},
        "it takes the logits of the first position: the last one tells what follows all tokens",
    ),
    ({"place": -2}, "it takes the logits of a position that has not seen the last token"),
    ({"best": np.argmin}, "it takes the token with the smallest logit"),
    (
        {"crop": lambda ids, context: ids[:context]},
        "a text longer than `context_size` is cropped at the wrong end: the last tokens count",
    ),
    (
        {"crop": lambda ids, context: ids},
        "the model sees at most the last `context_size` tokens: crop what it is given",
    ),
    (
        {"crop": lambda ids, context: ids[-context:][1:]},
        "the model should see `context_size` tokens, and it is given one fewer",
    ),
    (
        {"crop": lambda ids, context: ids[-1:]},
        "the model sees the last token alone: give it all tokens, up to `context_size`",
    ),
)


def _scoring_model(backend: Backend, scores: np.ndarray, lengths: list[int]):
    """A causal model of which NumPy knows the next token.

    Its logits are a row of a table: its number is the sum of id + 1 over the tokens so far. It
    notes in `lengths` how many tokens it is given, each time its Python code runs.
    """
    limit = [0]

    def note(length: int) -> None:
        lengths.append(length)
        if len(lengths) > limit[0]:
            raise _Endless

    if backend is PYTORCH:
        torch = import_module("torch")

        class Scores(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scores = torch.nn.Parameter(torch.from_numpy(scores))

            def forward(self, ids):
                note(ids.shape[1])
                return self.scores[(ids + 1).cumsum(dim=1) % ROWS]

    else:
        jnp, nnx = import_module("jax.numpy"), import_module("flax.nnx")

        class Scores(nnx.Module):
            def __init__(self):
                self.scores = nnx.Param(jnp.asarray(scores))

            def __call__(self, ids):
                note(ids.shape[1])
                return _look_up()(self.scores[...], ids)

    return Scores(), limit


@cache
def _look_up() -> Callable:
    """What the scoring model does, for JAX: compiled once for each shape and session."""
    jax = import_module("jax")
    return jax.jit(lambda scores, ids: scores[jax.numpy.cumsum(ids + 1, axis=1) % ROWS])


def _case(
    rng: np.random.Generator,
    scores: np.ndarray,
    prompt: int,
    new: int,
    context: int,
    stop_after: int | None = None,
    stop_in_prompt: int | None = None,
) -> _Case:
    """A random prompt for which no two of `_SLIPS` that can show give the same tokens.

    `stop_after`: the stop token is the new token of this number, counted from 1. Else it is not
    among the new tokens; `stop_in_prompt` is the place where the prompt has it.
    """
    cropped = prompt + new - 1 > context
    while True:
        ids = rng.integers(1, VOCAB, size=prompt).tolist()
        free = _greedy(scores, ids, new, context)
        others = [_greedy(scores, ids, new, context, **slip) for slip, _ in _SLIPS]
        texts = [free, *(text for text in others if cropped or text != free)]
        swapped = _greedy(scores, ids, context, max(new, 1))
        if stop_after is not None:
            stop = free[prompt + stop_after - 1]
            distinct = stop not in free[: prompt + stop_after - 1]
        elif stop_in_prompt is not None:
            stop = ids[stop_in_prompt]
            distinct = stop not in free[prompt:]
        else:
            stop = int(rng.choice(sorted(set(range(VOCAB)) - set(swapped).union(*texts))))
            distinct = True
        wanted = _greedy(scores, ids, new, context, stop)
        seen = {tuple(text[: len(wanted)]) for text in texts}
        if distinct and 0 not in free and len(set(ids)) == prompt and len(seen) == len(texts):
            return _Case(ids, new, context, stop, wanted)


def _stops_at_a_token(generate, backend: Backend, rng: np.random.Generator) -> str | None:
    """Try `generate_until` on one scoring model, from the plainest call to the corners."""
    # Each row in another order, half a unit apart: no ties, whatever the softmax makes of them.
    rows = [rng.permutation(VOCAB) for _ in range(ROWS)]
    scores = (np.stack(rows) / 2).astype(np.float32)
    lengths: list[int] = []
    model, limit = _scoring_model(backend, scores, lengths)
    case = partial(_case, rng, scores)
    # In all of them prompt and new tokens are 6: for JAX few shapes, and so few compilations.
    cases = (
        case(prompt=2, new=4, context=9),
        case(prompt=4, new=2, context=3),
        case(prompt=2, new=4, context=3),
        case(prompt=2, new=4, context=9, stop_after=2),
        case(prompt=4, new=2, context=3, stop_after=1),
        case(prompt=3, new=3, context=9, stop_after=3),
        case(prompt=4, new=2, context=9, stop_in_prompt=1),
        case(prompt=4, new=2, context=9, stop_in_prompt=3),
        case(prompt=5, new=1, context=9),
        case(prompt=6, new=0, context=9),
    )
    for one in cases:
        lengths.clear()
        limit[0] = one.new + PATIENCE
        ids = backend.array([one.prompt])
        try:
            got = generate(model, ids, one.new, one.context, one.stop)
        except _Endless:
            return "it goes on for ever: `max_new_tokens` tokens at the latest end it"
        problem = _compare(array_of(got, backend), one, scores, lengths)
        if problem:
            return problem
        if backend.numpy(ids).tolist() != [one.prompt]:
            return "the prompt that it was given is another one afterwards: leave it as it is"
    return None


def _compare(got: np.ndarray, case: _Case, scores: np.ndarray, lengths: list[int]) -> str | None:
    """What is wrong with the ids that came back, or with the inputs that the model has seen."""
    length, wanted = len(case.prompt), case.wanted
    if got.ndim != 2 or len(got) != 1:
        return (
            f"it returns an array of shape {got.shape}: a batch of one, prompt and new tokens, "
            "has shape (1, tokens)"
        )
    if got.dtype.kind not in "iu":
        return f"it returns numbers of type {got.dtype}, and token ids are whole numbers"
    ids = got[0].tolist()
    if lengths and max(lengths) > case.context:
        return (
            f"the model was given {max(lengths)} tokens, and `context_size` {case.context} is "
            "the most it sees: crop what it is given"
        )
    if ids == wanted:
        # An answer that is compiled calls the Python code of the model less often, not more.
        if len(lengths) > len(wanted) - length + 1:
            return "the ids are right, but it goes on computing when they are complete"
        return None
    if case.new and ids == wanted[length:]:
        return "it returns the new tokens alone: the prompt belongs to the result, before them"
    if ids[:length] != case.prompt:
        if length > case.context and ids and ids[0] in case.prompt[1:]:
            return "it returns the cropped prompt: all of the prompt belongs to the result"
        return "the result does not begin with the prompt, as it was given"
    if case.new and ids == _greedy(scores, case.prompt, case.context, case.new, case.stop):
        return "`max_new_tokens` and `context_size` have changed places"
    return _wrong_number(ids, case, scores) or _wrong_token(ids, case, scores)


def _wrong_number(ids: list[int], case: _Case, scores: np.ndarray) -> str | None:
    """The hint for too few or too many tokens, if those that are there are right."""
    length, wanted = len(case.prompt), case.wanted
    stops = case.stop in wanted[length:]
    if len(ids) < len(wanted) and ids == wanted[: len(ids)]:
        if case.stop in case.prompt:
            return (
                "a stop token in the prompt does not count: only a token that has just been "
                "appended ends the text"
            )
        if stops and len(ids) == len(wanted) - 1:
            return "the stop token is missing: it belongs to the result, as its last token"
        found, due = len(ids) - length, len(wanted) - length
        return f"it returns {counted(found, 'new token')} where it should return {due}"
    if len(ids) > len(wanted) and ids[: len(wanted)] == wanted:
        if case.new == 0:
            return "`max_new_tokens` 0 leaves the prompt as it is"
        onward = _greedy(scores, case.prompt, len(ids) - length, case.context)
        if stops and len(ids) == len(wanted) + 1 and ids == onward:
            return "it appends one more token after the stop token"
        if stops and len(ids) == length + case.new and ids == onward:
            return "it does not stop at the stop token"
        if stops:
            return "something follows the stop token: return the array up to it"
        added = counted(len(ids) - length, "token")
        return f"it adds {added}, more than `max_new_tokens` {case.new}"
    return None


def _wrong_token(ids: list[int], case: _Case, scores: np.ndarray) -> str:
    """The hint for a new token that is not the most probable one."""
    arguments = scores, case.prompt, case.new, case.context
    for slip, text in _SLIPS:
        if ids in (_greedy(*arguments, **slip), _greedy(*arguments, case.stop, **slip)):
            return text
    pairs = zip(ids, case.wanted, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), len(case.wanted))
    return (
        f"new token {place - len(case.prompt) + 1} is not the one with the largest logit at the "
        "last position, given the last `context_size` tokens"
    )


# ---- 8.4 A smaller window -----------------------------------------------------------------------

#: The new tokens of the chapter's `tiny`, for each of `CONTEXTS`.
WINDOWS = (
    (10, 21, 8, 93, 95, 66, 34, 8, 93, 93, 99, 91),
    (10, 37, 64, 57, 57, 57, 57, 57, 57, 57, 57, 57),
    (87, 83, 43, 34, 43, 34, 43, 34, 43, 34, 43, 34),
)
CONTEXTS = (16, 4, 1)
_PROMPT = (1, 2, 3, 4)


def _token_lists(right: Sequence[tuple], wrong: dict[tuple, str]) -> Callable[[Any], str | None]:
    """Lists of tokens, one for each size of the window."""
    right = [list(tokens) for tokens in right]

    def judge(answer) -> str | None:
        found = parts(answer, CONTEXTS)
        if len(found) != len(right):
            raise WrongForm(f"{kind_of(answer)} of length {len(found)}")
        given = [to_numbers(tokens) for tokens in found]
        if given == right:
            return None
        for candidate, text in wrong.items():
            if given == [list(tokens) for tokens in candidate]:
                return text
        if sorted(given) == sorted(right):
            return "these are the lists, but the statement asks for them in another order"
        for i, (tokens, wanted) in enumerate(zip(given, right, strict=True)):
            if len(tokens) != len(wanted):
                has = counted(len(tokens), "token")
                return f"list {i + 1} has {has}, and 12 new ones are asked for"
        rows = zip(ORDINALS, given, right, strict=False)
        good = [ordinal for ordinal, tokens, wanted in rows if tokens == wanted]
        if good:
            return f"the {rights(good, len(right), 'list')}"
        return (
            "none of the three is what the chapter's model writes: take `tiny` with the weights "
            "that seed 123 gives, in evaluation mode"
        )

    judge.wrong = wrong
    return judge


# ---- The exercises ------------------------------------------------------------------------------

EXERCISES = (
    Exercise(
        "8.1",
        "The head, only where it is needed",
        "one whole number",
        number(
            33 * TABLE,
            wrong={
                39 * TABLE: "that is the whole work: one position of each step remains to be done",
                24 * TABLE: "the input grows from step to step: 4, 5, 6, 7, 8, 9 tokens",
                42 * TABLE: "the first step sees the prompt of 4 tokens, the last one 9",
                33: "that is positions; each of them costs 768 × 50,257 multiplications",
                39: "that is positions, and of each step one is needed",
            },
        ),
        ("The six steps see 4, 5, 6, 7, 8 and 9 tokens.",),
    ),
    Exercise(
        "8.2",
        "Stop at a token",
        "the function generate_until(model, idx, max_new_tokens, context_size, stop_id)",
        tried(_stops_at_a_token),
        (
            "Start from `generate_text_simple`, in PyTorch or, with a growing input, in JAX: what "
            "has to be asked after each token, and where in the loop?",
            "The new token is an array of shape (1, 1); compared with `stop_id` it is a condition. "
            "Ask after you have appended it, and ask it alone, not the whole text.",
            "To compile only once in JAX: fill a buffer, compile the function that writes one "
            "token into it, and let Python's loop stop. Cut off what is not filled.",
        ),
    ),
    Exercise(
        "8.3",
        "Counting compilations",
        "two whole numbers: with a growing input, with a buffer",
        numbers_in_order(
            [55, 1],
            wrong={
                (100, 1): "once the input has the length of the context, its shape stays the same",
                (54, 1): "count both ends: lengths 10 and 64 are compiled for as well",
                (55, 100): "the buffer has one shape from beginning to end",
                (64, 1): "the prompt has 10 tokens: shorter inputs never occur",
            },
        ),
        ("JAX compiles once for each shape. Which shapes occur?",),
    ),
    Exercise(
        "8.4",
        "A smaller window",
        "three lists of 12 token ids: for a context of 16, of 4 and of 1",
        _token_lists(
            WINDOWS,
            wrong={
                tuple(_PROMPT + tokens for tokens in WINDOWS): (
                    "each list begins with the prompt: report the new tokens alone"
                ),
                WINDOWS[::-1]: "the lists are in another order: 16 first, then 4, then 1",
                (WINDOWS[0],) * 3: "the window must become smaller: is `context_size` passed on?",
                (WINDOWS[0], (10,) * 12, (83,) * 12): (
                    "the windows are cropped at the wrong end: the last tokens are what counts"
                ),
                tuple((_PROMPT + tokens)[:12] for tokens in WINDOWS): (
                    "these are the first 12 tokens with the prompt: 12 new ones are asked for"
                ),
            },
        ),
        (
            "`generate_text_simple(tiny, prompt, 12, context_size)` three times, and of each "
            "result what follows the four tokens of the prompt.",
            "For a cycle: with a context of one token, what does the next token depend on?",
        ),
    ),
)
