"""``dpeffects ate``, ``att``, ``atc``, ``cate``: from a file to a result, and nothing for free."""

import functools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.table_reader import read
from dpeffects.errors import OptionError
from dpeffects.files import read_data
from dpeffects.formula import parse
from tests.commands.shell import BOUNDS, ESTIMATE, FORMULA, calling, refused, run
from tests.commands.shell import study as records

DECLARED = {"y": (0, 1), "age": (18, 90), "sex": ["f", "m"]}
SIMPLE = ["--method", "diff_in_means"]


def as_in_csv():
    """Records whose outcome is a number without a type, as all are in a CSV file."""
    return records().astype({"y": float})


@pytest.mark.parametrize("name", ["ate", "att", "atc"])
def test_the_command_gives_what_the_function_gives(study, capsys, name):
    more = [
        "--method",
        "private_ipw",
        "--seed",
        3,
        "--option",
        "clip=0.2",
        "--budget-split",
        "model=0.3",
    ]
    more += ["--delta", "1e-6", "--conf-level", 0.9, "--format", "json"]
    code, out, err = run(capsys, name, FORMULA, *ESTIMATE, *more)
    assert (code, err) == (0, "")
    fit = getattr(dpe, f"dp_{name}")(
        FORMULA, as_in_csv(), "private_ipw", epsilon=1, delta=1e-6, bounds=DECLARED, seed=3,
        clip=0.2, budget_split={"model": 0.3},
    )  # fmt: skip
    assert json.loads(out) == json.loads(json.dumps(fit.to_dict(0.9)))


def test_text_is_the_summary(study, capsys):
    code, out, _ = run(capsys, "ate", "y ~ t", *ESTIMATE, *SIMPLE, "--seed", 1)
    fit = dpe.dp_ate("y ~ t", as_in_csv(), "diff_in_means", epsilon=1, bounds=DECLARED, seed=1)
    assert (code, out) == (0, f"{fit.summary()}\n")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", ["diff_in_means", "auto", "private_psm"])
def test_parquet_is_not_loaded_where_the_method_reads_batches(study, capsys, monkeypatch, method):
    given = ["y ~ t | age", "data.parquet", "--epsilon", 1, *SIMPLE, "--seed", 1]
    given += ["--method", method, "--format", "json"]
    with monkeypatch.context() as patched:
        patched.setattr("dpeffects.cli.estimates.find_spec", lambda name: None)
        loaded = json.loads(run(capsys, "ate", *given)[1])
    monkeypatch.setattr(pd, "read_parquet", None)
    batches = json.loads(run(capsys, "ate", *given)[1])
    assert batches["estimate"] == loaded["estimate"]


@pytest.mark.parametrize(
    ("command", "more", "shown"),
    [
        ("cate", ["--release", "groups", "--by", "cut(age, [18, 50, 90])"], "effects"),
        ("balance", [], "smd"),
    ],
)
def test_other_commands_do_not_load_parquet_either(
    study, capsys, monkeypatch, command, more, shown
):
    given = [command, "y ~ t | age", "data.parquet", "--epsilon", 1, "--seed", 1]
    given += [*more, "--format", "json"]
    with monkeypatch.context() as patched:
        patched.setattr("dpeffects.cli.estimates.find_spec", lambda name: None)
        loaded = json.loads(run(capsys, *given)[1])
    monkeypatch.setattr(pd, "read_parquet", None)
    assert json.loads(run(capsys, *given)[1])[shown] == loaded[shown]


@pytest.mark.parametrize("name", ["data.csv.gz", "data.parquet"])
def test_other_files_hold_the_same(study, capsys, name):
    """By a method that does not plan with declared types: a CSV file declares none."""
    as_in_csv().to_parquet("data.parquet")
    given = ["--bounds", "bounds.toml", "--epsilon", "1", "--seed", "1", "--method", "private_ipw"]
    first = run(capsys, "ate", FORMULA, "data.csv", *given)
    assert first[0] == 0
    assert run(capsys, "ate", FORMULA, name, *given) == first


def test_whole_numbers_of_a_csv_file_are_no_type(tmp_path):
    """One record with a fraction must not change how the columns of the others are read."""
    for last in ("1", "0.5"):
        (tmp_path / "data.csv").write_text(f"y,t\n0,1\n1,0\n0,0\n{last},1\n")
        table = read(read_data(str(tmp_path / "data.csv")), parse("y ~ t"), {"y": (0, 1)}, ())
        assert table.batch.numeric["y"].dtype == float
        assert not table.design.bounds.whole
        assert not table.design.indicator


def test_without_a_seed_it_is_private(study, capsys):
    outs = [run(capsys, "ate", FORMULA, *ESTIMATE, "--no-variance")[1] for _ in range(2)]
    assert outs[0] != outs[1]
    assert all("1-differential privacy (pure)" in out and "n/a" in out for out in outs)


def test_the_ending_of_the_file_is_the_format(study, capsys):
    code, out, _ = run(capsys, "ate", FORMULA, *ESTIMATE, "--out", "effect.json")
    assert code == 0
    assert out.startswith("<dpeffects ATE ")
    assert out.endswith(" written to effect.json\n")
    assert json.loads((study / "effect.json").read_text())["estimand"] == "ATE"
    assert run(capsys, "ate", FORMULA, *ESTIMATE, "--out", "effect.txt")[0] == 0
    assert (study / "effect.txt").read_text().startswith("Average treatment effect (ATE), ")


# --- the budget -------------------------------------------------------------------------------

ACCOUNT = ["--ledger", "study.db", "--dataset", "nsw"]


@pytest.fixture
def ledger(study):
    return dpe.create_ledger("study.db", "nsw", epsilon=2)


def test_a_ledger_is_charged_and_may_refuse(ledger, capsys):
    assert run(capsys, "ate", FORMULA, *ESTIMATE, *ACCOUNT)[0] == 0
    assert float(ledger.spent[0]) == pytest.approx(1, abs=1e-9)
    said = refused(capsys, "ate", FORMULA, *ESTIMATE, *ACCOUNT, "--budget-split", "estimate=1",
                   "--epsilon", 1.5)  # fmt: skip
    assert "only (1, 0) is left" in said


BAD = {
    "folder": (["--out", "no/effect.txt"], "cannot be written: No such file"),
    "is a folder": (["--out", "."], "it is a folder"),
    "exists": (["--out", "data.parquet"], "--force"),
    "an input": (["--out", "data.csv", "--force"], "is an input"),
    "a name too long": (["--out", "x" * 300], "cannot be written"),
    "no name at all": (["--out", "a\0b"], "not a valid file path"),
    "record": (["--record", "no/record.html"], "cannot be written"),
    "record's ending": (["--record", "record.pdf"], ".html"),
    "twice": (["--out", "record.json", "--record", "record.html"], "the same file"),
    "bounds": (["--bounds", "no.toml"], "no.toml cannot be read"),
    "level": (["--conf-level", "1.2"], "between 0 and 1"),
    "format": (["--format", "pdf"], "invalid choice"),
    "option": (["--option", "colour=red"], "has no option 'colour'"),
    "option without value": (["--option", "colour"], "NAME=VALUE"),
    "option twice": (["--option", "blocks=2", "--option", "blocks=3"], "twice"),
    "huge option": (["--option", f"blocks={'9' * 400}"], "blocks"),
    "endless option": (["--option", f"blocks={'9' * 6000}"], "blocks"),
    "deep option": (["--option", "blocks=" + "[" * 5000], "blocks"),
    "hidden seed": (["--option", "seed=1"], "an argument of its own"),
    "hidden bounds": (["--option", "bounds=from_data"], "an argument of its own"),
    "share": (["--budget-split", "mine=1"], "no share 'mine'"),
    "share in words": (["--budget-split", "estimate=much"], "must be a positive number"),
    "method": (["--method", "psm"], "unknown method 'psm'"),
    "abbreviated": (["--eps", "1"], "unrecognized arguments"),
    "seed": (["--seed", "-1"], "seed"),
    "dataset": (["--dataset", "other"], "there is no dataset 'other'"),
    "ledger": (["--ledger", "none.db"], "there is no ledger"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", BAD)
def test_what_fails_before_the_draw_costs_nothing(ledger, capsys, what):
    more, words = BAD[what]
    said = refused(capsys, "ate", FORMULA, *ESTIMATE, *ACCOUNT, *more)
    assert words in said
    assert len(said) < 1200
    assert ledger.spent == (0, 0)
    assert ledger.open_calls() == ()


def test_a_read_only_folder_costs_nothing(ledger, capsys, study):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (study / "locked").mkdir(mode=0o555)
    out = ["--out", "locked/effect.txt"]
    assert "Permission denied" in refused(capsys, "ate", FORMULA, *ESTIMATE, *ACCOUNT, *out)
    assert ledger.spent == (0, 0)


def test_what_was_paid_for_is_printed_where_it_cannot_be_written(study, capsys):
    """The check of the path passes on a full disk; the result must not be lost."""
    code, out, err = run(capsys, "ate", FORMULA, *ESTIMATE, "--out", "/dev/full")
    assert code == 2
    assert "Average treatment effect (ATE), differentially private" in out
    why = "/dev/full cannot be written: No space left on device"
    assert err == f"dpeffects: {why}; the result was printed instead\n"


def test_checking_a_path_leaves_nothing_behind(study, capsys):
    before = sorted(os.listdir())
    refused(capsys, "ate", FORMULA, "no.csv", "--epsilon", 1, "--out", "effect.txt")
    assert sorted(os.listdir()) == before


# --- data -------------------------------------------------------------------------------------

SECRET = "Ada Lovelace 7391"


def csv_of(frame):
    return frame.to_csv(index=False).encode()


DATA = {
    "empty.csv": (b"", "it is empty"),
    "header.csv": (b"y,t,age,sex\n", "0 rows"),
    "ragged.csv": (f"y,t,age,sex\n1,0,30,f\n1,0,{SECRET},f,7,7\n".encode(), "line 3 is not 4"),
    "shifted.csv": (f"y,t\n{SECRET},1,0\n{SECRET},1,0\n".encode(), "line 2 is not 2 fields"),
    "latin.csv": (csv_of(records(9)) + "1,0,30,é\n".encode("latin-1"), "line 11 is not"),
    "utf16.csv": (csv_of(records(9)).decode().encode("utf-16"), "not UTF-8"),
    "twice.csv": (b"y,t,age,sex,y\n1,0,30,f,1\n" * 9, "two columns named 'y'"),
    "words.csv": (csv_of(records(90).assign(age=SECRET)), "age"),
    "holes.csv": (csv_of(records(90).assign(age=np.nan)), "missing values in age"),
    "levels.csv": (
        csv_of(records(90).assign(sex=SECRET)),
        "that are not among its declared levels",
    ),
    "treated.csv": (csv_of(records(90).assign(t=SECRET)), "'t' of the CSV file contains text"),
    "treated2.csv": (csv_of(records(90).assign(t=7391)), "'t' must be 0/1"),
    "one_arm.csv": (csv_of(records(90).assign(t=1)), "one of the two arms is empty"),
    "other.csv": (csv_of(records(90).drop(columns="age")), "'age' that the data does not have"),
    "not.csv.gz": (csv_of(records(90)), "cannot be read"),
    "not.parquet": (b"PAR1 " + SECRET.encode(), "cannot be read"),
    "data.xlsx": (b"", ".csv, .csv.gz or .parquet"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", DATA)
def test_data_that_cannot_be_used(study, capsys, name):
    content, words = DATA[name]
    (study / name).write_bytes(content)
    said = refused(capsys, "ate", FORMULA, name, "--epsilon", 1, "--bounds", "bounds.toml")
    assert words in said
    assert SECRET not in said
    assert "7391" not in said


def test_folders_and_missing_files(study, capsys):
    (study / "folder.csv").mkdir()
    (study / "folder.parquet").mkdir()
    for name in ("folder.csv", "folder.parquet", "none.csv", "none.parquet", "", "."):
        refused(capsys, "ate", FORMULA, name, "--epsilon", 1)


def test_columns_that_come_twice_in_parquet(study, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [pa.array([0, 1] * 20)] * 3
    pq.write_table(pa.Table.from_arrays(columns, ["y", "t", "y"]), "twice.parquet")
    said = refused(capsys, "ate", "y ~ t", "twice.parquet", "--epsilon", 1, *SIMPLE)
    assert "two columns named 'y'" in said


def test_codes_with_zeros_in_front_are_texts_where_levels_are(study, capsys):
    frame = records(400).drop(columns="sex").assign(ward=np.tile(["01", "02"], 200))
    frame.to_csv("wards.csv", index=False)
    bounds = '[bounds]\ny = {range = [0, 1]}\nward = {levels = ["01", "02"]}\n'
    (study / "wards.toml").write_text(bounds)
    given = ["--epsilon", 1, "--method", "global_matching", "--bounds", "wards.toml"]
    assert run(capsys, "ate", "y ~ t | ward", "wards.csv", *given)[0] == 0


def test_a_byte_order_mark_is_no_part_of_a_name(study, capsys):
    (study / "bom.csv").write_text((study / "data.csv").read_text(), encoding="utf-8-sig")
    (study / "bom.toml").write_text((study / "bounds.toml").read_text(), encoding="utf-8-sig")
    given = ["bom.csv", "--epsilon", 1, "--bounds", "bom.toml"]
    assert run(capsys, "ate", FORMULA, *given)[0] == 0


def test_missing_bounds_point_to_the_template(study, capsys):
    few = records(60)
    few.to_csv("few.csv", index=False)
    said = refused(capsys, "ate", "y ~ t", "few.csv", "--epsilon", 1, *SIMPLE)
    assert "no bounds are declared for y" in said
    assert "dpeffects bounds-template DATA" in said
    assert "bounds={" not in said


# --- conditional effects ----------------------------------------------------------------------


def test_a_function_is_saved_and_can_be_queried(study, capsys):
    more = ["--delta", "1e-5", "--save", "effects.json", "--seed", 1]
    code, out, _ = run(capsys, "cate", FORMULA, *ESTIMATE, *more)
    assert code == 0
    assert "Conditional average treatment effects (CATE), differentially private" in out
    fit = dpe.dp_cate(FORMULA, records(), epsilon=1, delta=1e-5, bounds=DECLARED, seed=1)
    at = {"age": [20, 80], "sex": ["f", "m"]}
    assert np.allclose(dpe.load_cate("effects.json").effect(at), fit.effect(at))


def test_a_file_with_declared_flags_gives_what_a_frame_gives(study, capsys):
    """A file cannot say that an outcome is 0 or 1; where its bounds do, results are the same."""
    text = BOUNDS.replace("{range = [0, 1]}", "{levels = [false, true]}")
    Path("bounds.toml").write_text(text)
    more = ["--release", "groups", "--by", "sex", "--seed", 1, "--format", "json"]
    code, out, _ = run(capsys, "cate", FORMULA, *ESTIMATE, *more)
    assert code == 0
    given = {"release": "groups", "by": "sex", "epsilon": 1, "seed": 1}
    fit = dpe.dp_cate(FORMULA, records(), bounds=DECLARED | {"y": [0, 1]}, **given)
    assert [e["conf_int"] for e in json.loads(out)["effects"]] == fit.conf_int().tolist()
    given["bounds"] = DECLARED
    assert not np.allclose(dpe.dp_cate(FORMULA, as_in_csv(), **given).conf_int(), fit.conf_int())


def test_groups_and_points(study, capsys):
    more = ["--release", "groups", "--by", "sex + cut(age, [18, 65, 90])", "--seed", 1]
    more += ["--format", "json", "--conf-level", 0.5]
    code, out, _ = run(capsys, "cate", FORMULA, *ESTIMATE, *more)
    assert code == 0
    found = json.loads(out)
    as_read = records().astype({"y": float, "age": float})  # a file does not say what is whole
    fit = dpe.dp_cate(
        FORMULA, as_read, release="groups", by="sex + cut(age, [18, 65, 90])", epsilon=1,
        bounds=DECLARED, seed=1,
    )  # fmt: skip
    assert [e["conf_int"] for e in found["effects"]] == fit.conf_int(0.5).tolist()
    more = ["--release", "points", "--at", "points.csv", "--delta", "1e-5"]
    code, out, _ = run(capsys, "cate", FORMULA, *ESTIMATE, *more)
    assert code == 0
    assert "age 20, sex f" in out


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--release", "points"], "needs --at"),
        (["--by", "sex"], "--by is for --release groups"),
        (["--release", "groups", "--by", "sex", "--save", "x.json"], "--release function"),
        (["--release", "points", "--at", "none.csv"], "none.csv cannot be read"),
        (["--release", "all"], "invalid choice"),
        (["--save", "no/x.json"], "cannot be written"),
        (["--save", "x.json", "--out", "x.json"], "the same file"),
        (["--level", "label"], "unrecognized arguments"),
        (["--option", "at=3"], "an argument of its own"),
        (["--method", "auto"], "not CATE"),
        (["--release", "points", "--at", "points.csv", "--option", "second_stage=random_forest"],
         "accept_asymptotic"),
    ],
)  # fmt: skip
def test_wrong_conditional_calls(study, capsys, more, words):
    dpe.create_ledger("study.db", "nsw", epsilon=2)
    assert words in refused(capsys, "cate", FORMULA, *ESTIMATE, *ACCOUNT, *more)
    assert dpe.open_ledger("study.db").spent == (0, 0)


def test_an_asymptotic_guarantee_is_asked_for(study, capsys, monkeypatch):
    """The fit itself takes long and is tested elsewhere."""
    asked = []

    @functools.wraps(dpe.dp_cate)
    def spy(*args, **given):
        asked.append(given["accept_asymptotic"])
        raise OptionError("enough")

    calling(monkeypatch, "cate", spy)
    for more in ([], ["--accept-asymptotic"]):
        assert "enough" in refused(capsys, "cate", FORMULA, *ESTIMATE, *more)
    assert asked == [False, True]


def test_only_the_columns_that_matter_are_read_as_declared(study, capsys):
    """Columns that the formula does not use may hold anything."""
    frame = records(2000).assign(name=SECRET, note=None)
    pd.DataFrame(frame).to_csv("more.csv", index=False)
    given = ["more.csv", "--epsilon", 1, "--bounds", "bounds.toml"]
    code, out, _ = run(capsys, "ate", FORMULA, *given)
    assert code == 0
    assert SECRET not in out


COUNTING = {
    "clusters": (
        ["--cluster", "age", "--clusters", 73, "--subset", "age >= 30 & sex == 'f'"],
        {"cluster": "age", "clusters": 73, "subset": "age >= 30 & sex == 'f'"},
    ),
    "unit": (["--unit", "age"], {"unit": "age"}),
    "one word": (["--missing", "complete"], {"missing": "complete"}),
    "by column": (
        ["--missing", "age=indicator", "--missing", "y=complete"],
        {"missing": {"age": "indicator", "y": "complete"}},
    ),
    "terms": (["--by", "sex"], {"by": "sex"}),
    "named": (
        ["--by", "women=sex == 'f'", "--by", "old=age >= 65"],
        {"by": {"women": "sex == 'f'", "old": "age >= 65"}},
    ),
    "listed": (
        ["--by", "sex == 'f'", "--by", "age <= 65", "--by", "age != 30"],
        {"by": ["sex == 'f'", "age <= 65", "age != 30"]},
    ),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("shell", "python"), COUNTING.values(), ids=COUNTING)
def test_who_counts_is_said_in_a_shell_as_in_python(study, capsys, shell, python):
    more = ["--method", "one_step", "--seed", 3, "--format", "json"]
    code, out, err = run(capsys, "ate", FORMULA, *ESTIMATE, *more, *shell)
    assert (code, err) == (0, "")
    given = {"epsilon": 1, "bounds": DECLARED, "seed": 3, **python}
    fit = dpe.dp_ate(FORMULA, read_data("data.csv"), "one_step", **given)
    assert json.loads(out) == json.loads(json.dumps(fit.to_dict()))


def test_subsets_have_names_all_or_none(study, capsys):
    said = refused(capsys, "ate", FORMULA, *ESTIMATE, "--by", "a=age < 30", "--by", "age >= 30")
    assert "for all, or for none" in said


def test_the_most_rows_of_a_unit_are_a_number(study, capsys):
    more = ["--method", "diff_in_means", "--unit", "age", "--max-rows", 30_000]
    assert "too few" in refused(capsys, "ate", "y ~ t", *ESTIMATE, *more)  # a row counts nearly 0


def test_the_effect_is_said_on_a_scale_and_shown_where_it_has_none(study, capsys):
    given = ["ate", "y ~ t", *ESTIMATE, *SIMPLE, "--seed", 1]
    code, out, _ = run(capsys, *given, "--scale", "ratio")
    assert code == 0
    assert "Effect on the scale ratio" in out
    fit = dpe.dp_ate("y ~ t", as_in_csv(), "diff_in_means", epsilon=1, bounds=DECLARED, seed=1)
    document = json.loads(run(capsys, *given, "--scale", "odds", "--format", "json")[1])
    assert document["scaled"]["t"]["estimate"] == fit.effect("odds").estimate
    assert document["means"][0]["mean"] == fit.means["mean"][0]
    strata = ["ate", "y ~ t | sex", *ESTIMATE, "--method", "global_matching", "--scale", "ratio"]
    code, out, _ = run(capsys, *strata)
    assert code == 0
    assert "means=True" in out.replace("\n", " ")
