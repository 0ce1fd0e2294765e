"""What several files of tests share."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.skips import may_be

ROOT = Path(__file__).resolve().parents[1]
LONG = ("test_docs.py", "test_vignettes.py")


def pytest_collection_modifyitems(items):
    """The longest tests come first: at the end one process would wait for them."""
    items.sort(key=lambda item: item.path.name not in LONG)


def _listed(report):
    """What is skipped without a reason that is listed has failed."""
    told = report.skipped and isinstance(report.longrepr, tuple)  # else it was expected to fail
    if told and not may_be(reason := report.longrepr[2]):
        report.outcome = "failed"
        report.longrepr = f"skipped, which tests/skips.py does not allow here: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _listed((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _listed((yield))


@pytest.fixture
def without(monkeypatch):
    """A function that takes a library away."""
    right = builtins.__import__

    def take_away(library):
        def refuse(name, *args, **kwargs):
            if name.split(".")[0] == library:
                raise ImportError(name)
            return right(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", refuse)

    return take_away


@contextmanager
def alone(folder):
    """Processes of a parallel run go one after the other; where it can be, by a lock on a file."""
    try:
        import fcntl
    except ImportError:  # another system: each process makes its own
        yield folder / str(os.getpid())
        return
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed
        yield folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this checkout, made once for all processes of a run."""
    own = tmp_path_factory.getbasetemp()
    with alone(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as shared:
        folder = shared / "wheel"
        if not folder.exists():
            making = own / "wheel"
            command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet"]
            done = subprocess.run(
                [*command, "--no-build-isolation", "-w", str(making)],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            folder.parent.mkdir(exist_ok=True)
            making.replace(folder)
    return next(folder.glob("*.whl"))
