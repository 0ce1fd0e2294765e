"""Commands in the guide run as they stand, page by page, in a shell."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from dpeffects import cli
from tests.commands.shell import ENVIRONMENT, ROOT

TEXTS = {path.stem: path.read_text() for path in sorted((ROOT / "docs" / "guide").glob("*.md"))}
BLOCKS = {name: re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for name, text in TEXTS.items()}
PAGES = {name: "".join(blocks) for name, blocks in BLOCKS.items() if blocks}
SHELL = f'set -eu\ndpeffects() {{ "{sys.executable}" -m dpeffects "$@"; }}\n'


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    """What the block about sites takes for granted: a site's data, and what others sent."""
    monkeypatch.chdir(tmp_path)
    bounds = '[bounds]\ny = {range = [0, 1]}\nage_group = {levels = ["young", "old"]}\n'
    (tmp_path / "bounds.toml").write_text(bounds + 'sex = {levels = ["f", "m"]}\n')
    rng, n = np.random.default_rng(1), 3000
    columns = {name: rng.integers(0, 2, n) for name in ("y", "t")}
    columns |= {"age_group": rng.choice(["young", "old"], n), "sex": rng.choice(["f", "m"], n)}
    pd.DataFrame(columns).to_csv("patients.csv", index=False)
    (tmp_path / "keys").mkdir()
    given = ["y ~ t | age_group + sex", "patients.csv", "--method", "smooth_matching"]
    given += ["--epsilon", "1", "--delta", "1e-5", "--bounds", "bounds.toml"]
    for site in ("South", "East"):
        assert cli.main(["keygen", site, "--folder", "keys"]) == 0
        sent = [
            "--site",
            site,
            "--sign",
            f"keys/{site}.private.pem",
            "--out",
            f"{site.lower()}.json",
        ]
        assert cli.main(["release", *given, *sent]) == 0
    return tmp_path


def test_there_are_commands_in_the_guide():
    assert PAGES.keys() == {"commands", "sites"}


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_guide_run(hospitals, page):
    command = ["bash", "-c", SHELL + PAGES[page]]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=hospitals)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "differentially private" in done.stdout
