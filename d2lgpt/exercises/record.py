"""Which exercises are solved: a small JSON file in the user's data folder.

`D2LGPT_PROGRESS` names another file. The file changes as a whole or not at all, so that a crash in
the middle of a write loses nothing.
"""

import json
import os
from pathlib import Path


def path() -> Path:
    """Where the progress is kept."""
    if chosen := os.environ.get("D2LGPT_PROGRESS"):
        return Path(chosen).expanduser()
    from platformdirs import user_data_path

    return user_data_path("d2lgpt") / "progress.json"


def solved() -> list[str]:
    """The exercises that are solved, in the order in which they were; a damaged file has none."""
    try:
        if not path().is_file():  # a device may have no end
            return []
        ids = json.loads(path().read_text("utf-8"))["solved"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # the last: no home, too deep
        return []
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list) else []


def note(id: str) -> str:
    """Remember that an exercise is solved; returns a remark if that was not possible."""
    ids = solved()
    if id in ids:
        return ""
    try:
        file = path()
        if file.exists() and not file.is_file():
            return f" (It could not be remembered: {file} is no file.)"
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.{os.getpid()}.part")
        try:
            partial.write_text(json.dumps({"solved": [*ids, id]}) + "\n", "utf-8")
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
    except (OSError, RuntimeError, ValueError) as error:
        return f" (It could not be remembered: {error}.)"
    return ""


def clear() -> None:
    """Forget everything."""
    if path().is_file():
        path().unlink(missing_ok=True)
