"""The two training budgets: `full` where an accelerator is present, `quick` on a CPU.

The quick budget is what tests run and what the stored outputs of the chapters show. The reader
may ask for either with the environment variable `D2LGPT_BUDGET`.
"""

import os
import sys

from d2lgpt.checks import check_choice
from d2lgpt.config import check_whole


def budget() -> str:
    """`"full"` or `"quick"`: what `D2LGPT_BUDGET` says, else full with an accelerator.

    Backends that are imported already are asked, and all of them must have one.

    Raises:
        ValueError: if `D2LGPT_BUDGET` is neither.
    """
    wanted = os.environ.get("D2LGPT_BUDGET", "")
    if wanted:
        check_choice("the environment variable D2LGPT_BUDGET", wanted, ("quick", "full"))
        return wanted
    return "full" if _accelerator() else "quick"


def training_steps(full: int, quick: int) -> int:
    """How many steps a cell trains; prints which budget that is, and of how many steps.

    Raises:
        ValueError: for numbers that are no steps, or a quick budget above the full one.
    """
    check_whole("full", full)
    check_whole("quick", quick)
    if quick > full:
        raise ValueError(f"the quick budget, {quick} steps, must not exceed the full one, {full}")
    if budget() == "full":
        print(f"full budget: {full:,} steps")
        return full
    print(f"quick budget: {quick:,} of {full:,} steps")
    return quick


def _accelerator() -> bool:
    """Whether all backends that are imported have an accelerator: the slowest one decides."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    found = []
    if torch is not None:
        found.append(torch.cuda.is_available())
    if jax is not None:
        found.append(jax.default_backend() != "cpu")
    return bool(found) and all(found)
