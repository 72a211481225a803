"""The corpus: *The Time Machine* by H. G. Wells, in windows of tokens."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from d2lgpt.checks import check_choice
from d2lgpt.config import check_whole
from d2lgpt.files import File, find
from d2lgpt.tokenizer import BPETokenizer, CharTokenizer

TIME_MACHINE = File(
    name="timemachine.txt",
    sha1="090b5e7e70c295757f55df93cb0a180b9691891a",
    url="http://d2l-data.s3-accelerate.amazonaws.com/timemachine.txt",
)


class Text(NamedTuple):
    """A text, and the words in which a page says where it is from."""

    text: str
    source: str


@cache
def time_machine() -> Text:
    """*The Time Machine* as it was published, or a text in its place; the same at every call.

    Where the file cannot be had, its place is taken by the help pages that every Python carries
    (`pydoc_data.topics`): English prose too, and the same 28 symbols once it is preprocessed.
    `source` says which of the two it is.
    """
    try:
        path = find(TIME_MACHINE)
    except FileNotFoundError:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
        return Text(text, "Python's help pages, in place of The Time Machine, which was not found")
    return Text(decode(path.read_bytes()), "The Time Machine, by H. G. Wells")


def decode(file: bytes) -> str:
    """The text of a UTF-8 file, whatever the system's encoding, without a byte order mark."""
    return file.decode("utf-8-sig")


def preprocess(text: str) -> str:
    """Put one space for every run of anything but the letters A to Z; make letters lower case."""
    return re.sub("[^A-Za-z]+", " ", text).lower()


class TimeMachineWindows:
    """What the `TimeMachine` of both backends has in common: all but the arrays of a batch.

    A window is `num_steps + 1` tokens in a row: the model reads all but its last token and is to
    predict all but its first. Window i starts at token i, so that neighbours overlap; they are
    views of one array and take no memory of their own.

    Args:
        batch_size, num_steps: the shape of a batch, (batch_size, num_steps).
        num_train, num_val: the first `num_train` windows are for training, the `num_val` after
            them for validation; fewer, where the text ends sooner.
        tokenization: `'char'` or `'bpe'`.
        vocab_size: for `'bpe'`, the tokens besides the three specials.
        seed: decides the order of the training windows, in both backends alike.

    Raises:
        ValueError: for an argument that makes no sense, or a text shorter than one window.
    """

    source = ""  # where the text is from, in words

    def __init__(
        self,
        batch_size: int,
        num_steps: int,
        num_train: int = 10000,
        num_val: int = 5000,
        tokenization: str = "bpe",
        vocab_size: int = 1024,
        seed: int = 0,
    ):
        check_choice("tokenization", tokenization, ("char", "bpe"))
        self.batch_size = check_whole("batch_size", batch_size)
        self.num_steps = num_steps = check_whole("num_steps", num_steps)
        num_train = check_whole("num_train", num_train)
        num_val = check_whole("num_val", num_val, least=0)
        seed = check_whole("seed", seed, least=0)
        text = self._preprocess(self._download())
        char = tokenization == "char"
        self.vocab = CharTokenizer(text) if char else BPETokenizer(text, vocab_size)
        self.tokens = np.array(self.vocab.encode(text), dtype=np.int64)
        if len(self.tokens) <= num_steps:
            raise ValueError(
                f"the text has {len(self.tokens)} tokens, but a window of num_steps={num_steps} "
                f"needs {num_steps + 1}: use a longer text or fewer steps"
            )
        windows = np.lib.stride_tricks.sliding_window_view(self.tokens, num_steps + 1)
        self.train_windows = windows[:num_train]
        self.val_windows = windows[num_train : num_train + num_val]
        self._rng = np.random.default_rng(seed)

    def _download(self) -> str:
        text, self.source = time_machine()
        return text

    def _preprocess(self, text: str) -> str:
        return preprocess(text)


class Batches:
    """Windows in batches (X, Y): X without the last token of each window, Y without the first.

    Can be gone through many times: `for X, Y in batches`.

    Args:
        windows: (windows, num_steps + 1).
        batch_size: windows in a batch.
        array: makes an array of the backend from X, and from Y.
        rng: draws a new order each time; without it, the windows come as they are.
        drop_last: leave out the last batch if it is smaller than the others.

    Raises:
        ValueError: if there is not one batch, and for a `batch_size` that is no whole number.
    """

    def __init__(
        self,
        windows: np.ndarray,
        batch_size: int,
        array: Callable = np.asarray,
        rng: np.random.Generator | None = None,
        drop_last: bool = False,
    ):
        batch_size = check_whole("batch_size", batch_size)
        if len(windows) < (batch_size if drop_last else 1):
            raise ValueError(
                f"{len(windows)} windows do not fill one batch of {batch_size}: "
                "use a longer text, fewer training windows before these, or a smaller batch"
            )
        self._windows, self._array = windows, array
        self._indices = (len(windows), batch_size, rng, drop_last)

    def __len__(self) -> int:
        count, batch_size, _, drop_last = self._indices
        return count // batch_size if drop_last else -(-count // batch_size)

    def __iter__(self) -> Iterator[tuple]:
        for rows in index_batches(*self._indices):
            yield self._array(self._windows[rows, :-1]), self._array(self._windows[rows, 1:])


def index_batches(
    count: int, batch_size: int, rng: np.random.Generator | None, drop_last: bool
) -> Iterator[np.ndarray]:
    """The numbers below `count` in batches, in an order that `rng` draws if there is one."""
    order = np.arange(count) if rng is None else rng.permutation(count)
    for start in range(0, count, batch_size):
        rows = order[start : start + batch_size]
        if len(rows) == batch_size or not drop_last:
            yield rows


def one_pass(data, loader: str, *kinds: type) -> Iterator[tuple]:
    """The batches (X, Y) of one pass over `data`: what `data.train_dataloader()`, say, gives.

    Args:
        data: anything with that method, for instance a `TimeMachine`.
        loader: the method's name.
        kinds: the types of array that X and Y may have.

    Raises:
        TypeError: if there is no such method, if it gives no batches, and for a batch that is no
            pair of such arrays.
        ValueError: if the pass brings no batch at all, and for a batch in which X and Y do not
            have the same shape (B, T).
    """
    name, batch = f"data.{loader}()", None
    if not callable(method := getattr(data, loader, None)):
        raise TypeError(
            f"data must have a method {loader}, as a TimeMachine has, and a {type(data).__name__} "
            "has none"
        )
    if not isinstance(batches := method(), Iterable):
        raise TypeError(f"{name} must give batches (X, Y), not a {type(batches).__name__}")
    for batch in batches:
        yield _pair(name, batch, kinds)
    if batch is None:
        raise ValueError(
            f"{name} gives no batch: it must begin anew at each call, and an empty list or a "
            "generator that is used up has nothing to give"
        )


def _pair(name: str, batch, kinds: tuple[type, ...]) -> tuple:
    """A batch, if it is a pair (X, Y) of arrays of these kinds, both (B, T)."""
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if len(parts) != 2 or not all(isinstance(part, kinds) for part in parts):
        wanted = " or ".join(map(_full_name, kinds))
        found = ", ".join(type(part).__name__ for part in parts)
        raise TypeError(f"{name} must give pairs (X, Y) of {wanted}, not ({found})")
    X, Y = parts
    if len(X.shape) != 2 or X.shape != Y.shape:
        raise ValueError(
            f"{name} must give X and Y of the same shape (B, T), not {tuple(X.shape)} and "
            f"{tuple(Y.shape)}"
        )
    return X, Y


def _full_name(kind: type) -> str:
    """torch.Tensor, jax.Array, numpy.ndarray."""
    package = kind.__module__.partition(".")[0].removesuffix("lib")
    return f"{package}.{kind.__name__.rpartition('.')[2]}"
