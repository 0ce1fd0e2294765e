"""A backup that is put back gives no budget back, and nobody in whose token was revoked."""

import shutil
import zipfile

import pytest
import sqlalchemy as sql

from dpeffects.errors import LedgerError, OptionError
from dpeffects.services.gate.answers import result_of
from dpeffects.services.gate.question import Question
from dpeffects.services.office.accounts import Accounts, DeskError
from dpeffects.services.office.backups import restore_backup, write_backup
from dpeffects.services.office.database import REQUESTS, Database
from dpeffects.services.office.office_folder import OfficeFolder
from tests.office.offices import Running


def answer_one(running, epsilon):
    request = running.ask(epsilon=epsilon)["id"]
    task = running.desk.claim()
    reply = result_of(Question.from_json(task.question), running.folder.policy(), again=True)
    assert reply["status"] == "ok"
    running.desk.finish(request, reply)
    return request


@pytest.fixture
def office(tmp_path):
    running = Running(tmp_path, approval="never", anchor=str(tmp_path / "anchor.db"))
    answer_one(running, 0.25)
    yield running
    running.database.close()


def left(folder):
    policy = OfficeFolder(folder).policy()
    return policy.store().left[0]


@pytest.mark.long
def test_a_backup_of_now_is_put_back_and_revokes_tokens(office, tmp_path):
    token = office.accounts.token("test", "anna", "ageing")
    said = write_backup(office.folder, tmp_path / "backup.zip")
    assert "ledger.db" in said
    shutil.rmtree(office.folder.path)
    said = restore_backup(tmp_path / "backup.zip", office.folder.path)
    assert "does not know: 0" in said
    assert left(office.folder.path) == 1.75
    database = Database(OfficeFolder(office.folder.path).store)
    accounts = Accounts(database)
    assert {one["name"] for one in accounts.people()} == {"anna", "bert", "sue"}
    with pytest.raises(DeskError, match="revoked"):
        accounts.who(token, "token")
    database.close()


@pytest.mark.long
def test_a_backup_that_would_give_budget_back_is_refused(office, tmp_path):
    write_backup(office.folder, tmp_path / "backup.zip")
    answer_one(office, 0.5)
    shutil.rmtree(office.folder.path)
    with pytest.raises(LedgerError, match="anchor"):
        restore_backup(tmp_path / "backup.zip", office.folder.path)
    assert not office.folder.path.exists()


@pytest.mark.long
def test_a_ledger_that_is_there_stays(office, tmp_path):
    write_backup(office.folder, tmp_path / "backup.zip")
    answer_one(office, 0.5)
    assert list(office.folder.path.glob("office.db-*"))  # as a server leaves it that was killed
    said = restore_backup(tmp_path / "backup.zip", office.folder.path)
    assert (
        len(restored := Database(OfficeFolder(office.folder.path).store).rows(sql.select(REQUESTS)))
        == 1
    )
    assert restored[0]["epsilon"] == 0.25
    assert "with its own ledger" in said
    assert "does not know: 1" in said
    assert left(office.folder.path) == 1.25


@pytest.mark.long
def test_without_an_anchor_a_head_is_needed(tmp_path):
    running = Running(tmp_path, approval="never")
    answer_one(running, 0.25)
    write_backup(running.folder, tmp_path / "backup.zip")
    old = running.desk.ledger().verify().split()[-1]
    answer_one(running, 0.5)
    new = running.desk.ledger().verify().split()[-1]
    shutil.rmtree(running.folder.path)
    for head, said in ((None, "no anchor"), (new, "does not contain")):
        with pytest.raises(LedgerError, match=said):
            restore_backup(tmp_path / "backup.zip", running.folder.path, head)
    assert "restored" in restore_backup(tmp_path / "backup.zip", running.folder.path, old)
    running.database.close()


def test_what_is_no_backup_is_refused(running, tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("../evil.toml", "x = 1")
    with pytest.raises(OptionError, match="no backup"):
        restore_backup(tmp_path / "other.zip", tmp_path / "new")
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(OptionError, match="no backup"):
        restore_backup(tmp_path / "text.zip", tmp_path / "new")
    write_backup(running.folder, tmp_path / "backup.zip")
    with pytest.raises(OptionError, match="exists"):
        write_backup(running.folder, tmp_path / "backup.zip")
    assert (tmp_path / "backup.zip").stat().st_mode & 0o077 == 0


def test_nobody_restores_under_a_running_server(running, tmp_path):
    import os

    write_backup(running.folder, tmp_path / "backup.zip")
    lock = running.folder.lock()
    with pytest.raises(OptionError, match="is running"):
        restore_backup(tmp_path / "backup.zip", running.folder.path)
    os.close(lock)
