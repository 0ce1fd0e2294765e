"""Commands that spend nothing: methods, bounds-template, plan, audit, demo."""

import json
import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.codebook import read_bounds
from dpeffects.estimators import conditional_methods, proved, registry, table_methods
from dpeffects.evidence.auditing.audit_result import AuditResult
from dpeffects.files import toml_key, toml_text
from tests.commands.shell import BOUNDS, FORMULA, refused, run

# --- methods ----------------------------------------------------------------------------------


def test_every_method_is_listed_and_described(capsys):
    code, out, _ = run(capsys, "methods")
    assert code == 0
    for name in {**registry(), **conditional_methods(), **table_methods()}:
        assert re.search(rf"^{name} ", out, re.MULTILINE)
        code, described, _ = run(capsys, "methods", name)
        assert code == 0
        assert max(map(len, described.splitlines())) <= 80
        plain = " ".join(described.split())
        assert plain == " ".join(dpe.methods(name).split())  # wrapped, nothing lost
    assert max(map(len, out.splitlines())) <= 80


def test_methods_as_json(study, capsys):
    listed = json.loads(run(capsys, "methods", "--format", "json")[1])
    assert [x["method"] for x in listed] == [*registry(), *conditional_methods(), *table_methods()]
    assert run(capsys, "methods", "private_psm", "--out", "psm.json")[0] == 0
    found = json.loads((study / "psm.json").read_text())
    assert found == next(entry for entry in listed if entry["method"] == "private_psm")
    assert found["options"]["neighbors"] == 5
    assert set(found["budget_split"]) == {"sample", "label"}


def test_an_unknown_method(capsys):
    assert "Did you mean 'private_psm'" in refused(capsys, "methods", "private_pms")


# --- bounds-template --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "data.parquet"])
def test_a_template_that_is_filled_in_can_be_read(study, capsys, name):
    code, out, _ = run(capsys, "bounds-template", name)
    assert code == 0
    assert tomllib.loads(out)["bounds"].keys() - {"smoker"} == {"y", "t", "age", "sex"}
    lines = out.splitlines()
    filled = {line.split(" = ")[0]: line for line in BOUNDS.splitlines() if " = " in line}
    made = [filled.get(line.split(" = ")[0], line) for line in lines if not line.startswith("t =")]
    (study / "mine.toml").write_text("\n".join(made))
    assert read_bounds("mine.toml") == read_bounds("bounds.toml")


def test_a_template_knows_declared_types_only(study, capsys):
    """A Parquet file declares types; those of a CSV file would have to be read off its rows."""
    out = run(capsys, "bounds-template", "data.parquet")[1]
    assert "age = {range = []}  # number: a range\n" in out
    assert "sex = {levels = []}  # text: levels\n" in out
    assert "# smoker: boolean, needs no entry" in out
    out = run(capsys, "bounds-template", "data.csv")[1]
    assert "age = {}  # a range or levels\nsex = {}  # a range or levels\n" in out


def test_a_template_is_the_same_whatever_the_rows_are(study, capsys):
    frame = pd.read_parquet("data.parquet")
    first = [run(capsys, "bounds-template", f"data.{kind}")[1] for kind in ("csv", "parquet")]
    other = frame.assign(y=9, age=-frame.age, sex="x", smoker=~frame.smoker).head(3)
    other.to_parquet("data.parquet")
    other.drop(columns="smoker").assign(age="many").to_csv("data.csv", index=False)
    then = [run(capsys, "bounds-template", f"data.{kind}")[1] for kind in ("csv", "parquet")]
    assert then == first


def test_what_is_not_filled_in_is_named(study, capsys):
    assert run(capsys, "bounds-template", "data.parquet", "--out", "mine.toml")[0] == 0
    given = ["data.parquet", "--epsilon", 1, "--bounds", "mine.toml"]
    said = refused(capsys, "ate", FORMULA, *given)
    assert "mine.toml: 'y' is not filled in" in said
    assert "exists" in refused(capsys, "bounds-template", "data.csv", "--out", "mine.toml")


def test_strange_names_survive_the_template(study, capsys):
    names = ["a b", 'say "hi"', "back\\slash", "é", "tab\t", "\x7f", "a.b", "1", "#"]
    pd.DataFrame({name: [1.5] for name in names}).to_csv("odd.csv", index=False)
    out = run(capsys, "bounds-template", "odd.csv")[1]
    assert list(tomllib.loads(out)["bounds"]) == names
    for name in names:
        assert tomllib.loads(f"{toml_key(name)} = {toml_text(name)}") == {name: name}


@pytest.mark.parametrize("name", ["none.csv", "bounds.toml", ".", "twice.csv", "empty.csv"])
def test_templates_of_what_is_no_table(study, capsys, name):
    (study / "empty.csv").write_text("")
    (study / "twice.csv").write_text("a,a\n1,2\n")
    refused(capsys, "bounds-template", name)


@pytest.mark.parametrize("text", ["[bounds", "bounds = 1", "[bounds]\ny = " + "[" * 5000, "\x00"])
def test_bounds_that_are_no_toml(study, capsys, text):
    (study / "bounds.toml").write_text(text)
    refused(capsys, "ate", FORMULA, "data.csv", "--epsilon", 1, "--bounds", "bounds.toml")


def test_bounds_in_another_encoding(study, capsys):
    (study / "bounds.toml").write_bytes("[bounds]\né = {range = [0, 1]}".encode("latin-1"))
    given = ["data.csv", "--epsilon", 1, "--bounds", "bounds.toml"]
    assert "not UTF-8" in refused(capsys, "ate", FORMULA, *given)
    assert "cannot be read" in refused(capsys, "ate", FORMULA, *given[:-1], ".")


# --- plan -------------------------------------------------------------------------------------

PLAN = ["plan", "y ~ t", "--n", 400, "--epsilon", 1, "--bounds", "plan.toml"]
PLAN += ["--method", "diff_in_means"]


@pytest.fixture
def planned(study):
    (study / "plan.toml").write_text("[bounds]\ny = {range = [0, 1]}\n")
    return study


def test_a_plan_and_what_is_needed(planned, capsys):
    more = [
        "--outcome-sd",
        0.3,
        "--half-width",
        0.15,
        "--format",
        "json",
        "--option",
        "arms=public",
    ]
    code, out, _ = run(capsys, *PLAN, *more)
    assert code == 0
    found = json.loads(out)
    expected = dpe.plan(
        "y ~ t",
        n=400, epsilon=1, bounds={"y": (0, 1)}, method="diff_in_means", outcome_sd=0.3,
        arms="public",
    )  # fmt: skip
    assert found["rows"][0]["half_width"] == expected.rows[0].half_width
    assert found["needed"] == expected.required(0.15).to_dict("records")
    assert found["setting"]["bounds"]["y"]["range"] == [0, 1]


def test_a_plan_in_words(planned, capsys):
    code, out, _ = run(capsys, *PLAN, "--half-width", 0.15, "--of", "n")
    assert code == 0
    assert "no data were used" in out
    assert re.search(r"Required for a half-width of 0.15\n-+\nmethod +n\n", out)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.long
def test_all_methods_are_planned(study, capsys):
    given = ["--n", 300, "--epsilon", 1, "--bounds", "bounds.toml", "--format", "json"]
    code, out, _ = run(capsys, "plan", FORMULA, *given)
    assert code == 0
    found = json.loads(out)["rows"]
    assert {row["method"] for row in found} == set(proved())
    assert "delta" in next(r["reason"] for r in found if r["method"] == "smooth_matching")


def test_a_plan_is_drawn(planned, capsys):
    pytest.importorskip("matplotlib")
    assert run(capsys, *PLAN, "--plot", "plan.png")[0] == 0
    assert (planned / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert ".png, .pdf, .svg" in refused(capsys, *PLAN, "--plot", "plan.xyz")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--n", 2], "from 4"),
        (["--n", 10**9], "to 10000000"),
        (["--n", "many"], "invalid int"),
        (["--epsilon", "nan"], "epsilon"),
        (["--epsilon", -1], "epsilon"),
        (["--treated-share", 1.5], "treated_share"),
        (["--design", "trial"], "design"),
        (["--half-width", 0], "half_width must be a positive number"),
        (["--option", "n=3"], "an argument of its own"),
        (["--option", "colour=red"], "has no option"),
        (["--bounds", "data.csv"], "needs a column with the names"),
        (["--estimand", "ATT"], "estimates ATE"),
        (["--plot", "no/plan.png"], "cannot be written"),
    ],
)
def test_wrong_plans(planned, capsys, more, words):
    assert words in refused(capsys, *PLAN, *more)


def test_a_plan_needs_all_bounds(planned, capsys):
    given = ["--n", 200, "--epsilon", 1, "--bounds", "plan.toml"]
    said = refused(capsys, "plan", FORMULA, *given)
    assert "declared bounds for age, sex. Add entries to the file of --bounds" in said


# --- audit ------------------------------------------------------------------------------------

AUDIT = ["audit", "diff_in_means", "--epsilon", 1, "--runs", 400, "--seed", 1]


@pytest.mark.long
def test_an_audit(study, capsys):
    more = ["--level", "label", "--no-variance", "--format", "json"]
    code, out, _ = run(capsys, *AUDIT, *more)
    found = dpe.audit("diff_in_means", epsilon=1, runs=400, seed=1, level="label", variance=False)
    assert (code, json.loads(out)) == (0, json.loads(found.to_json()))


@pytest.mark.long
def test_a_broken_promise_is_exit_code_1(study, capsys, monkeypatch):
    """As grep has it: 0 and 1 are answers, 2 is trouble."""
    monkeypatch.setattr(AuditResult, "violated", True)
    code, out, err = run(capsys, *AUDIT, "--level", "label")
    assert (code, err) == (1, "")
    assert "*** VIOLATED" in out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--runs", 3], "runs must be"),
        (["--workers", 0], "workers must be"),
        (["--conf-level", 1], "conf_level must be"),
        (["--seed", -3], "seed must be"),
        (["--option", "colour=red"], "has no option"),
        (["--option", "pairs=1"], "an argument of its own"),
        (["--epsilon", "inf"], "epsilon must be"),
        (["--estimand", "ATT"], "estimates ATE"),
    ],
)
def test_wrong_audits(study, capsys, more, words):
    assert words in refused(capsys, *AUDIT, *more)


# --- demo -------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_demo_leaves_a_study_that_can_go_on(study, capsys):
    code, out, err = run(capsys, "demo", "--folder", "here")
    assert (code, err) == (0, "")
    assert "NOT PRIVATE" not in out
    assert "only (0.5, 0) is left" in out
    assert "Full results: smoking.html\n" in out
    assert "Privacy budget" not in out  # that is in the record
    assert "Privacy budget" in Path("here/smoking.html").read_text(encoding="utf-8")
    assert max(map(len, out.splitlines())) <= 92
    ledger = dpe.open_ledger("here/study.db", "births")
    assert float(ledger.spent[0]) == pytest.approx(1, abs=1e-9)
    assert "not empty" in refused(capsys, "demo", "--folder", "here")
    assert "cannot be used" in refused(capsys, "demo", "--folder", "data.csv")


@pytest.mark.long
def test_every_line_of_the_demo_can_be_typed(study, capsys, monkeypatch):
    """Its commands, typed again in its folder, say what it said."""
    out = run(capsys, "demo", "--folder", "here", "--seed", 1)[1]
    monkeypatch.chdir("here")
    for name in ("study.db", "study.db.seen", "smoking.html", "smoking.json"):
        (study / "here" / name).unlink()
    steps = re.findall(
        r"^\$ dpeffects ((?:.*\\\n)*.*)\n((?:.*\n)*?)\n(?=\d\. |The files)", out, re.M
    )
    assert len(steps) == 6
    import shlex

    for line, said in steps:
        code, printed, err = run(capsys, *shlex.split(line.replace("\\\n", "")))
        ids = re.compile(r"\b[0-9a-f]{16}\b")  # every ledger that is made has its own
        assert ids.sub("ID", printed + err) == ids.sub("ID", said)
        assert code == (2 if "is left\n" in said else 0)
