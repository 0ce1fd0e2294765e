"""Ledgers to test: a file in a folder that anybody may use, and a schema on a server of our own."""

import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_NUMBERS = itertools.count()


def binaries():
    """Return the folder of PostgreSQL's programs, or None."""
    found = [Path(p).parent for p in [shutil.which("initdb")] if p]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists()), None)


class Server:
    """A PostgreSQL server on a socket in a temporary folder, run by somebody who is not root."""

    def __init__(self, programs):
        self.programs, self.folder = programs, Path(tempfile.mkdtemp(prefix="dpeffects-"))
        self.user = {"user": "nobody", "extra_groups": []} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(self.folder, "nobody")
        self.run("initdb", "-D", self.data, "-A", "trust", "-U", "tester", "--no-sync")
        self.start()

    @property
    def data(self):
        return str(self.folder / "data")

    def run(self, program, *arguments):
        command = [str(self.programs / program), *arguments]
        with open(self.folder / "log", "ab") as log:
            subprocess.run(
                command, check=True, stdout=log, stderr=log, cwd=self.folder, **self.user
            )

    def start(self):
        options = f"-k {self.folder} -c listen_addresses=''"
        self.run("pg_ctl", "-D", self.data, "-w", "-o", options, "start")

    def crash(self):
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "stop")

    def url(self, schema):
        where = f"host={self.folder}&options=-csearch_path%3D{schema}"
        return f"postgresql://tester@/postgres?{where}"

    def sql(self, statement):
        self.run("psql", "-h", str(self.folder), "-U", "tester", "-c", statement, "postgres")

    def schema(self):
        name = f"ledger{next(_NUMBERS)}"
        self.sql(f"CREATE SCHEMA {name}")
        return name


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    made = Server(programs)
    yield made
    made.crash()
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture
def folder():
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o777)
        yield Path(made)


@pytest.fixture
def file(folder):
    return str(folder / "study.db")


@pytest.fixture(params=["file", "server"])
def address(request, folder):
    """A place for a new ledger."""
    if request.param == "file":
        return str(folder / "study.db")
    server = request.getfixturevalue("server")
    return server.url(server.schema())
