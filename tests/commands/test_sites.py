"""Releases of sites and their combination, from a shell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpeffects import cli
from dpeffects.design.codebook import read_bounds
from dpeffects.services.sites import SiteRelease

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
FORMULA = "y ~ t | age_group + sex"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, site in enumerate(["north", "south", "east"]):
        rng, n = np.random.default_rng(seed), 3000
        frame = pd.DataFrame(
            {
                "y": rng.integers(0, 2, n),
                "t": rng.integers(0, 2, n),
                "age_group": rng.choice(["young", "old"], n),
                "sex": rng.choice(["f", "m"], n),
            }
        )
        frame.to_csv(f"{site}.csv", index=False)
        frame.to_parquet(f"{site}.parquet")
    (tmp_path / "bounds.toml").write_text(
        '[bounds]\ny = {range = [0, 1]}\nage_group = {levels = ["young", "old"]}\n'
        'sex = {levels = ["f", "m"]}\n'
    )
    return tmp_path


def release(site="north", *more, data=None, out=True):
    arguments = [
        "release", FORMULA, data or f"{site}.csv", "--method", "smooth_matching", "--epsilon", "1",
        "--delta", "1e-5", "--bounds", "bounds.toml", "--site", site.title(), *more,
    ]  # fmt: skip
    return cli.main([*arguments, *(["--out", f"{site}.json"] if out else [])])


def refused(capsys, code=2):
    """One line on stderr, nothing on stdout."""
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    return said.err


def test_the_whole_way(folder, capsys):
    for site in ("north", "south", "east"):
        assert release(site) == 0
    assert "written to east.json" in capsys.readouterr().out
    assert cli.main(["combine", "north.json", "south.json", "east.json"]) == 0
    out = capsys.readouterr().out
    assert "Average treatment effect (ATE) of 3 sites combined, differentially private" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.long
def test_as_a_program(folder):
    release("north")
    command = [sys.executable, "-m", "dpeffects", "combine", "north.json"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "1 site" in done.stdout
    done = subprocess.run([*command, "no.json"], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dpeffects: no.json cannot be read: No such file or directory\n"


def test_parquet_and_standard_output(folder, capsys):
    assert release("north", data="north.parquet", out=False) == 0
    made = SiteRelease.from_json(capsys.readouterr().out)
    assert (made.site, made.n, made.guarantee.status) == ("North", 3000, "exact")


def test_options_of_the_method(folder, capsys):
    more = ["--option", "matching=round_robin", "--option", "paper_constants=true"]
    more += ["--budget-split", "estimate=0.5", "--seed", "3", "--request", "r1"]
    assert release("north", *more) == 0
    made = SiteRelease.load("north.json")
    assert made.guarantee.status == "void: seeded"
    assert made.request == "r1"
    capsys.readouterr()
    assert release("south", "--no-variance") == 2
    assert "the scale of its noise is private" in refused(capsys)
    assert release("south", "--option", "colour=red") == 2
    assert "has no option 'colour'" in refused(capsys)
    assert release("south", "--option", "colour") == 2
    assert "NAME=VALUE" in refused(capsys)


def test_estimand_and_level(folder, capsys):
    arguments = ["release", FORMULA, "north.csv", "--method", "private_ipw", "--epsilon", "1"]
    arguments += ["--bounds", "bounds.toml", "--site", "North", "--estimand", "ATT"]
    assert cli.main([*arguments, "--level", "label"]) == 0
    made = SiteRelease.from_json(capsys.readouterr().out)
    assert (made.estimand, made.level) == ("ATT", "label")


def test_a_release_is_not_overwritten_by_accident(folder, capsys):
    release("north")
    before = (folder / "north.json").read_text()
    capsys.readouterr()
    assert release("north") == 2
    assert "north.json exists" in refused(capsys)
    assert (folder / "north.json").read_text() == before
    assert release("north", "--force") == 0
    assert (folder / "north.json").read_text() != before


def test_keys(folder, capsys):
    (folder / "keys").mkdir()
    assert cli.main(["keygen", "North", "--folder", "keys"]) == 0
    assert cli.main(["keygen", "South", "--folder", "keys"]) == 0
    release("north", "--sign", "keys/North.private.pem")
    release("south", "--sign", "keys/North.private.pem")
    capsys.readouterr()
    assert cli.main(["combine", "north.json", "--public-keys", "keys"]) == 0
    capsys.readouterr()
    assert cli.main(["combine", "north.json", "south.json", "--public-keys", "keys"]) == 2
    assert "'South' is signed by another key" in refused(capsys)
    assert cli.main(["keygen", "North", "--folder", "keys"]) == 2
    assert "not overwritten" in refused(capsys)


def test_a_wrong_key_is_found_before_the_data_is_read(folder, capsys):
    assert release("north", "--sign", "no.pem", data="nowhere.csv") == 2
    assert "no.pem cannot be read" in refused(capsys)


def test_json_and_out(folder, capsys):
    release("north")
    release("south")
    capsys.readouterr()
    files = ["north.json", "south.json"]
    more = ["--left-out", "West=did not answer", "--rule", "ivw", "--conf-level", "0.9"]
    assert cli.main(["combine", *files, "--format", "json", *more]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["conf_int"]["conf_level"] == 0.9
    assert printed["left_out"]["West"] == "did not answer"
    assert cli.main(["combine", *files, "--out", "all.json", *more]) == 0
    assert json.loads((folder / "all.json").read_text()) == printed
    assert capsys.readouterr().out.endswith("written to all.json\n")
    assert cli.main(["combine", *files]) == 0
    printed = capsys.readouterr().out
    assert cli.main(["combine", *files, "--out", "all.txt"]) == 0
    assert (folder / "all.txt").read_text() == printed
    capsys.readouterr()
    assert cli.main(["combine", *files, "--out", "no/all.txt"]) == 2
    assert "cannot be written" in refused(capsys)
    assert cli.main(["combine", *files, "--left-out", "West"]) == 2
    assert "SITE=REASON" in refused(capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required"),
        (["fly"], "invalid choice"),
        (["release"], "required"),
        (["release", FORMULA, "north.csv", "--site", "N", "--epsilon", "much"], "invalid float"),
        (["combine"], "required"),
        (["combine", "bounds.toml"], "not valid JSON"),
        (["combine", "north.csv"], "not valid JSON"),
        (["combine", "."], "cannot be read"),
        (["combine", "x.json", "--rule", "best"], "invalid choice"),
        (["keygen", "../x"], "cannot be the name"),
    ],
)
def test_wrong_calls(folder, capsys, arguments, words):
    assert cli.main(arguments) == 2
    assert words in refused(capsys)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("no.csv", "No such file"),
        ("no.parquet", "no.parquet cannot be read"),
        ("bounds.toml", ".csv, .csv.gz or .parquet"),
        ("empty.csv", "cannot be read"),
        ("broken.parquet", "cannot be read"),
        ("ragged.csv", "cannot be read"),
        ("binary.csv", "cannot be read"),
        (".", ".csv, .csv.gz or .parquet"),
    ],
)
def test_data_that_cannot_be_read(folder, capsys, data, words):
    (folder / "empty.csv").write_text("")
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    (folder / "ragged.csv").write_text("a,b\n1,2\n1,2,3,4\n")
    (folder / "binary.csv").write_bytes(b"\xff\xfe\x00\x01" * 9)
    assert release("north", data=data) == 2
    assert words in refused(capsys)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[bounds]\ny = 1", "y = {range = [0, 1]}"),
        ("[bounds]\ny = {range = 3}", "'y': a range has a lower and an upper end"),
        ("[bounds]\ny = {range = [1, 0]}", "the lower end must be below the upper end"),
        ("[bounds]\nyy = {range = [0, 1]}", "does not have; did you mean 'y'"),
        ("[bounds", "not valid TOML"),
        ("[bounds]\n[other]", "one table"),
        ("bounds = 3", "write bounds = [0, 1]"),
    ],
)
def test_bounds_that_cannot_be_read(folder, capsys, text, words):
    (folder / "bounds.toml").write_text(text)
    assert release("north") == 2
    assert words in refused(capsys)


def test_missing_bounds_file(folder, capsys):
    (folder / "bounds.toml").unlink()
    assert release("north") == 2
    assert "bounds.toml cannot be read" in refused(capsys)


def test_bounds_file(folder):
    assert read_bounds("bounds.toml") == {
        "y": (0, 1),
        "age_group": ["young", "old"],
        "sex": ["f", "m"],
    }
