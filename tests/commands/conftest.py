import pytest

from tests.commands.shell import write_files


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with data in three formats, bounds and points; commands run in it."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path
