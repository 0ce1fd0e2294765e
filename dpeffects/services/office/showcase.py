"""An office on this machine with bundled data, a researcher and a steward: `make office-demo`.

``python -m dpeffects.services.office.showcase [FOLDER]`` makes it, prints what to open and a line
of Python to paste, and serves until it is stopped.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from dpeffects.datasets import data_info, load_data
from dpeffects.services.office.accounts import Accounts
from dpeffects.services.office.database import Database
from dpeffects.services.office.office_commands import serve
from dpeffects.services.office.office_folder import OfficeFolder, make_folder

NAME, LISTEN = "birthweight", "127.0.0.1:8800"
_SAYS = """
An office for "{title}": {n:,} births, epsilon 10 in all.
Open http://{listen}
  steward     name steward  password {steward}
  researcher  name anna     password {anna}
Paste into Python:
  import dpeffects as dpe
  registry = dpe.connect("http://{listen}", token="{token}")["{name}"]
  print(dpe.dp_ate("outcome ~ treatment | mage + married", registry, epsilon=0.5).summary())
Requests above epsilon 0.5 wait for the steward. Stop with Ctrl-C.
"""


def main() -> int:
    """Make the office, say how to get in, and serve."""
    with tempfile.TemporaryDirectory() as made:
        where = Path(sys.argv[1] if len(sys.argv) > 1 else made)
        where.mkdir(parents=True, exist_ok=True)
        data = load_data(NAME)
        data.to_csv(where / "data.csv", index=False)
        settings = {"name": NAME, "title": data_info(NAME).title, "approval": "above"}
        files = where / "data.csv", Path(__file__).with_suffix(".toml")
        folder = make_folder(
            where / "office", *files, 10.0, 1e-5, settings=settings, anchor=str(where / "anchor.db")
        )
        print(_SAYS.format(**settings, listen=LISTEN, n=len(data), **_people(folder)), flush=True)
        serve(str(folder.path), listen=LISTEN)
    return 0


def _people(folder: OfficeFolder) -> dict[str, str]:
    """A steward and a researcher with a project; their passwords, and a token."""
    database = Database(folder.store)
    database.upgrade()
    accounts = Accounts(database)
    accounts.add_project("demo", "study")
    made = {
        "steward": accounts.add("demo", "steward", "administrator"),
        "anna": accounts.add("demo", "anna", "researcher"),
    }
    accounts.set_member("demo", "anna", "study")
    made["token"] = accounts.token("demo", "anna", "study")
    database.close()
    return made


if __name__ == "__main__":
    sys.exit(main())
