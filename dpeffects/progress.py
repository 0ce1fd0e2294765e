"""A bar for what takes a while: on a terminal only, and never part of a result."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar, cast

T = TypeVar("T")

DELAY = 2.0
"""Seconds before a bar is shown: what is done by then needs none."""


def bar(iterable: Iterable[T], about: str, total: int | None = None) -> Iterable[T]:
    """Go through an iterable, with a bar on stderr if that is a terminal and tqdm is installed.

    Parameters
    ----------
    iterable
        What to go through.
    about
        What is being done, in a few words.
    total
        How many there are, where the iterable does not know.

    Examples
    --------
    >>> list(bar([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not getattr(sys.stderr, "isatty", lambda: False)():  # there may be none
        return iterable
    try:
        from tqdm import tqdm
    except ImportError:  # extra "progress"
        return iterable
    options = {"file": sys.stderr, "leave": False, "delay": DELAY, "dynamic_ncols": True}
    return cast("Iterable[T]", tqdm(iterable, about, total, **options))
