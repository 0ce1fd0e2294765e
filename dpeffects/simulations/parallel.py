"""Independent tasks, run here or in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dpeffects.errors import MissingExtraError
from dpeffects.progress import bar

T = TypeVar("T")


def run_tasks(
    tasks: Sequence[Callable[[], T]], workers: int, about: str = "", *, ordered: bool = True
) -> Iterable[T]:
    """Run tasks, and give their results as they come, with a bar if ``about`` says what is done.

    Examples
    --------
    >>> list(run_tasks([lambda: 1, lambda: 2], workers=1))
    [1, 2]
    """
    results: Iterable[T] = (task() for task in tasks)
    if workers > 1:
        try:
            from joblib import Parallel, delayed
        except ImportError:
            raise MissingExtraError(
                'workers > 1 needs joblib: pip install "dpeffects[study]"'
            ) from None
        order = "generator" if ordered else "generator_unordered"
        results = Parallel(n_jobs=workers, return_as=order)(delayed(task)() for task in tasks)
    return bar(results, about, len(tasks)) if about else results
