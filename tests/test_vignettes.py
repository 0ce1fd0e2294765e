"""Every vignette runs from start to end in its quick mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VIGNETTES = sorted(p for p in (ROOT / "vignettes").glob("*.py") if p.name != "common.py")


@pytest.mark.parametrize("vignette", VIGNETTES, ids=lambda path: path.stem)
def test_it_runs(vignette, tmp_path):
    pytest.importorskip("matplotlib")
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, str(vignette)], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
