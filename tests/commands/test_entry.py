"""Exit codes, one line on stderr, never a traceback."""

import functools
import signal
import subprocess
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects import cli
from dpeffects.cli import estimates
from dpeffects.cli.program import COMMANDS
from tests.commands.shell import (
    ENVIRONMENT,
    ESTIMATE,
    FORMULA,
    ROOT,
    calling,
    program,
    refused,
    run,
    write_files,
)


def test_the_command_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"dpeffects": "dpeffects.cli:main"}


def test_help(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in COMMANDS:
        assert f"    {command.name}" in out
        code, said, _ = run(capsys, command.name, "--help")
        assert code == 0
        examples = said.partition("\nexamples\n")[2]
        assert f"  dpeffects {command.name}" in examples
        assert max(map(len, examples.splitlines())) <= 80
    for name in ("create", "list", "show", "verify", "export", "settle"):
        assert run(capsys, "ledger", name, "--help")[0] == 0


def test_version(capsys):
    assert run(capsys, "--version")[1] == f"dpeffects {dpe.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: command"),
        (["fly"], "invalid choice: 'fly'"),
        (["ate"], "required: formula, data, --epsilon"),
        (["ate", "on\ntwo lines", "data.csv", "--epsilon", "x\ny"], "invalid float value"),
        (["ledger"], "required"),
        (["ledger", "fly"], "invalid choice"),
    ],
)
def test_wrong_calls(capsys, arguments, words):
    assert words in refused(capsys, *arguments)


def fails(error):
    @functools.wraps(dpe.combine)
    def call(*args, **kwargs):
        raise error

    return call


def test_what_nobody_expected_does_not_quote_its_message(capsys, monkeypatch):
    """Messages of other libraries may hold values of the data."""
    calling(monkeypatch, "combine", fails(RuntimeError("could not read\n'Ada'")))
    said = refused(capsys, "combine", "x.json")
    assert "unexpected RuntimeError at commands.py:" in said
    assert "Ada" not in said


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "there is not enough memory"),
        (OSError(28, "No space left on device"), 2, "standard output: No space left on device"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_exit_codes(capsys, monkeypatch, error, code, said):
    calling(monkeypatch, "combine", fails(error))
    found, out, err = run(capsys, "combine", "x.json")
    assert (found, out, err) == (code, "", f"dpeffects: {said}\n" if said else "")


def test_warnings_are_one_line(study, capsys, monkeypatch):
    real = estimates.read_data

    def read(*args):
        warnings.warn("on two\nlines", stacklevel=1)
        warnings.warn("of no interest to users", FutureWarning, stacklevel=1)
        return real(*args)

    monkeypatch.setattr(estimates, "read_data", read)
    code, out, err = run(capsys, "ate", FORMULA, *ESTIMATE)
    assert (code, err) == (0, "dpeffects: warning: on two lines\n")
    assert "Average treatment effect (ATE), differentially private" in out


# --- as a program -----------------------------------------------------------------------------


def test_a_program(study):
    done = program("ate", FORMULA, *ESTIMATE, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    done = program("ate", FORMULA, "none.csv", "--epsilon", 1)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dpeffects: none.csv cannot be read: No such file or directory\n"


def shell(command):
    command = command.replace("dpeffects", f"{sys.executable} -m dpeffects")
    bash = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(bash, capture_output=True, text=True, env=ENVIRONMENT)


@pytest.mark.long
def test_pipes_and_full_disks(study):
    done = shell("dpeffects methods private_psm | true")
    assert (done.returncode, done.stderr) == (0, "")
    done = shell("dpeffects methods > /dev/full")
    assert done.returncode == 2
    assert done.stderr == "dpeffects: standard output: No space left on device\n"
    done = shell("dpeffects methods >&-")
    assert (done.returncode, done.stderr) == (2, "dpeffects: standard output is closed\n")


@pytest.mark.long
def test_letters_that_a_terminal_does_not_have(study):
    """A result that is paid for must not be lost to an encoding."""
    text = (study / "data.csv").read_text().replace("age", "âge", 1)
    (study / "data.csv").write_text(text, encoding="utf-8")
    given = ["data.csv", "--epsilon", 1, "--method", "auto"]
    done = program("ate", "y ~ t | `âge`", *given, env=ENVIRONMENT | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "y ~ t | `?ge`" in done.stdout


INTERRUPTED = """
import signal, sys, time
from dpeffects import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start this in the background
from dpeffects.cli import free_commands
free_commands._method_table = lambda: (print("at work", flush=True), time.sleep(600))
sys.exit(cli.main(["methods"]))
"""


@pytest.mark.long
def test_an_interrupt():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], env=ENVIRONMENT, **pipes) as process:
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=900)
    assert (process.returncode, out, err) == (130, "", "dpeffects: interrupted\n")


# --- arguments that nobody would write ----------------------------------------------------------

LONG = ("demo", "audit", "bench", "keygen", "synthetic-setup")
NAMES = [command.name for command in COMMANDS if command.name not in LONG]
WORDS = [
    *(
        "--epsilon",
        "--delta",
        "--method",
        "--bounds",
        "--level",
        "--option",
        "--budget-split",
        "--seed",
    ),
    *("--no-variance", "--ledger", "--dataset", "--format", "--conf-level", "--release", "--at"),
    *(
        "--by",
        "--n",
        "--rule",
        "--public-keys",
        "--left-out",
        "--site",
        "--sign",
        "--half-width",
        "--",
    ),
    *(
        "1",
        "0",
        "-1",
        "1e-5",
        "1e400",
        "nan",
        "",
        " ",
        "a=b",
        "=",
        "blocks=1e300",
        "n=1",
        "clip=[]",
    ),
    *("y ~ t", FORMULA, "y ~ ", "sex", "create", "list", "show", "verify", "settle", "--all"),
    *("data.csv", "data.parquet", "bounds.toml", "points.csv", ".", "none.csv", "/dev/null"),
    *("private_psm", "diff_in_means", "json", "text", "sample", "label", "groups", "points", "\0"),
    *("9" * 400, "[" * 3000, "{}", "%s", "%(prog)s", "é", "\n", "-x", "@data.csv", "--option=x"),
]
arguments = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=9)


@pytest.mark.long
@settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.one_of(st.sampled_from(NAMES), st.sampled_from(WORDS)), arguments, st.booleans())
def test_arguments_that_nobody_would_write(wild, name, more, complete):
    usual = [FORMULA, *ESTIMATE] if complete else []
    code, out, err = wild([name, *usual, *more])
    assert "Traceback" not in out + err
    assert "unexpected" not in err
    assert code in (0, 2)
    if code == 2:
        assert out == ""
        assert err.startswith("dpeffects")
        assert err.splitlines()[-1].startswith("dpeffects")
        assert len(err) < 3000


@pytest.fixture
def wild(capsys, monkeypatch):
    """Run arguments in a folder with the usual files; anything new is removed again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        monkeypatch.chdir(folder)
        usual = set(folder.iterdir())

        def act(given):
            capsys.readouterr()
            code = cli.main(given)
            for path in set(folder.iterdir()) - usual:
                path.unlink()
            said = capsys.readouterr()
            return code, said.out, said.err

        yield act
        monkeypatch.undo()
