"""`DATA_HUB` and `download`, as d2l has them: files by name, each with its address and its hash.

The files of this book are found wherever `d2lgpt.files` looks: in a package, in `D2LGPT_DATA`, in
the cache, in the network. In d2l a name leads to the network and to the folder `../data`.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from d2lgpt.bridge import load_d2l
from d2lgpt.corpus import TIME_MACHINE
from d2lgpt.files import GPT2, File, find, place
from d2lgpt.tokenizer import MERGES, VOCAB

_FILES = {
    "time_machine": TIME_MACHINE,
    "gpt2": GPT2,
    "gpt2_merges": MERGES,
    "gpt2_vocab": VOCAB,
}

#: Name -> (address, SHA-1). Add your own; names that are missing are looked up in d2l's hub.
DATA_HUB: dict[str, tuple[str, str]] = {name: (f.url, f.sha1) for name, f in _FILES.items()}


def download(url: str, folder: str | Path | None = None, sha1_hash: str | None = None) -> str:
    """The path of a file whose SHA-1 is right; it is downloaded unless it is on this machine.

    Args:
        url: a name in `DATA_HUB` or in the hub of PyPI's d2l, or an address of your own.
        folder: where the file is to be, under the last part of its address. Without one it stays
            where it was found, or comes into the user's cache.
        sha1_hash: the file's SHA-1, which an address of your own needs and a name brings along.

    Raises:
        ValueError: for a name that no hub has, an address without a hash, and a hash that is none
            or is not the hub's.
        FileExistsError: if the folder has something else under that name.
        FileNotFoundError: if the file is not to be had; the message says what was tried.
    """
    file = _file(url, sha1_hash)
    return str(find(file) if folder is None else place(file, folder))


def _file(name: str, sha1: str | None) -> File:
    if not isinstance(name, str):
        raise TypeError(f"download takes a name or an address, not {type(name).__name__}")
    if _is_address(name):
        url, sha1 = name, sha1 or _hash_of(name)
    else:
        url, known = _entry(name)
        if sha1 not in (None, known):
            raise ValueError(
                f"the hub has {known} for {name!r}, not sha1_hash={sha1}: leave it out"
            )
        sha1 = known
    if not re.fullmatch("[0-9a-fA-F]{40}", str(sha1)):
        raise ValueError(f"the SHA-1 of {name!r} must be 40 hexadecimal digits, not {sha1!r}")
    sha1 = sha1.lower()
    for file in _FILES.values():
        if file.sha1 == sha1:  # then it may be where that one is, whatever its address
            return replace(file, url=url)
    if not (last := Path(urlsplit(url).path).name):
        raise ValueError(f"the address {url} does not end in the name of a file")
    return File(last, sha1, url, cached=f"{sha1[:8]}-{last}")


def _is_address(name: object) -> bool:
    return isinstance(name, str) and name.startswith(("http://", "https://"))


def _entry(name: str) -> tuple[str, str]:
    """Address and hash of a name."""
    problems = []
    for hub in _hubs(problems):
        if name in hub:
            match hub[name]:
                case (url, sha1) if _is_address(url):
                    return url, sha1
                case entry:
                    raise ValueError(f"DATA_HUB[{name!r}] must be (address, SHA-1), not {entry!r}")
    raise ValueError(
        f"{name!r} is in no hub{''.join(problems)}: use one of {', '.join(map(repr, DATA_HUB))}, "
        "an address that starts with http, or add DATA_HUB[name] = (address, SHA-1)"
    )


def _hash_of(url: str) -> str:
    """The hash of an address that some hub has too."""
    for hub in _hubs([]):
        for entry in hub.values():
            match entry:
                case (str(address), str(sha1)) if address == url:
                    return sha1
    raise ValueError(
        f"{url} is in no hub: give sha1_hash, the SHA-1 that its publisher states. "
        "Nothing else can tell whether the right file came"
    )


def _hubs(problems: list[str]) -> Iterator[dict]:
    """This hub, then that of d2l (`d2l.jax` has none); `problems` says which could not be asked."""
    yield DATA_HUB
    try:
        yield load_d2l("d2l.torch").DATA_HUB
    except ImportError as error:
        problems.append(f" (that of PyPI's d2l could not be asked: {error})")
