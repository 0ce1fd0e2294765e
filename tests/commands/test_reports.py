"""Results as HTML, LaTeX and Markdown, and the record for a review board."""

import json

import pytest

import dpeffects as dpe
from tests.commands.shell import ESTIMATE, FORMULA, refused, run
from tests.commands.shell import study as records

DECLARED = {"y": (0, 1), "age": (18, 90), "sex": ["f", "m"]}
SEEDED = ["--method", "diff_in_means", "--seed", "1"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "ending"), [("html", "html"), ("latex", "tex"), ("markdown", "md")]
)
def test_formats(study, capsys, kind, ending):
    data = records().astype({"y": float})  # text of a file has no type
    fit = dpe.dp_ate("y ~ t", data, "diff_in_means", epsilon=1, bounds=DECLARED, seed=1)
    page = {"standalone": True} if kind == "html" else {}  # a file for a browser is a whole page
    wanted = getattr(fit.summary(conf_level=0.9), f"as_{kind}")(**page).rstrip("\n") + "\n"
    given = ["ate", "y ~ t", *ESTIMATE, *SEEDED, "--conf-level", 0.9]
    code, out, _ = run(capsys, *given, "--format", kind)
    assert (code, out.rstrip("\n") + "\n") == (0, wanted)
    assert run(capsys, *given, "--out", f"effect.{ending}")[0] == 0
    assert (study / f"effect.{ending}").read_text() == wanted


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["html", "latex", "markdown"])
def test_other_commands_have_them_too(study, capsys, kind):
    plan = ["plan", "y ~ t", "--n", 200, "--epsilon", 1, "--bounds", "bounds.toml"]
    plan += ["--method", "diff_in_means", "--format", kind]
    code, out, _ = run(capsys, *plan)
    assert code == 0
    assert "privacy-noise SD" in out.replace("-{}", "-")
    audit = ["audit", "diff_in_means", "--level", "label", "--epsilon", 1, "--runs", 100]
    code, out, _ = run(capsys, *audit, "--format", kind)
    assert code == 0
    assert "Worst pair" in out


def test_the_record_for_a_board(study, capsys):
    code, out, err = run(capsys, "ate", FORMULA, *ESTIMATE, "--record", "record.html")
    assert (code, err) == (0, "")
    assert "Average treatment effect (ATE), differentially private" in out
    assert "</html>" in (study / "record.html").read_text()
    json.loads((study / "record.json").read_text())
    more = ["--release", "groups", "--by", "sex", "--record", "groups.html"]
    assert run(capsys, "cate", FORMULA, *ESTIMATE, *more)[0] == 0
    assert (study / "groups.json").exists()


def test_the_record_of_a_combination(study, capsys):
    for site in ("North", "South"):
        sent = ["--site", site, "--out", f"{site}.json"]
        assert run(capsys, "release", "y ~ t", *ESTIMATE, *SEEDED[:2], *sent)[0] == 0
    assert run(capsys, "combine", "North.json", "South.json", "--record", "all.html")[0] == 0
    assert "North" in (study / "all.html").read_text()


def test_a_record_is_not_overwritten(study, capsys):
    given = ["ate", FORMULA, *ESTIMATE, "--record", "record.html"]
    assert run(capsys, *given)[0] == 0
    assert "record.html exists" in refused(capsys, *given)
    assert run(capsys, *given, "--force")[0] == 0
    (study / "record.json").write_text("{}")  # something else of that name
    assert "not the JSON of a record" in refused(capsys, *given, "--force")
