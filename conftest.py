"""Settings of all tests: nothing by chance, no deadline, and without what is not installed.

In this process, secure noise is replaced by a seeded generator that starts again with every test,
so that a test gives the same numbers in every run and in every order. A test of system entropy
itself is marked `real_noise`, and says how likely it is to fail without a fault: at most once in a
million runs. Programs that a test starts draw real noise; no assertion depends on its values.
"""

import gc
from collections import Counter
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.once import places, put, seeded

REAL = places()

settings.register_profile(
    "repeatable",
    derandomize=True,  # the same examples in every run
    database=None,
    deadline=None,  # a busy machine may take as long as it likes
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# What runs in an environment of its own, and what alembic runs.
collect_ignore = [
    "dpeffects/replication/unproved/generators/worker.py",
    "dpeffects/services/office/migrations",
]

if find_spec("starlette") is None:  # extra "office"
    collect_ignore.append("dpeffects/services/office")

if find_spec("flwr") is None:  # extra "federation"
    names = ("client_app", "server_app", "node", "link", "keys")
    collect_ignore += [f"dpeffects/services/federation/{name}.py" for name in names]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """All tests stay; looking for garbage among thousands takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a grid that is marked as sampled, all cases but one in so many are long."""
    seen = Counter()
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            own = item.nodeid.partition("[")[0]
            if seen[own] % mark.args[0]:
                item.add_marker("long")
            seen[own] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Noise of a test by its file: its fixtures, of whatever scope, get the same in any order."""
    real = item.get_closest_marker("real_noise") is not None
    put(REAL if real else seeded(item.nodeid.partition("::")[0]))
