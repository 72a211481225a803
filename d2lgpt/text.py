"""Text on a page."""

from textwrap import fill


def print_wrapped(text: str, width: int = 80) -> None:
    """Print a text in lines of at most `width` characters.

    A line ends between two words, and the space there is not printed; only a word that is longer
    than a line is broken. Where the text has a newline, a new line begins.
    """
    for line in text.split("\n"):
        print(fill(line, width, break_on_hyphens=False))
