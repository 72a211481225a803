"""Forms of a right answer: each is accepted, or the verdict says which form is wanted."""

from collections import namedtuple
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from test_exercises import ANSWERS

from d2lgpt.exercises import check
from d2lgpt.exercises.chapter_07 import SIZES
from d2lgpt.exercises.chapter_08 import WINDOWS
from d2lgpt.exercises.forms import (
    WrongForm,
    kind_of,
    listed_in_words,
    rights,
    to_numbers,
    to_positions,
    to_truths,
)


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("D2LGPT_GPT2", "stand-in")


NUMBERS = [
    id
    for id, answer in ANSWERS.items()
    if isinstance(answer, (list, tuple)) and all(type(v) in (int, float) for v in answer)
]
TRUTHS = ["1.3", "6.1"]
Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize("id", [*NUMBERS, *TRUTHS])
def test_forms_of_a_row(id):
    row = [value.item() if hasattr(value, "item") else value for value in ANSWERS[id]]
    in_jax = max(map(abs, row)) < 2**31  # it has no larger whole numbers
    for form in (
        row,
        tuple(row),
        np.array(row),
        np.array([row]),  # a batch of one
        np.array(row)[:, None],
        torch.tensor(row),
        torch.tensor([row]),
        *([jnp.array(row), jnp.array([row]), [jnp.array(v) for v in row]] if in_jax else ()),
        [np.array(value) for value in row],
        [torch.tensor([value]) for value in row],
        [[value] for value in row],
        dict(enumerate(row)),
        dict(zip("abcdef", row, strict=False)),
        dict(zip("abcdef", row, strict=False)).values(),
    ):
        assert check(id, form), form
    assert check(id, *row)  # one by one
    if id in NUMBERS:
        assert check(id, [str(value) for value in row])
        assert check(id, np.array(row, object))
    else:
        assert check(id, [int(value) for value in row])
        assert check(id, np.array(row, float))


NAMED = {
    "1.1": {"tok_emb": 0, "pos_emb": 1, "out_head": 2, "total": 3},
    "1.2": {"context_length": 0, "emb_dim": 1},
    "1.3": {0: 0, 1: 1, 2: 2, 3: 3},
    "3.3": {"ReLU": 0, "GELU": 1},
    "4.2": {"without": 0, "with": 1},
    "4.3": {0.0: 0, 0.5: 1, 1.0: 2, 2.0: 3},
    "5.1": {"ff": 0, "att": 1},
    "6.1": {"parameters": 0, "logits": 1, "placeholder": 2},
    "6.2": {1: 0, 2: 1},
    "7.3": {"untied": 0, "tied": 1},
    "8.4": {16: 0, 4: 1, 1: 2},
    "9.2": {768: 0, 1024: 1, 1280: 2},
    "10.2": {"uniform": 0, "unigram": 1, "bigram": 2},
    "2.2b": {"wrong_norm": 0, "LayerNorm": 1},
}


@pytest.mark.parametrize("id", NAMED)
def test_a_dictionary_in_any_order(id):
    named = {name: ANSWERS[id][i] for name, i in NAMED[id].items()}
    assert check(id, named)
    assert check(id, dict(reversed(named.items())))
    assert check(id, {str(name).upper(): value for name, value in reversed(named.items())})
    if all(isinstance(name, str) for name in named):
        assert check(id, **named)
    moved = dict(zip(named, [*ANSWERS[id][1:], ANSWERS[id][0]], strict=True))
    assert not check(id, moved)


def test_pairs():
    assert check("7.2", [(0, 32), (0, 128)])
    assert check("7.2", {24: (0, 32), 6: (0, 128)})
    assert check("4.1", Pair(2, 0.94))
    assert check("12.5b", ([3.1, 3.2, 3.4], [82, 20, 6]))
    assert check("10.1b", {"masked": (1.43, 3.02), "unmasked": (0.103, 0.098)})
    assert check("12.1a", (7_087_872, 124_439_808))
    assert check("12.1a", {"block": 7_087_872, "GPT-2": 124_439_808})
    assert check("12.1a", torch.tensor([7_087_872, 124_439_808]))
    assert check("9.1b", [Fraction(231, 1000), 0])


def test_the_forms_of_truth_values_that_comparisons_give():
    differs = torch.tensor([[True, False, False, False]])  # (a != b).any over the vocabulary
    assert check("1.3", differs)
    assert check("1.3", differs.tolist())
    assert check("1.3", [1, 0, 0, 0])
    assert check("1.3", jnp.array([1, 0, 0, 0]))
    assert check("6.1", np.array([[False, True, False]]))
    assert check("2.2b", [np.array([[True] * 3]), torch.tensor([[False] * 3])])
    assert check("2.2b", np.array([[1, 1, 1], [0, 0, 0]]))
    assert check("2.2b", np.array([[[True] * 3], [[False] * 3]]))
    over_the_vocabulary = np.zeros((1, 4, 50), bool)
    assert "not an array of shape (1, 4, 50)" in str(check("1.3", over_the_vocabulary))
    assert "not a list with 'yes' in it" in str(check("1.3", ["yes", "no", "no", "no"]))


@pytest.mark.parametrize("lib", [np, jnp, torch], ids=["numpy", "jax", "torch"])
def test_positions_as_libraries_give_them(lib):
    def array(values):
        return torch.tensor(values) if lib is torch else lib.array(values)

    masks = array([True, True, False, False]), array([True] * 4)
    rows = [mask[None] for mask in masks]
    argwhere = torch.argwhere if lib is torch else lib.argwhere
    assert check("6.2", [lib.where(mask) for mask in masks])
    assert check("6.2", [lib.where(mask)[0] for mask in masks])
    assert check("6.2", tuple(lib.where(row) for row in rows))
    assert check("6.2", [argwhere(mask) for mask in masks])
    assert check("6.2", [argwhere(row) for row in rows])
    assert check("6.2", list(masks))
    assert check("6.2", rows)
    assert check("6.2", lib.stack(masks))
    assert check("6.2", [range(2), range(4)])
    assert check("6.2", [{0, 1}, frozenset({3, 2, 1, 0})])
    assert not check("6.2", [lib.where(mask) for mask in masks[::-1]])


def test_positions_of_12_3():
    from d2lgpt.exercises import gpt2_reference

    norms = np.linalg.norm(gpt2_reference.positions(), axis=1)
    out = abs(norms - np.median(norms)) > np.median(norms) / 2
    for form in (np.where(out), np.argwhere(out), out, out.tolist(), set(np.flatnonzero(out))):
        assert check("12.3a", form)
    assert check("12.3a", torch.where(torch.tensor(out)))
    assert check("12.3a", dict(enumerate(jnp.flatnonzero(out))))
    assert not check("12.3a", ~out)


SMALL = {"small": (163_009_536, 124_412_160)}


@pytest.mark.parametrize(
    "answer",
    [
        {name.upper(): pair for name, pair in SIZES.items()},
        {f"gpt2-{name}": list(pair) for name, pair in SIZES.items()},
        {f"GPT-2 {name}": np.array(pair) for name, pair in SIZES.items()},
        SMALL | SIZES,
        {name: {"tied": tied, "untied": untied} for name, (untied, tied) in SIZES.items()},
        {name: {"untied": untied, "tied": tied} for name, (untied, tied) in SIZES.items()},
        {"extra large": SIZES["xl"], "Large": SIZES["large"], "Medium ": SIZES["medium"]},
        list(SIZES.values()),
        np.array(list(SIZES.values())),
        torch.tensor(list(SIZES.values())),
    ],
)
def test_forms_of_a_table(answer):
    assert check("7.1", answer)


def test_a_table_of_others():
    assert "the keys ['tiny', 'medium', 'large', 'xl']" in str(check("7.1", {"tiny": 1} | SIZES))
    assert "medium and large are right" in str(check("7.1", SIZES | {"xl": (1, 2)}))
    assert "medium is right" in str(check("7.1", SIZES | {"xl": (1, 2), "large": (1, 2)}))
    assert check("7.1", **SIZES)


@pytest.mark.parametrize("word", ["bi-gram", "BIGRAM", "bi gram", "bigrams", ["bigram"], "bi_gram"])
def test_spellings_of_a_word(word):
    assert check("10.3a", word)


@pytest.mark.parametrize(
    "answer",
    [
        np.array(WINDOWS)[:, None],
        {16: WINDOWS[0], 4: WINDOWS[1], 1: WINDOWS[2]},
        {1: WINDOWS[2], 4: WINDOWS[1], 16: WINDOWS[0]},
        {
            "context 16": WINDOWS[0],
            "context 4": torch.tensor([WINDOWS[1]]),
            "context 1": WINDOWS[2],
        },
        [",".join(map(str, tokens)).split(",") for tokens in WINDOWS],
    ],
)
def test_forms_of_three_lists(answer):
    assert check("8.4", answer)


def test_forms_of_functions_and_pairs():
    def recall(text, book):
        windows = [text[i : i + 20] for i in range(len(text) - 19)]
        return jnp.mean(jnp.array([w in book for w in windows])) if windows else 0

    assert check("11.1a", {"unseen": 0.0, "samples": 0.5, "recall": recall})
    assert check("11.1a", recall, 0.5, 0.0)

    def named(ids, vocab_size):
        from test_exercises_chapter_10 import baselines

        names = ("uniform", "unigram", "bigram")
        found = dict(zip(names, baselines(ids, vocab_size), strict=True))
        return dict(reversed(found.items()))

    assert check("10.2", named)
    from test_exercises_chapter_09 import scales, sharp, symmetric

    assert check("9.1a", lambda t, g: {"M": symmetric(t, g), "s": scales(t)})
    table, gain = sharp()
    assert check("9.1c", {"gain": gain, "table": table})
    assert check("9.1c", table, gain)
    assert check("9.1c", gain=gain, table=table)
    spreads = [0.1, 0.02, 0.01, 0.01, 0.001, 0.0], [0.9] * 6
    assert check("10.3b", {"fresh": spreads[1], "trained": spreads[0], "divergence": 0.01})
    assert check("10.1c", ["t d t f d d d d d rt t t t s t d d d t ce e e or t" * 2])


def test_sets_of_tokens():
    from d2lgpt.exercises.chapter_01 import _same_tokens

    assert check("1.4", lambda a, b: frozenset(_same_tokens(a, b)))
    assert check("1.4", lambda a, b: {np.int64(token) for token in _same_tokens(a, b)})
    assert check("1.4", lambda a, b: dict.fromkeys(_same_tokens(a, b)).keys())


# ---- The functions themselves -------------------------------------------------------------------


def test_items_of_anything():
    assert to_numbers([[1, (2, 3)], {"a": 4}, np.array([[5.0]])]) == [1, 2, 3, 4, 5]
    assert to_numbers({"b": 1, "a": 2}, ("a", "b")) == [2, 1]
    assert to_numbers({"c": 1, "a": 2}, ("a", "b")) == [1, 2]
    assert to_truths([np.True_, 0, torch.tensor(1.0), jnp.array(False)]) == [
        True,
        False,
        True,
        False,
    ]
    assert to_positions([3, 1, 2]) == [1, 2, 3]
    assert to_positions(np.where(np.zeros((1, 4)))) == []
    endless = []
    endless.append(endless)
    for wrong in (endless, "12", 5, {1, 2}, None, np.float32(1), np.zeros((10**4, 10**4))):
        with pytest.raises(WrongForm):
            to_numbers(wrong)
    with pytest.raises(WrongForm, match="more than 100,000 entries"):
        to_numbers([[0] * 60_000] * 2)


def test_words():
    assert listed_in_words(["a"]) == "a"
    assert listed_in_words(["a", "b"]) == "a and b"
    assert listed_in_words(["a", "b", "c"]) == "a, b and c"
    assert rights(["first"], 2, "list") == "first list is right: look at the other again"
    assert rights(["first", "third"], 4, "number") == (
        "first and third numbers are right: look at the rest again"
    )
    assert kind_of(type("", (), {})()) == "a thing"
    assert kind_of(None) == "None"
    assert kind_of(torch.zeros(2, 3)) == "an array of shape (2, 3)"
