"""What several tests look at is made once, with noise that does not depend on who asks first."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from dpeffects.privacy.noise import SecureNoise
from dpeffects.unproved.seeded import SeededNoise

Given, Made = ParamSpec("Given"), TypeVar("Made")
DRAWS = [
    name for name in ("laplace", "gaussian", "flip", "permutation") if name in vars(SecureNoise)
]


@contextmanager
def noise_of(name: str) -> Iterator[None]:
    """Within it, secure noise is drawn by a generator that is seeded with a name."""
    seeded, before = (
        SeededNoise(zlib.crc32(name.encode())),
        {x: vars(SecureNoise)[x] for x in DRAWS},
    )
    try:
        for draw in DRAWS:
            setattr(SecureNoise, draw, drawn_by(getattr(seeded, draw)))
        yield
    finally:
        for draw, own in before.items():
            setattr(SecureNoise, draw, own)


def drawn_by(draw):
    """Return a method that draws by another generator."""
    return lambda self, *given: draw(*given)


def once(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Keep what a function makes, as `functools.cache` does, with noise by what was asked for.

    Noise of a test starts again with every test (`conftest.py`), but what is kept was drawn by the
    test that came first, and in a parallel run that is another one each time.
    """

    @functools.cache
    @functools.wraps(make)
    def made(*given: Given.args, **more: Given.kwargs) -> Made:
        with noise_of(f"{make.__module__}.{make.__name__}{given}{more}"):
            return make(*given, **more)

    return made
