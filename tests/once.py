"""What several tests look at is made once, with noise that does not depend on who asks first."""

from __future__ import annotations

import functools
import os
import random
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

from dpeffects.privacy import noise
from dpeffects.privacy.noise import SecureNoise
from dpeffects.seeded import SeededNoise

Given, Made = ParamSpec("Given"), TypeVar("Made")
Places = list[tuple[Any, str, Any]]
"""An owner, a name in it, and what stands there."""
DRAWS = [
    name for name in ("laplace", "gaussian", "flip", "permutation") if name in vars(SecureNoise)
]


def places() -> Places:
    """Everything that secure noise draws by, as it is."""
    methods = [(SecureNoise, name, vars(SecureNoise)[name]) for name in DRAWS]
    return [*methods, (noise, "os", noise.os), (noise, "secrets", noise.secrets)]


def seeded(name: str) -> Places:
    """The same, by generators that are seeded with a name.

    Matrices, cubes and answers of several levels are made as ever, of seeded numbers.
    """
    seed = zlib.crc32(name.encode())
    source, bits = SeededNoise(seed), random.Random(seed)
    entropy = {
        "os": SimpleNamespace(**{**vars(os), "urandom": bits.randbytes}),
        "secrets": SimpleNamespace(**{**vars(secrets), "randbelow": bits.randrange}),
    }
    methods = [(SecureNoise, draw, _method(getattr(source, draw))) for draw in DRAWS]
    return [*methods, *((noise, module, own) for module, own in entropy.items())]


def _method(draw: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given: draw(*given)


def put(wanted: Places) -> None:
    """Let secure noise be drawn by these."""
    for owner, name, value in wanted:
        setattr(owner, name, value)


@contextmanager
def noise_of(name: str) -> Iterator[None]:
    """Within it, secure noise is drawn by generators that are seeded with a name."""
    before = places()
    put(seeded(name))
    try:
        yield
    finally:
        put(before)


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
