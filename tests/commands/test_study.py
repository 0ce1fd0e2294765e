"""Whole studies from a shell: by arguments, by a protocol, and at sites."""

import json

import pytest

import dpeffects as dpe
from tests.commands.shell import ESTIMATE, PROTOCOL, program, refused, run

ARGUMENTS = ["study", "y + I(age > 60) ~ t", *ESTIMATE, "--design", "randomised", "--seed", "1"]


@pytest.fixture
def asked(study):
    return ["study", "data.csv", "--protocol", "protocol.toml", "--seed"]


def release(capsys, asked, site, seed, *more):
    out = f"{site.lower()}.json"
    code, said, err = run(capsys, *asked, seed, "--site", site, "--out", out, *more)
    assert (code, err) == (0, "")
    assert f"study release {site!r}" in said
    return out


def test_arguments_and_a_protocol_ask_for_the_same(study, capsys, asked):
    assert run(capsys, *ARGUMENTS, "--subgroups", "sex", "--out", "one.json")[0] == 0
    assert run(capsys, *asked, "1", "--out", "two.json")[0] == 0
    one, two = (json.loads((study / name).read_text()) for name in ("one.json", "two.json"))
    fingerprint = two["details"].pop("protocol")
    assert one == two
    assert fingerprint == dpe.read_protocol(study / "protocol.toml").fingerprint
    many = ["--subgroups", "sex", "cut(age, [18, 50, 90])"]
    code, out, _ = run(capsys, "study", "y ~ t | age", *ARGUMENTS[2:], *many)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80


def test_a_ledger_pays(study, capsys, asked):
    run(capsys, "ledger", "create", "s.db", "--dataset", "nsw", "--epsilon", "1.5")
    pay = ["--ledger", "s.db", "--dataset", "nsw"]
    asked = asked[:-1]
    assert run(capsys, *asked, *pay)[0] == 0
    assert "1.5" in refused(capsys, *asked, *pay)
    assert dpe.open_ledger("s.db", "nsw").spent == (1, 0)


def test_sites_from_end_to_end(study, capsys, asked):
    for site in ("North", "South"):
        assert run(capsys, "keygen", site)[0] == 0
    north = release(capsys, asked, "North", 1, "--sign", "North.private.pem", "--request", "r1")
    south = release(capsys, asked, "South", 2, "--sign", "South.private.pem", "--request", "r1")
    files = [north, south, "--protocol", "protocol.toml", "--public-keys", ".", "--request", "r1"]
    code, out, _ = run(capsys, "combine-studies", *files)
    assert code == 0
    fit = dpe.combine_studies([north, south])
    assert out.strip() == str(fit.summary()).strip()
    assert run(capsys, "combine-studies", *files, "--out", "all.json", "--record", "r.html")[0] == 0
    assert dpe.StudyEffects.from_json((study / "all.json").read_text()) == fit
    assert "North" in (study / "r.html").read_text()
    (study / "protocol.toml").write_text(PROTOCOL.replace("epsilon = 1", "epsilon = 2"))
    assert "used another protocol" in refused(capsys, "combine-studies", *files)
    assert "not signed" in refused(
        capsys,
        "combine-studies",
        release(capsys, asked, "North", 3, "--force"),
        "--public-keys",
        ".",
    )


def test_what_is_refused_costs_nothing(study, capsys, asked):
    run(capsys, "ledger", "create", "s.db", "--dataset", "nsw", "--epsilon", "5")
    asked = [*asked[:-1], "--ledger", "s.db", "--dataset", "nsw"]
    for more, told in {
        ("--epsilon", "1"): "epsilon is given by the protocol",
        ("--subgroups", "sex"): "subgroups is given by the protocol",
        ("--option", "adjust=false"): "option is given by the protocol",
        ("--check-bounds",): "check_bounds is given by the protocol",
        ("--sign", "x.pem"): "--sign is for the release of a site: write --site NAME too",
        ("--request", "r1"): "--request is for the release",
        (
            "--site",
            "North",
            "--format",
            "text",
        ): "--format cannot be used for the release of a site",
        ("--site", "North", "--sign", "x.pem"): "x.pem cannot be read",
        ("--out", "protocol.toml", "--force"): "protocol.toml",
    }.items():
        assert told in refused(capsys, *asked, *more)
    (study / "wrong.toml").write_text(PROTOCOL + "[options]\ndesing = 1\n")
    wrong = ["study", "data.csv", "--protocol"]
    assert "wrong.toml: study has no option 'desing'" in refused(capsys, *wrong, "wrong.toml")
    assert "none.toml cannot be read" in refused(capsys, *wrong, "none.toml")
    assert "give a formula and --epsilon" in refused(capsys, "study", "data.csv")
    assert "give a formula and --epsilon" in refused(capsys, "study", "y ~ t", "data.csv")
    assert "needs --protocol" in refused(capsys, *ARGUMENTS, "--site", "North")
    assert dpe.open_ledger("s.db", "nsw").spent == (0, 0)


def test_files_that_cannot_be_combined(study, capsys, asked):
    north = release(capsys, asked, "North", 1)
    for files, told in {
        (north, north): "from the site 'North'",
        (north, "protocol.toml"): "not valid JSON",
        (north, "none.json"): "cannot be read",
    }.items():
        assert told in refused(capsys, "combine-studies", *files)
    assert run(capsys, *ARGUMENTS, "--out", "fit.json")[0] == 0
    assert "not a study release" in refused(capsys, "combine-studies", "fit.json")


def test_a_template_is_a_protocol_once_it_is_filled_in(study, capsys):
    for data in ("data.csv", "data.parquet"):
        code, out, _ = run(capsys, "protocol-template", data)
        assert code == 0
        filled = out.replace("OUTCOME + OUTCOME ~ TREATMENT | BASELINE + BASELINE", "y ~ t | age")
        for commented in ("# delta", "# subset", "# missing", "# contrasts", "# sites"):
            filled = filled.replace(commented, commented[2:])
        filled = filled.replace("AGE", "age")
        lines = [x for x in filled.splitlines() if not x.startswith(("age =", "y ="))]
        filled = "\n".join([*lines, "y = [0, 1]", "age = [18, 90]"])
        made = dpe.Protocol.from_toml(filled)
        assert (made.subset, made.sites) == ("age >= 18", ("North", "South"))
        assert made.run(data, seed=1).n == 2000


@pytest.mark.long
def test_as_a_program(study, asked):
    done = program(*asked, "1", cwd=study)
    assert done.returncode == 0, done.stderr
    assert "Effects by sex" in done.stdout
