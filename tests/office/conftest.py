import pytest

for name in ("starlette", "sqlalchemy", "alembic", "argon2", "limits", "secure", "itsdangerous"):
    pytest.importorskip(name, reason='needs pip install "dpeffects[office]"')


@pytest.fixture(autouse=True)
def _quick_passwords(monkeypatch):
    """Passwords that take a millisecond, for tests that are about something else."""
    from argon2 import PasswordHasher

    from dpeffects.services.office import accounts

    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(accounts, "_HASHER", quick)
    monkeypatch.setattr(accounts, "_NOBODY", quick.hash("nobody"))


@pytest.fixture
def running(tmp_path):
    from tests.office.offices import Running

    made = Running(tmp_path)
    yield made
    made.database.close()
