"""Whatever is handed in, `check` answers in one sentence that fits, and never raises."""

import itertools
import math
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_exercises_chapter_05 import three_rates_in_torch

from d2lgpt.exercises import check, desk, hint, record


@pytest.fixture(autouse=True, scope="module")
def own_progress(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D2LGPT_PROGRESS", str(tmp_path_factory.mktemp("p") / "progress.json"))
        patch.setenv("D2LGPT_GPT2", "stand-in")
        yield


IDS = list(desk.exercises())


class Broken:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name):
        if name == "__class__":  # else not even isinstance can ask
            return Broken
        raise RuntimeError(f"no {name}\nfor you")

    def _raise(self, *_):
        raise ValueError("broken:\n  beyond repair")

    __array__ = __eq__ = __bool__ = __len__ = __iter__ = __float__ = __repr__ = __str__ = _raise
    __lt__ = __getitem__ = __index__ = __contains__ = _raise
    __hash__ = object.__hash__


class Liar:
    """Looks like an array, and is none."""

    dtype = "float32"
    ndim = 2

    def __init__(self, shape=(2, 2), value=None):
        self.shape, self.value = shape, value

    def tolist(self):
        return self.value

    def item(self):
        return self.value

    def __len__(self):
        return -1


class Exits:
    def __call__(self, *args, **kwargs):
        raise SystemExit


class NoClass:
    @property
    def __class__(self):
        raise RuntimeError("what class")


def endless():
    ring = []
    ring.append(ring)
    return ring


def raising(error):
    def answer(*args, **kwargs):
        raise error

    return answer


JUNK = [
    *(None, True, 0, -1, 10**5000, 1e308, -0.0, math.nan, math.inf, 1j, Ellipsis, NotImplemented),
    *(Fraction(10**400, 3), Decimal("sNaN"), Decimal("1e9999"), np.datetime64("now")),
    *("", "\ud800", "0" * 5000, "9" * 5000, "1e999", b"bytes", "None", "untied"),
    *(
        [],
        (),
        {},
        set(),
        [[]],
        [[1, 2], 3],
        [None] * 4,
        ["a"] * 4,
        {1: {2: {3: 4}}},
        [math.nan] * 4,
    ),
    *([10**400] * 4, [1e308] * 4, [-1e308] * 6, {"medium": None, "large": 2, "xl": "x"}),
    *(
        np.zeros((0,)),
        np.zeros((3, 0)),
        np.array("text"),
        np.array([None] * 4),
        np.array(["x"] * 4),
    ),
    *(np.array([1, "a"], object), np.ma.masked, np.full(4, 1j), np.recarray((2,), [("a", int)])),
    *(
        torch.zeros(4),
        torch.zeros(2, 2, device="meta"),
        torch.zeros(3).to_sparse(),
        torch.tensor(1j),
    ),
    *(torch.zeros(4, requires_grad=True), torch.zeros(4, dtype=torch.float8_e4m3fn)),
    *(jnp.zeros((2, 3)), jnp.zeros(4, jnp.bfloat16), jnp.array(1j), torch.Size([4])),
    *(sys, np, int, type, object, Broken, torch.nn.Linear, nnx.Linear, torch.nn.Linear(2, 2)),
    *(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Module, torch.nn.Module, torch.nn.Identity()),
    *(len, print, lambda: 1, lambda *a: None, lambda *a: a, lambda *a: "x", lambda *a: math.nan),
    *(lambda *a: [[1], [2, 3]], lambda *a: Broken(), lambda *a: Liar(), lambda *a, **k: (1, 2)),
    *(lambda x, *a: x, lambda *a: torch.zeros(0), lambda *a: np.zeros((0, 3)), lambda *a: {}),
    *(lambda *a: 10**5000, lambda *a: (Broken(), Broken()), lambda *a: (None, None), open),
    *(raising(e) for e in (ValueError(), SystemExit(2), GeneratorExit(), StopIteration(1))),
    *(raising(RecursionError("deep:\n\n")), raising(MemoryError()), raising(Broken)),
    *(iter([1, 2]), range(4), range(10**12), zip([1], [2], strict=True), itertools.count()),
    *(Broken(), [Broken()] * 4, {"a": Broken()}, Liar(), Liar((4,), [1, 2]), Liar((), Liar())),
    *(Liar((2,), endless()), Liar(("x",), 1), Liar((-1,), [1]), [Liar((1,), [[1]])] * 4),
    *(
        Exits(),
        NoClass(),
        endless(),
        {"a": endless()},
        SimpleNamespace(shape=5),
        type("", (), {})(),
    ),
    *((lambda *a: 1, 0.5, 0.0), (len, None, None), (print, 1, 2), (Broken(), 0.5, 0.0)),
    *((torch.zeros(3, 2), torch.zeros(2)), (np.zeros((3, 0)), np.zeros(0)), (Broken(), Broken())),
    *((np.full((3, 2), 1e300), [1, 2]), ([[1], [2], [3]], [10**400]), (0.1, [0] * 6, [10**30] * 6)),
    *((0.1, [], []), ([], []), ([[True]], [[False]]), [["wpe.weight"], [3]], [[""], ["."]]),
]


def in_words(verdict, id):
    text = str(verdict)
    assert isinstance(text, str)
    assert text.startswith((f"{id}: ", "There is no exercise"))
    assert "\n" not in text
    assert len(text) < 500
    return text


@pytest.mark.parametrize("id", IDS)
def test_junk(id):
    """All of it, one after the other; at most one in hundreds may be right by chance."""
    for junk in JUNK:
        verdict = check(id, junk)
        in_words(verdict, id)
        if verdict:  # nothing of this is right but for what is measured
            assert hasattr(desk.exercises()[id].judge, "rules"), junk


SCALARS = st.one_of(
    *(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=9),
        st.complex_numbers(),
    ),
    *(st.decimals(), st.fractions(), st.binary(max_size=3), st.dates()),
    st.sampled_from([np.float32(0.5), np.int8(3), np.True_, torch.tensor(2.0), jnp.array(1)]),
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.tuples(inner, inner),
        st.tuples(inner, inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=5), st.integers(0, 99)), inner, max_size=6),
    ),
    max_leaves=12,
)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@example("7.1", [], {"medium": 1})
@example("5.1", [4_722_432, 2_360_064], {})
@example("1.1", [[[1, 2, 3, 4]]], {})
@given(
    st.sampled_from(IDS),
    st.lists(NESTED, max_size=4),
    st.dictionaries(
        st.sampled_from(["answer", "tied", "self", "text", "digits"]), NESTED, max_size=2
    ),
)
def test_anything(id, answers, named):
    in_words(check(id, *answers, **named), id)


@settings(max_examples=100)
@given(NESTED)
def test_any_id(id):
    check(id, 1)
    check(id)


def test_junk_as_an_id():
    for junk in JUNK:
        assert not check(junk, 1)
        hint(junk)


def test_calls_of_every_kind():
    assert "There is no exercise '': see progress()." in str(check())
    assert "There is no exercise None" in str(check(None))
    assert "There is no exercise 7: those of chapter 7 are 7.1" in str(check(7, 1))
    assert "There is no exercise '12.1': those of chapter 12 are 12.1a" in str(check("12.1", 1))
    assert check("5.1", 4_722_432, 2_360_064)
    assert check("5.1", answer=[4_722_432, 2_360_064])
    assert check(id="12.1A", answer=7_087_872)
    assert check("7.3", tied=70, untied=64)
    assert "not answered yet" in str(check("7.3"))
    assert "not answered yet" in str(check("7.3", answer=None))
    assert "not None" in str(check("7.3", None, None))


def test_without_a_place_for_progress(monkeypatch):
    monkeypatch.setattr(record, "path", lambda: Path("\0"))
    assert "It could not be remembered" in str(check("12.1a", 7_087_872))


# ---- Messages that fit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "answer", "text"),
    [
        ("1.1", [[1, 2, 3, 4]], "1.1: not yet: not what comes out here"),
        ("1.1", [[1, 2], [3, 4], [5, 6]], "not 6 numbers."),
        ("1.1", [10**5000] * 4, "not a whole number of more than 300 digits."),
        ("1.1", iter([1, 2, 3, 4]), "not a list_iterator."),
        ("1.1", {1, 2, 3, 4}, "not a set."),
        ("1.1", endless(), "not lists in lists in lists without end."),
        ("2.2b", [[True, True], [False, False]], "not a list of 2 truth values in it."),
        ("2.2a", lambda x: None, "it returns nothing: end it with a `return`."),
        ("2.2a", lambda x: [[1], [2, 3]], "it returns a list, and should return an array of numb"),
        ("2.2a", lambda x: x * math.nan, "it returns nan among its numbers."),
        ("2.2a", lambda x: x + 1j, "and should return an array of numbers."),
        ("9.1a", lambda t, g: (None, None), "it returns nothing"),
        ("9.1c", [[1, 2]], "not a list of length 1."),
        ("9.1c", (1, "x"), "not a pair with a str in it."),
        ("10.2", lambda ids, V: "three", "it returns a str, and should return three numbers"),
        ("10.2", lambda ids, V: None, "it returns None, and should return three numbers"),
        ("10.3b", (0.1, [0.1] * 6), "not a tuple of length 2."),
        ("10.1c", "a", "the text after the prompt has 1 character, and 100 are asked for."),
        ("12.2b", [["wpe.weight"], [3]], "not a list with an int in it."),
        ("8.4", [[1], [2], [3]], "list 1 has 1 token, and 12 new ones are asked for."),
        ("7.1", {"xl": 1}, "not a dictionary with the keys ['xl']."),
    ],
)
def test_what_is_said(id, answer, text):
    assert text in str(check(id, answer))


def test_a_message_goes_on_to_the_list_that_it_announces():
    error = ValueError("the modules differ, nothing was copied:\n  a (2,) is not there\n  b too")
    said = str(check("1.4", raising(error)))
    assert said.endswith("ValueError: the modules differ, nothing was copied: a (2,) is not there")


def tied(model, cfg):
    model.out_head.weight = model.tok_emb.weight


def with_other_names(model, cfg):
    model.blocks, _ = model.trf_blocks, delattr(model, "trf_blocks")


def with_another_norm(model, cfg):
    model.norm, _ = model.final_norm, delattr(model, "final_norm")


@pytest.mark.parametrize(
    ("finish", "text"),
    [
        (tied, "`out_head.weight` and `tok_emb.weight` are one matrix"),
        (
            with_other_names,
            "`blocks.0.att.W_query.weight`, but none in `trf_blocks`: keep the attr",
        ),
        (with_another_norm, "it has the parameter `norm.scale`, but none in `final_norm`"),
    ],
)
def test_a_model_of_another_make(finish, text):
    said = str(check("5.2", three_rates_in_torch(finish=finish)))
    assert text in said
    assert "placeholder" not in said
