"""The published figures (book/facts.json), and the comparison with what the code gives."""

import json
from pathlib import Path

import numpy as np

FACTS = {
    fact["id"]: fact
    for fact in json.loads(Path(__file__).parents[1].joinpath("book/facts.json").read_text("utf-8"))
}


def assert_fact(identifier: str, got) -> None:
    """`got` is the published value, within the tolerance that the fact states (none: exactly)."""
    fact = FACTS[identifier]
    if "abs" in fact or "rel" in fact:
        np.testing.assert_allclose(
            np.asarray(got, dtype=float),
            fact["value"],
            atol=fact.get("abs", 0),
            rtol=fact.get("rel", 0),
            err_msg=fact["what"],
        )
    else:
        plain = np.asarray(got).tolist() if not isinstance(got, str) else got
        assert plain == fact["value"], fact["what"]
