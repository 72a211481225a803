"""The corpus: *The Time Machine* by H. G. Wells, and what stands in for it."""

import re
from functools import cache
from typing import NamedTuple

from d2lgpt.files import File, find

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
