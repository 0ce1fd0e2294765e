"""What several files of tests share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


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
