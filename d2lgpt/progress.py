"""Progress bars: seen while a person waits, and absent from stored outputs."""

import os
import sys
from collections.abc import Iterable

from tqdm import tqdm


def person_looks() -> bool:
    """Whether somebody is there to see a bar: at a terminal or in a notebook, but no test.

    The environment variable `TQDM_DISABLE=1`, which tqdm knows too, says no.
    """
    if os.environ.get("TQDM_DISABLE", "") not in ("", "0") or "PYTEST_VERSION" in os.environ:
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def progress_bar(iterable: Iterable, total: int | None = None, **options) -> tqdm:
    """The same items behind a bar, which disappears at the end; `options` are those of tqdm."""
    # Plain tqdm, not tqdm.auto: where ipywidgets are missing, that one warns on every import.
    return tqdm(iterable, total=total, leave=False, disable=not person_looks(), ncols=80, **options)
