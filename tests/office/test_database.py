"""One path of migrations, for a new database and for an old one, in SQLite and PostgreSQL."""

from pathlib import Path

import pytest
import sqlalchemy as sql
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from dpeffects.services.office import database as module
from dpeffects.services.office.accounts import Accounts
from dpeffects.services.office.database import METADATA, Database
from tests.office.offices import Running, asked_at_once
from tests.privacy.conftest import server  # noqa: F401  a PostgreSQL server of the tests' own


@pytest.fixture(params=["file", "server"])
def url(request, tmp_path):
    if request.param == "file":
        return f"sqlite:///{tmp_path}/office.db"
    made = request.getfixturevalue("server")
    return made.url(made.schema())


def migrate(database, revision):
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).with_name("migrations")))
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def differences(database):
    with database.read() as connection:
        found = compare_metadata(MigrationContext.configure(connection), METADATA)
    return [one for one in found if "dpeffects_" not in str(one)]


@pytest.mark.long
def test_a_new_database_and_an_old_one_become_the_same(url):
    database = Database(url)
    migrate(database, "0001")
    assert differences(database)  # it is old
    with database.write() as connection:
        insert = "INSERT INTO projects (name, created) VALUES ('ageing', '2026')"
        connection.execute(sql.text(insert))
    for _ in range(2):
        database.upgrade()
        assert differences(database) == []
    assert [one["name"] for one in Accounts(database).projects()] == ["ageing"]
    database.close()


def test_a_file_survives_a_cut_of_power(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/office.db")
    database.upgrade()
    assert differences(database) == []
    settings = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    for name, value in settings.items():
        assert database.rows(sql.text(f"PRAGMA {name}")) == [{name: value}]
    database.close()


def test_what_fails_leaves_nothing(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/office.db")
    database.upgrade()
    with pytest.raises(sql.exc.StatementError), database.write() as connection:
        (module.note(connection, "a", "b", "c"), connection.execute(sql.text("nonsense")))
    assert database.rows(sql.select(module.EVENTS)) == []
    database.close()


@pytest.mark.long
def test_budgets_hold_on_a_server(server, tmp_path):  # noqa: F811
    url = server.url(server.schema())
    running = Running(tmp_path, approval="never", store=url, ledger=url)
    running.accounts.set_budget("test", "project", "ageing", 0.5, None)
    assert asked_at_once(running) == ["queued"] * 4 + ["refused"] * 4
    same = running.ask(epsilon=0.05)
    assert running.ask(epsilon=0.05) == same
    assert "sound" in running.desk.ledger().verify()
    running.database.close()
