"""`TimeMachine`: windows of tokens in batches, the same in both backends."""

import time
import tracemalloc
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, PYTORCH, to_numpy

from d2lgpt import corpus

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
LETTERS = "abcdefghij"


@pytest.fixture(autouse=True)
def a_text_at_hand(monkeypatch):
    """No test waits for a network: most make do with Python's help pages."""
    monkeypatch.setenv("D2LGPT_OFFLINE", "1")
    corpus.time_machine.cache_clear()
    yield
    corpus.time_machine.cache_clear()


def data(backend, *args, text=None, **kwargs):
    """A TimeMachine of characters, over another text if one is given."""
    cls = backend.root.TimeMachine
    if text is not None:
        cls = type("Other", (cls,), {"_download": lambda self: text})
    return cls(*args, **{"tokenization": "char", **kwargs})


def batches(loader) -> list[SimpleNamespace]:
    return [SimpleNamespace(X=to_numpy(X), Y=to_numpy(Y)) for X, Y in loader]


@both
def test_windows_and_targets(backend):
    d = data(backend, 2, 3, num_train=4, num_val=2, text=LETTERS)
    read = [[d.vocab.decode(row) for row in b.X] for b in batches(d.val_dataloader())]
    assert read == [["efg", "fgh"]]
    assert [d.vocab.decode(row) for b in batches(d.val_dataloader()) for row in b.Y] == [
        "fgh",
        "ghi",
    ]
    seen = {}
    for b in batches(d.train_dataloader()):
        assert b.X.shape == b.Y.shape == (2, 3)
        seen |= {d.vocab.decode(x): d.vocab.decode(y) for x, y in zip(b.X, b.Y, strict=True)}
    assert seen == {"abc": "bcd", "bcd": "cde", "cde": "def", "def": "efg"}


@both
def test_types_of_a_batch(backend):
    X, Y = next(iter(data(backend, 4, 5).train_dataloader()))
    if backend is PYTORCH:
        assert X.dtype == Y.dtype == torch.int64 and X.is_contiguous() and Y.is_contiguous()
    else:
        assert isinstance(X, jax.Array) and X.dtype == Y.dtype == "int32"


@both
def test_vocabularies(backend):
    d = data(backend, 4, 5)
    assert len(d.vocab) == 28
    assert d.vocab.encode("é") == [d.vocab.unk]
    assert d.source == corpus.time_machine().source
    d = data(backend, 4, 5, tokenization="bpe", vocab_size=300)
    assert len(d.vocab) == 303 and d.tokens.max() < 300
    assert d.vocab.decode(d.tokens) == d._preprocess(d._download())


def test_the_same_batches_in_both_backends():
    """Also when one has drawn as many passes as the other, and for validation."""
    one, other = (data(b, 16, 8, num_train=64, num_val=20, seed=3) for b in BACKENDS)
    passes = []
    for _ in range(2):
        a, b = batches(one.train_dataloader()), batches(other.train_dataloader())
        assert len(a) == len(b) == 4
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x.X, y.X)
            np.testing.assert_array_equal(x.Y, y.Y)
        passes.append(np.concatenate([x.X for x in a]))
    assert (passes[0] != passes[1]).any()
    again = data(PYTORCH, 16, 8, num_train=64, num_val=20, seed=3)
    first = np.concatenate([x.X for x in batches(again.train_dataloader())])
    np.testing.assert_array_equal(first, passes[0])
    another = data(PYTORCH, 16, 8, num_train=64, num_val=20, seed=4)
    assert (np.concatenate([x.X for x in batches(another.train_dataloader())]) != first).any()
    val = [[x.X for x in batches(d.val_dataloader())] for d in (one, other)]
    for x, y in zip(*val, strict=True):
        np.testing.assert_array_equal(x, y)


@both
def test_a_smaller_last_batch(backend):
    d = data(backend, 4, 3, num_train=10, num_val=6)
    train = [4, 4, 2] if backend is PYTORCH else [4, 4]
    for loader, sizes in ((d.train_dataloader(), train), (d.val_dataloader(), [4, 2])):
        assert [len(b.X) for b in batches(loader)] == sizes
        assert len(loader) == len(sizes)


@both
def test_a_text_of_one_window(backend):
    d = data(backend, 1, 9, text=LETTERS)
    (batch,) = batches(d.train_dataloader())
    assert d.vocab.decode(batch.X[0]) == LETTERS[:-1]
    assert d.vocab.decode(batch.Y[0]) == LETTERS[1:]
    with pytest.raises(ValueError, match="0 windows do not fill one batch of 1"):
        d.val_dataloader()


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_steps": 10}, "the text has 10 tokens, but a window of num_steps=10 needs 11"),
        ({"num_steps": 0}, "num_steps must be a whole number of at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, not True"),
        ({"num_train": 0}, "num_train must be a whole number of at least 1"),
        ({"num_train": 1e4}, r"num_train must be a whole number .*, not 10000\.0: write 10000"),
        ({"num_val": -1}, "num_val must be a whole number of at least 0"),
        ({"num_val": None}, "num_val must be a whole number of at least 0, not None"),
        ({"seed": None}, "seed must be a whole number of at least 0, not None"),
        ({"tokenization": "bpe", "vocab_size": 1e3}, r"vocab_size must be .*: write 1000"),
        ({"tokenization": "word"}, "tokenization must be one of 'char', 'bpe', not 'word'"),
        ({"tokenization": "bpe", "vocab_size": 200}, "vocab_size must be 256"),
        ({"text": ""}, "the text has 0 tokens"),
    ],
)
def test_arguments_that_make_no_sense(backend, change, message):
    with pytest.raises(ValueError, match=message):
        data(backend, **{"batch_size": 2, "num_steps": 3, "text": LETTERS, **change})


@both
@pytest.mark.parametrize("scalar", [np.int64, torch.tensor, jnp.int32])
def test_whole_numbers_of_any_library(backend, scalar):
    names = ("batch_size", "num_steps", "num_train", "num_val", "seed")
    values = dict(zip(names, (2, 3, 4, 2, 5), strict=True))
    d = data(backend, text=LETTERS, **{name: scalar(value) for name, value in values.items()})
    assert (type(d.batch_size), type(d.num_steps)) == (int, int)
    same = data(backend, text=LETTERS, **values)
    for a, b in zip(batches(d.train_dataloader()), batches(same.train_dataloader()), strict=True):
        np.testing.assert_array_equal(a.X, b.X)


def test_too_few_windows_for_one_batch_of_jax():
    d = data(BACKENDS[1], 8, 9, text=LETTERS)
    with pytest.raises(ValueError, match="1 windows do not fill one batch of 8"):
        d.train_dataloader()


@both
def test_windows_are_views(backend):
    d = data(backend, 64, 128, num_train=100_000, num_val=3_000)
    assert d.train_windows.shape == (100_000, 129) and d.val_windows.shape == (3_000, 129)
    assert np.shares_memory(d.train_windows, d.tokens) and np.shares_memory(d.val_windows, d.tokens)
    np.testing.assert_array_equal(d.val_windows[0], d.tokens[100_000:100_129])


@both
def test_made_quickly_and_in_little_memory(backend):
    """The main run's settings: under 0.3 s, and under 50 MB beyond the text."""
    corpus.time_machine()
    seconds = []
    for _ in range(3):
        start = time.process_time()
        data(backend, 64, 128, num_train=100_000, num_val=3_000)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.3
    tracemalloc.start()
    data(backend, 64, 128, num_train=100_000, num_val=3_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
