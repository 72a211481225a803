"""The exercises of chapter 11: sampling."""

EXERCISES = ()
