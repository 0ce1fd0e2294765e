"""Commands that release a table by arm, and the one that adds those of sites."""

import pytest

import dpeffects as dpe
from tests.commands.shell import ESTIMATE, refused, run

TRIAL = [*ESTIMATE, "--design", "randomised", "--seed"]
LIFE = ["survival", "Surv(age, y) ~ t", "--horizon", "90", "--bins", "6", *TRIAL]
BOUNDS = {"y": (0, 1), "age": (18, 90), "sex": ["f", "m"]}


DESIGN = {"design": "randomised"}
SAME = {
    "survival": ("Surv(age, y) ~ t", {"horizon": 90, "bins": 6, **DESIGN}),
    "qte": ("age ~ t", {"quantiles": [0.25, 0.5], **DESIGN}),
    "ordinal": ("sex ~ t", DESIGN),
    "rate": ("y ~ t", {"offset": "age", "per": 1000, **DESIGN}),
    "moments": ("y ~ t | age", {"subgroups": ["sex"], **DESIGN}),
    "late": ("age ~ y", {"instrument": "t", **DESIGN}),
    "balance": ("y ~ t | age + sex", {"bins": 10, "adjusted": False, "estimand": "ATT"}),
    "randomisation-test": ("I(y > 0) ~ t", {"treated_share": 0.5, "alternative": "greater"}),
}


def typed(name, value):
    """An argument as it is written in a shell."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{'' if value else 'no-'}{flag}"]
    return [f"--{flag}", *(value if isinstance(value, list) else [value])]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", SAME)
def test_a_command_gives_what_the_function_gives(study, capsys, command):
    formula, given = SAME[command]
    more = [word for name, value in given.items() for word in typed(name, value)]
    asked = [*ESTIMATE, "--seed", 1, "--out", "fit.json"]
    assert run(capsys, command, formula, *asked, *more)[0] == 0
    call = getattr(dpe, f"dp_{command.replace('-', '_')}")
    fit = call(formula, "data.csv", epsilon=1, bounds=BOUNDS, seed=1, **given)
    assert type(fit).from_json((study / "fit.json").read_text()).to_dict() == fit.to_dict()


def test_sites_add_their_files(study, capsys):
    for seed, name in ((1, "north"), (2, "south")):
        assert run(capsys, *LIFE, seed, "--out", f"{name}.json")[0] == 0
    files = {"North": "north.json", "south": "south.json"}
    both = dpe.combine_tables(files)
    read = {n: dpe.SurvivalEffects.from_json((study / f).read_text()) for n, f in files.items()}
    assert both == dpe.combine_tables(read)
    code, out, _ = run(capsys, "combine-tables", "North=north.json", "south.json")
    assert code == 0
    assert out.strip() == str(both.summary()).strip()
    assert "site North" in out


def test_what_cannot_be_added_is_refused(study, capsys):
    assert run(capsys, *LIFE, "1", "--out", "north.json")[0] == 0
    assert run(capsys, "ordinal", "sex ~ t", *TRIAL, "1", "--out", "levels.json")[0] == 0
    rate = ["rate", "y ~ t", "--offset", "age", *TRIAL, "1", "--out", "rate.json"]
    assert run(capsys, *rate)[0] == 0
    assert run(capsys, "ate", "y ~ t", *ESTIMATE, "--seed", "1", "--out", "ate.json")[0] == 0
    for other, told in {
        "north.json": "given twice",
        "levels.json": "differ in the kind of result",
        "ate.json": "is not the JSON of a result with a table",
        "bounds.toml": "is not the JSON of a result with a table",
        "none.json": "cannot be read",
    }.items():
        assert told in refused(capsys, "combine-tables", "north.json", other)
    assert "no table of counts" in refused(capsys, "combine-tables", "rate.json")
    out = ["--out", "north.json", "--force"]
    assert "north.json" in refused(capsys, "combine-tables", "A=north.json", *out)


def test_saved_moments_are_regressed_on(study, capsys):
    moments = ["moments", "y ~ t | age", "--subgroups=sex", *TRIAL]
    for seed, name in ((1, "north"), (2, "south")):
        assert run(capsys, *moments, seed, "--out", f"{name}.json")[0] == 0
    both = dpe.combine_moments(["north.json", "south.json"])
    code, out, _ = run(capsys, "regress", "y ~ t*sex + age", "north.json", "south.json")
    assert code == 0
    assert out.strip() == str(both.regression("y ~ t*sex + age").summary()).strip()
    assert run(capsys, "regress", "y ~ t", "north.json", "--out", "table.tex")[0] == 0
    assert "toprule" in (study / "table.tex").read_text()
    assert "no column `x`" in refused(capsys, "regress", "y ~ x", "north.json")
    assert "is not the JSON of moments" in refused(capsys, "regress", "y ~ t", "data.csv")
    twice = refused(capsys, "regress", "y ~ t", "north.json", "north.json")
    assert "the same release" in twice


def test_changes_of_long_data(study, capsys):
    rows = [f"{i},{year},{(7 * i + year) % 10},{i % 2}" for i in range(80) for year in (1, 2, 3)]
    (study / "long.csv").write_text("\n".join(["id,year,y,t", *rows]))
    (study / "long.toml").write_text("y = {range = [0, 10]}\n")
    common = ["y ~ t", "long.csv", "--epsilon", "1", "--bounds", "long.toml", "--seed", "1"]
    long = ["--time", "year", "--unit", "id", "--out", "fit.json"]
    given = {"time": "year", "unit": "id", "bounds": {"y": (0, 10)}, "epsilon": 1, "seed": 1}
    for periods, kind in (([2, 3], dpe.DidEffect), ([1, 2, 3], dpe.EventStudy)):
        more = ["--periods", *map(str, periods), "--start", "3", "--change", "-5", "5"]
        assert run(capsys, "did", *common, *long, *more, "--force")[0] == 0
        asked = {"periods": periods, "start": 3, "change": (-5, 5)}
        fit = dpe.dp_did("y ~ t", "long.csv", **given, **asked)
        assert kind.from_json((study / "fit.json").read_text()).to_dict() == fit.to_dict()
    assert "periods must be" in refused(capsys, "did", *common, *long[:4])
