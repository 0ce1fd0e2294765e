"""What an operator types."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dpeffects.cli import main
from dpeffects.services.office import office_commands
from tests.federation.sites import frame
from tests.office.offices import CODEBOOK

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame().to_csv("data.csv", index=False)
    Path("codebook.toml").write_text(CODEBOOK)
    return ["--data", "data.csv", "--codebook", "codebook.toml", "--budget", "2"]


def run(capsys, *typed):
    code = main(["office", *map(str, typed)])
    out, err = capsys.readouterr()
    return code, out + err


def test_an_office_from_nothing(files, capsys):
    code, said = run(capsys, "init", "registry", *files, "--title", 'The "registry"')
    assert code == 0, said
    assert "serves once" in said
    assert "No anchor" in said
    policy = tomllib.loads(Path("registry/policy.toml").read_text())
    assert policy["columns"]["treatment"] == ["t", "region"]
    assert "above_maximum" not in policy  # the default: it refuses
    assert tomllib.loads(Path("registry/office.toml").read_text())["title"] == 'The "registry"'
    assert run(capsys, "account", "registry", "anna", "--project", "ageing")[0] == 0
    code, token = run(capsys, "token", "registry", "anna", "--project", "ageing", "--days", "3")
    assert (code, len(token.split())) == (0, 1)
    assert "steward" not in run(capsys, "account", "registry", "anna", "--role", "steward")[1]
    assert run(capsys, "account", "registry", "anna", "--new-password")[0] == 0
    assert run(capsys, "account", "registry", "anna", "--end")[0] == 0
    assert run(capsys, "upgrade", "registry")[0] == 0
    assert run(capsys, "backup", "registry", "backup.zip")[0] == 0


def test_a_codebook_that_is_not_filled_in_says_what_to_write(files, capsys):
    Path("codebook.toml").write_text("[bounds]\nt = {}\ny = {range = [0, 1.5]}\n")
    code, said = run(capsys, "init", "registry", *files)
    assert code == 2
    assert "codebook.toml declares no treatment of data.csv: fill in a range or levels" in said
    assert not Path("registry").exists()


def test_what_a_codebook_names_and_the_data_lack_is_said(files, capsys):
    """A column that was misspelt in the codebook was left out without a word."""
    assert "Left out" not in run(capsys, "init", "as_it_is", *files)[1]
    with Path("codebook.toml").open("a") as file:
        file.write("\nsmoker = [0, 1]\nalso = {}\n")
    code, said = run(capsys, "init", "registry", *files)
    assert code == 0
    assert "or without range and levels: smoker, also" in said


def test_files_are_for_their_owner(files, capsys):
    run(capsys, "init", "registry", *files)
    assert Path("registry").stat().st_mode & 0o077 == 0
    for name in ("office.toml", "policy.toml", "codebook.toml"):
        assert (Path("registry") / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["serve", "nowhere"], "is no office"),
        (["init", "registry", "--data", "data.csv"], "required"),
        (["account", "registry", "anna", "--role", "king"], "invalid choice"),
        (["token", "registry", "nobody", "--project", "p"], "no account of this name"),
        (["restore", "nothing.zip", "new"], "nothing.zip"),
    ],
)
def test_what_cannot_be_done_is_one_line(files, capsys, typed, said):
    run(capsys, "init", "registry", *files)
    code, told = run(capsys, *typed)
    assert code == 2
    assert said in told
    assert len(told.strip().splitlines()) == 1


def test_a_folder_that_holds_something_is_kept(files, capsys):
    run(capsys, "init", "registry", *files)
    before = Path("registry/office.toml").read_bytes()
    code, said = run(capsys, "init", "registry", *files)
    assert (code, "holds something" in said) == (2, True)
    assert Path("registry/office.toml").read_bytes() == before


def test_data_that_does_not_fit_is_refused_before_anything_is_made(files, capsys):
    data = frame()
    data.loc[3, "region"] = "W"
    data.to_csv("data.csv", index=False)
    code, said = run(capsys, "init", "registry", *files)
    assert code == 2
    assert "region (1)" in said
    assert '"W"' not in said
    assert not Path("registry").exists()


def test_nothing_is_sent_in_the_open(files, capsys):
    run(capsys, "init", "registry", *files)
    for listen in ("0.0.0.0:8800", "10.0.0.1:80", "[::]:8800"):
        code, said = run(capsys, "serve", "registry", "--listen", listen)
        assert (code, "in the open" in said) == (2, True)
    code, said = run(capsys, "serve", "registry", "--listen", "localhost")
    assert (code, "address and a port" in said) == (2, True)
    code, said = run(capsys, "serve", "registry", "--certificate", "x.pem")
    assert (code, "go together" in said) == (2, True)


def test_without_the_extra_it_says_what_to_install(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "dpeffects.services.office.office_folder", None)
    code, said = run(capsys, "init", "registry", *files)
    assert (code, 'pip install "dpeffects[office]"' in said) == (2, True)


def test_the_command_line_loads_no_library_of_the_extra():
    code = "import dpeffects.cli.program, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"sqlalchemy", "starlette", "argon2", "jinja2", "alembic"}


def test_the_unit_and_the_container_start_what_there_is():
    deploy = Path(office_commands.__file__).parent / "deploy"
    unit = (deploy / "dpeffects-office.service").read_text()
    for word in ("NoNewPrivileges=yes", "ProtectSystem=strict", "KillMode=mixed", "UMask=0077"):
        assert word in unit
    container = (deploy / "Containerfile").read_text()
    assert "USER 10001" in container
    for copied in ("pyproject.toml", "README.md", "LICENSE", "data", "vignettes", "dpeffects"):
        assert (ROOT / copied).exists()
        assert copied in container
