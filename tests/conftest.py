"""What several files of tests share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONG = ("test_docs.py", "test_vignettes.py")


def pytest_collection_modifyitems(items):
    """The longest tests come first: at the end one process would wait for them."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet"]
    done = subprocess.run(
        [*command, "--no-build-isolation", "-w", str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))
