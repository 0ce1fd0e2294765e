"""Ledgers to test: a file in a folder that anybody may use, and a schema on a server of our own."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PROGRAMS = ("initdb", "pg_ctl", "postgres")
PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql*/bin")
SECONDS = 600
"""Only there to end a hang: a server on a busy machine may take minutes."""
_NUMBERS = itertools.count()


def folders():
    """Folders where PostgreSQL's programs could be, links on the path followed to their ends."""
    yield from (Path(p).resolve().parent for name in PROGRAMS if (p := shutil.which(name)))
    if config := shutil.which("pg_config"):
        said = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(said.stdout.strip())
    for pattern in PLACES:
        yield from sorted(Path("/").glob(pattern), reverse=True)


def binaries():
    """Return the first folder that has all programs (so that their versions agree), or None."""
    has_all = (f for f in folders() if all(os.access(f / name, os.X_OK) for name in PROGRAMS))
    return next(has_all, None)


class Server:
    """A PostgreSQL server on a socket in a temporary folder, run by somebody who is not root."""

    def __init__(self, programs):
        self.programs, self.folder = programs, Path(tempfile.mkdtemp(prefix="dpeffects-"))
        self.user = {"user": "nobody", "extra_groups": []} if os.getuid() == 0 else {}
        # nothing of another server's settings, and messages in English
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        self.environment["LC_ALL"] = "C"
        try:
            if self.user:
                shutil.chown(self.folder, "nobody")
            how = ("-A", "trust", "-U", "tester", "-E", "UTF8", "--no-locale", "--no-sync")
            self.run("initdb", "-D", self.data, *how)
            self.start()
        except BaseException:
            self.remove()
            raise

    @property
    def data(self):
        return str(self.folder / "data")

    def run(self, program, *arguments):
        with open(self.folder / "log", "ab") as log:
            subprocess.run(
                [str(self.programs / program), *arguments],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                timeout=SECONDS,
                **self.user,
            )

    def start(self):
        options = f"-p 5432 -k {self.folder} -c listen_addresses=''"
        self.run("pg_ctl", "-D", self.data, "-w", "-t", str(SECONDS), "-o", options, "start")

    def crash(self):
        self.run("pg_ctl", "-D", self.data, "-t", str(SECONDS), "-m", "immediate", "stop")

    def remove(self):
        """Stop, whether it runs or not, and leave nothing behind."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # it may not be running
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, schema):
        where = f"host={self.folder}&port=5432&options=-csearch_path%3D{schema}"
        return f"postgresql://tester@/postgres?{where}"

    def sql(self, statement):
        import psycopg

        address = f"host={self.folder} port=5432 user=tester dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement)

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
        pytest.skip(f"PostgreSQL is not installed: no folder has {', '.join(PROGRAMS)}")
    try:
        made = Server(programs)
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        pytest.skip(f"PostgreSQL in {programs} does not start: {error}")
    yield made
    made.remove()


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
