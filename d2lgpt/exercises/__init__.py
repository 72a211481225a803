"""Exercises that answer back: `check(id, answer)`, `hint(id)` and `progress()`.

    from d2lgpt.exercises import check
    check("1.1", [1, 2, 3, 4])

`check` says *right*, or *not yet* with the hint that fits the mistake, or in one sentence what form
of answer it expects. It never shows a solution, and no answer, however wrong, stops the notebook:
errors inside the answer become part of the sentence. `d2lgpt.exercises.desk` has the public
functions, `judges` the ways to compare, `chapter_01` to `chapter_13` the exercises.
"""

from d2lgpt.exercises.desk import check, clear_progress, hint, progress

__all__ = ["check", "clear_progress", "hint", "progress"]
