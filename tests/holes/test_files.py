"""Outputs never overwrite inputs, and files that are read are checked."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

import dpeffects as dpe
from dpeffects import documents, file_output
from dpeffects.documents import checksum
from dpeffects.errors import DataError, OptionError
from dpeffects.evidence.simulations.simulation import append, on_file
from tests.commands.shell import ENVIRONMENT, ESTIMATE, FORMULA, refused, run, write_files
from tests.once import once
from tests.releases import BOUNDS, frame

ACCOUNT = ["--ledger", "study.db", "--dataset", "nsw"]


@once
def sent(site, seed):
    call = {"site": site, "method": "diff_in_means", "epsilon": 1.0, "bounds": BOUNDS}
    return dpe.site_release("y ~ t", frame(seed=seed), **call)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with data, bounds, points, a key, two releases and a ledger; commands run in it."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    dpe.create_ledger("study.db", "nsw", epsilon=2)
    for seed, site in enumerate(["North", "South"]):
        sent(site, seed).save(f"{site}.json")
    return tmp_path


def contents(folder):
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def untouched(folder, capsys, *arguments):
    """The command is refused in one line, and no file is changed, made or lost by it."""
    before = contents(folder)
    said = refused(capsys, *arguments)
    assert contents(folder) == before
    assert dpe.open_ledger("study.db", "nsw").spent == (0, 0)
    return said


# --- commands ---------------------------------------------------------------------------------

ATE = ["ate", FORMULA, *ESTIMATE, *ACCOUNT]
CATE = ["cate", "y ~ t | age + sex", *ESTIMATE, *ACCOUNT, "--delta", "1e-6"]
POINTS = [*CATE, "--release", "points", "--at", "points.csv"]
RELEASE = ["release", FORMULA, *ESTIMATE, *ACCOUNT, "--site", "North"]
PLAN = ["plan", "y ~ t | age", "--n", "100", "--epsilon", "1", "--bounds", "bounds.toml",
        "--method", "diff_in_means"]  # fmt: skip
OVER = {
    "a ledger by an effect": [*ATE, "--out", "study.db"],
    "data by an effect": [*ATE, "--out", "data.csv"],
    "bounds by an effect": [*ATE, "--out", "bounds.toml"],
    "data by another name": [*ATE, "--out", "./data.csv"],
    "data by a longer way": [*ATE, "--out", "folder/../data.csv"],
    "data by an absolute name": [*ATE, "--out", "{folder}/data.csv"],
    "data by a link": [*ATE, "--out", "link.csv"],
    "data by a hard link": [*ATE, "--out", "hard.csv"],
    "data by a link to its folder": [*ATE, "--out", "same/data.csv"],
    "a ledger by a link": [*ATE, "--out", "link.db"],
    "a ledger's journal": [*ATE, "--out", "study.db-journal"],
    "a ledger's log": [*ATE, "--out", "study.db-wal"],
    "another ledger": [*ATE, "--out", "other.db"],
    "another ledger's journal": [*ATE, "--out", "other.db-journal"],
    "data by a record": [*ATE, "--record", "link.html"],
    "data by a record's twin": [*ATE, "--record", "twin.html"],
    "bounds by an effect on the treated": ["att", *ATE[1:], "--out", "bounds.toml"],
    "data by conditional effects": [*CATE, "--out", "data.csv"],
    "data by a saved function": [*CATE, "--save", "data.csv"],
    "a ledger by a saved function": [*CATE, "--save", "study.db"],
    "points by effects at them": [*POINTS, "--out", "points.csv"],
    "a ledger by balance": ["balance", *ATE[1:], "--out", "study.db"],
    "data by a picture of balance": ["balance", *ATE[1:], "--plot", "link.png"],
    "data by a site's release": [*RELEASE, "--out", "data.csv"],
    "a key by a site's release": [*RELEASE, "--sign", "key.pem", "--out", "key.pem"],
    "bounds by a plan": [*PLAN, "--out", "bounds.toml"],
    "bounds by a picture of a plan": [*PLAN, "--plot", "bounds.png"],
    "data by a template": ["bounds-template", "data.csv", "--out", "data.csv"],
    "data by a template, by a link": ["bounds-template", "data.csv", "--out", "link.csv"],
    "a release by a combination": ["combine", "North.json", "South.json", "--out", "North.json"],
    "a release by a record": ["combine", "North.json", "South.json", "--record", "North.html"],
    "a key by a combination": ["combine", "North.json", "South.json", "--public-keys", "keys",
                               "--out", "keys/North.pem"],
    "a ledger by a leaderboard": ["bench", "--out", "study.db"],
    "runs by a leaderboard": ["bench", "--path", "runs.csv", "--out", "runs.csv"],
    "a ledger by an audit": ["audit", "diff_in_means", "--epsilon", "1", "--out", "study.db"],
    "a ledger by its export": ["ledger", "export", "study.db", "ledger.csv"],
}  # fmt: skip


def links(folder):
    """Other names for the inputs."""
    (folder / "folder").mkdir()
    (folder / "keys").mkdir()
    for name in ("key.pem", "keys/North.pem", "runs.csv"):
        (folder / name).write_text("kept")
    (folder / "same").symlink_to(folder)
    for name, source in {
        "link.csv": "data.csv",
        "link.db": "study.db",
        "link.html": "data.csv",
        "twin.json": "data.csv",
        "link.png": "data.csv",
        "bounds.png": "bounds.toml",
        "ledger.csv": "study.db",
    }.items():
        (folder / name).symlink_to(source)
    os.link(folder / "data.csv", folder / "hard.csv")
    sqlite3.connect(folder / "other.db").execute("create table kept (x)")


@pytest.mark.sampled(7)
@pytest.mark.parametrize("what", OVER)
def test_no_command_overwrites_its_inputs_or_a_ledger(study, capsys, what):
    """With --force an effect was paid for and written over its ledger, its data or its bounds."""
    pytest.importorskip("matplotlib")
    links(study)
    given = [text.format(folder=study) for text in OVER[what]]
    said = untouched(study, capsys, *given, "--force")
    assert "never overwritten" in said or "not the JSON of a record" in said


def test_a_ledger_with_two_names_is_not_overwritten_by_either(study, capsys):
    """A ledger by a hard link was overwritten; one with two names is not even used."""
    os.link("study.db", "hard.db")
    before = contents(study)
    for name in ("study.db", "hard.db"):
        refused(capsys, *ATE, "--out", name, "--force")
    assert contents(study) == before


def test_a_ledger_is_exported_and_its_files_are_not_lost(study, capsys):
    """An export replaced any file without being asked, such as data.csv."""
    assert "is an input" not in refused(capsys, "ledger", "export", "study.db", "data.csv")
    assert run(capsys, "ledger", "export", "study.db", "charges.csv")[0] == 0
    assert "--force" in refused(capsys, "ledger", "export", "study.db", "charges.csv")
    assert run(capsys, "ledger", "export", "study.db", "charges.csv", "--force")[0] == 0


KEPT = {
    "a link to nothing": (["--out", "dangling.txt"], "a broken link"),
    "a link to itself": (["--out", "loop.txt"], "cannot be written"),
    "a folder that is not there": (["--out", "none/effect.txt"], "cannot be written"),
    "a file for a folder": (["--out", "data.csv/effect.txt"], "cannot be written"),
    "a folder": (["--out", "folder"], "it is a folder"),
    "a pipe": (["--out", "pipe"], "it is not a regular file"),
    "the same file twice": (["--out", "a.html", "--record", "same/a.html"], "the same file"),
    "an empty name": (["--out", ""], "not a valid file path"),
}


@pytest.mark.parametrize("what", KEPT)
def test_what_cannot_be_written_costs_nothing(study, capsys, what):
    """A link to nothing passed the check, and the check removed the link."""
    links(study)
    (study / "dangling.txt").symlink_to("none/target.txt")
    (study / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(study / "pipe")
    more, words = KEPT[what]
    assert words in untouched(study, capsys, *ATE, *more, "--force")
    assert os.path.islink("dangling.txt")


def test_a_read_only_folder_costs_nothing(study):
    """As somebody who may not write there; root may write anywhere."""
    (study / "locked").mkdir()
    (study / "locked" / "held.txt").write_text("kept")
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (study / "locked").chmod(0o555)
    for name in ("new.txt", "held.txt"):
        with pytest.raises(OptionError, match="cannot be written"):
            file_output.check(study / "locked" / name, overwrite=True)


def test_an_output_is_replaced_only_when_asked(study, capsys):
    """What is neither an input nor a ledger can be written again with --force, by a link too."""
    (study / "effect.txt").write_text("old")
    (study / "latest.txt").symlink_to("effect.txt")
    assert "--force" in untouched(study, capsys, *ATE, "--out", "latest.txt")
    code, out, _ = run(capsys, *ATE, "--out", "latest.txt", "--force")
    assert (code, "written to latest.txt" in out) == (0, True)
    assert os.path.islink("latest.txt")
    assert (
        (study / "effect.txt")
        .read_text()
        .startswith("Average treatment effect (ATE), differentially private")
    )
    assert not list(study.glob(".*"))


# --- the function that writes -----------------------------------------------------------------


def test_a_file_that_comes_later_is_not_replaced(tmp_path, monkeypatch):
    """Between the check and the draw somebody else may write a file of that name."""
    target = tmp_path / "a.txt"
    held = file_output._status
    seen = []

    def late(path):
        """The file comes when everything has been looked at."""
        seen.append(path)
        found = held(path)
        if len(seen) == 3:
            target.write_text("theirs")
        return found

    monkeypatch.setattr(file_output, "_status", late)
    with pytest.raises(OptionError, match="exists"):
        file_output.write(target, "ours")
    assert target.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """A full disk left half a file in the place of the old one."""
    target = tmp_path / "a.txt"
    target.write_text("old")

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_output.os, "fsync", full)
    with pytest.raises(OptionError, match="No space left"):
        file_output.write(target, "new", overwrite=True)
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_without_hard_links_nothing_is_replaced_either(tmp_path, monkeypatch):
    """Some file systems have no hard links; an exclusive new file does the same there."""

    def none(*paths):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(file_output.os, "link", none)
    file_output.write(tmp_path / "a.txt", "first")
    with pytest.raises(OptionError, match="exists"):
        file_output.write(tmp_path / "a.txt", "second")
    assert (tmp_path / "a.txt").read_text() == "first"


def test_modes_are_those_of_any_new_file_or_stay_as_they_were(tmp_path):
    """A temporary file is private to its owner; a result is not meant to be."""
    (tmp_path / "usual").write_text("")
    file_output.write(tmp_path / "new", "x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    file_output.write(tmp_path / "new", "y", overwrite=True)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_inputs_by_a_pattern_and_by_another_case(tmp_path, monkeypatch):
    """Where names differ by case only they may be one file: files are compared, not names."""
    (tmp_path / "part-1.csv").write_text("kept")
    os.link(tmp_path / "part-1.csv", tmp_path / "PART-1.CSV")
    for name in ("part-1.csv", "PART-1.CSV"):
        for source in (tmp_path / "part-1.csv", str(tmp_path / "part-*.csv")):
            with pytest.raises(OptionError, match="is an input"):
                file_output.check(tmp_path / name, overwrite=True, inputs=[source])


@pytest.mark.parametrize("given", [None, 3, "", "a\0b", b"bytes\0"])
def test_what_is_no_path(given):
    """A value that no file can have for a name is one sentence."""
    with pytest.raises(OptionError, match="not a valid file path"):
        file_output.check(given)


# --- Python -----------------------------------------------------------------------------------


def test_results_do_not_replace_a_ledger(study):
    """fit.save, a report, an export and a site's release replaced whatever file was named."""
    shutil.copy("study.db", "study.csv")
    shutil.copy("study.db", "study.html")
    shutil.copy("study.db", "record.json")
    call = {"epsilon": 4.0, "bounds": BOUNDS}
    fit = dpe.dp_ate("y ~ t", frame(), "diff_in_means", **call)
    function = dpe.dp_cate("y ~ t | x1", frame(), delta=1e-5, **call)
    before = contents(study)
    for write in (
        lambda: fit.report("study.html", overwrite=True),
        lambda: fit.report("record.html", overwrite=True),
        lambda: function.save("study.db", overwrite=True),
        lambda: function.save("data.csv"),
        lambda: dpe.SiteRelease.from_result(fit, "North").save("study.db"),
        lambda: dpe.open_ledger("study.db", "nsw").export("study.csv", overwrite=True),
        lambda: dpe.open_ledger("study.db", "nsw").export("data.csv"),
    ):
        with pytest.raises((OptionError, dpe.DPEffectsError)):
            write()
    assert contents(study) == before


# --- files that are read ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def function():
    return dpe.dp_cate("y ~ t | x1", frame(), epsilon=4.0, delta=1e-5, bounds=BOUNDS)


def test_a_changed_function_is_refused(function, tmp_path):
    """A file whose average effect was edited was read as if it had been released like that."""
    function.save(tmp_path / "f.json")
    document = json.loads((tmp_path / "f.json").read_text())
    assert dpe.load_cate(tmp_path / "f.json").to_dict() == document
    document["function"]["average"] += 1.0
    (tmp_path / "f.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="checksum"):
        dpe.load_cate(tmp_path / "f.json")
    del document["checksum"]
    (tmp_path / "f.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="checksum"):
        dpe.load_cate(tmp_path / "f.json")


def test_what_is_no_file_of_a_function(function, tmp_path):
    """A pipe made load_cate wait for ever, and /dev/zero filled the memory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "twice.json").write_text('{"kind": 1, "kind": 2}')
    huge = function.to_dict() | {"n": 1e300}
    text = json.dumps(huge).replace("1e+300", "1e999")
    (tmp_path / "huge.json").write_text(text)
    with pytest.raises(DataError, match="larger than 1000 bytes"):
        documents.read(tmp_path / "huge.json", most=1000)
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path, "a\0b", tmp_path / "twice.json",
                 tmp_path / "huge.json", tmp_path / "none.json"):  # fmt: skip
        with pytest.raises(DataError) as caught:
            dpe.load_cate(path)
        assert "\n" not in str(caught.value)


def test_a_checksum_does_not_depend_on_how_a_file_is_laid_out(function, tmp_path):
    """Another program may write the same values with other spaces and another order."""
    document = dict(sorted(function.to_dict().items(), reverse=True))
    (tmp_path / "f.json").write_text(json.dumps(document, indent=None, ensure_ascii=True))
    assert checksum(document) == document["checksum"]
    assert dpe.load_cate(tmp_path / "f.json").to_dict() == function.to_dict()


@pytest.mark.parametrize("content", [b"y,t,age\n1,0,30\n1,0,31", b"", b"\xff\xfe\x00", b"a,b"])
def test_a_file_that_is_no_study_stays_as_it_is(tmp_path, content):
    """Data without a line break at its end lost its last record before it was looked at."""
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    for use in (on_file, lambda path: append(path, [])):
        with pytest.raises(OptionError, match="not a file of a study"):
            use(path)
    assert path.read_bytes() == content


def test_a_study_is_not_kept_where_nothing_can_be_written(tmp_path):
    """Hours of runs were done before the first of them could not be kept."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling.csv").symlink_to("none/there.csv")
    for name in ("none/runs.csv", "pipe", "dangling.csv", "", "a\0b"):
        with pytest.raises(OptionError):
            on_file(tmp_path / name if name else tmp_path)


@pytest.mark.long
def test_a_result_survives_a_reader_that_leaves(study):
    """What was paid for is written whole or printed whole; a closed pipe is no traceback."""
    command = [sys.executable, "-m", "dpeffects", *ATE]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert said == b""
    assert process.returncode == 0


# --- a stranger at the command line -----------------------------------------------------------

BENCH = ["bench", "--repeats", "1", "--methods", "diff_in_means", "--data", "lalonde"]
STRANGE = {
    "data from a pipe": ([*ATE[:2], "pipe.csv", *ATE[3:]], "it is not a regular file"),
    "bounds from a pipe": ([*ATE, "--bounds", "pipe.csv"], "it is not a regular file"),
    "endless bounds": ([*ATE, "--bounds", "/dev/zero"], "it is not a regular file"),
    "a ledger in a pipe": ([*ATE, "--ledger", "pipe.csv"], "it is not a regular file"),
    "points from a pipe": ([*POINTS, "--at", "pipe.csv"], "it is not a regular file"),
    "a key from a pipe": ([*RELEASE, "--sign", "pipe.csv"], "it is not a regular file"),
    "a release from a pipe": (["combine", "pipe.csv"], "it is not a regular file"),
    "an endless release": (["combine", "/dev/zero"], "it is not a regular file"),
    "a template of a pipe": (["bounds-template", "pipe.csv"], "it is not a regular file"),
    "runs in a pipe": ([*BENCH, "--path", "pipe.csv"], "it is not a regular file"),
    "runs in data": ([*BENCH, "--path", "data.csv"], "not a file of a study"),
    "runs in a ledger": ([*BENCH, "--path", "study.db"], "not a file of a study"),
    "runs in a folder": ([*BENCH, "--path", "."], "not a file of a study"),
    "runs nowhere": ([*BENCH, "--path", "none/runs.csv"], "cannot be written"),
    "a leaderboard's seed": ([*BENCH, "--seed", "-1"], "seed must be"),
    "a picture of nothing": ([*BENCH, "--plot", "p.png", "--plot-epsilon", "7"], "--plot-epsilon"),
    "a demonstration's seed": (["demo", "--seed", "-1"], "seed must be"),
    "no privacy": ([*ATE, "--method", "k_anonymous"], "--option accept_none=true"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", STRANGE)
def test_what_a_stranger_types_is_refused_in_one_line(study, capsys, what):
    """Pipes were waited for, devices read without end, and some numbers raised raw errors."""
    pytest.importorskip("matplotlib")
    os.mkfifo(study / "pipe.csv")
    given, words = STRANGE[what]
    assert words in untouched(study, capsys, *given)
