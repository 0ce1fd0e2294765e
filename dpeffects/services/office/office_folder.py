"""What an office is on disk: its settings, policy, codebook, ledger, and a lock.

`office.toml` has settings, `policy.toml` what the gate allows, `codebook.toml` what columns may
hold. The lock is held by the server and inherited by its workers: while one of them lives, no other
server begins, so a request that has no answer is known to be drawn by nobody.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from dpeffects import documents, file_output
from dpeffects.design.codebook import RangeOrLevels, read_bounds
from dpeffects.errors import OptionError, PolicyError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import proved
from dpeffects.files import column_names, read_toml
from dpeffects.ledgers import create_ledger
from dpeffects.services.document_checks import SETTINGS, at_least, one_of, refused, toml_document
from dpeffects.services.gate.policy import Policy
from dpeffects.services.gate.question import CALLS, STUDY, check_name

_MOST_BYTES = 10_000_000
APPROVALS = ("always", "above", "never")


@dataclass(frozen=True)
class OfficeSettings:
    """Settings of an office, from its file `office.toml`.

    Parameters
    ----------
    name, title
        Of the dataset: what researchers write, and what a page shows.
    store
        Database of accounts and requests; a file of the office, or ``postgresql://...``.
    listen, certificate, key, behind_proxy
        Address and port; files of TLS; or the addresses of the proxy in front, which has TLS.
    approval, approve_above
        Which requests a steward approves: "always" all, "above" those that cost more epsilon than
        ``approve_above``, "never" none.
    workers
        Processes that answer, each with the data.
    requests_per_minute, requests_per_day, sign_ins_per_minute
        Of one token or session; new ones of one person; of one address.
    session_hours, token_days, grace_seconds
        How long a session and a token last, and how long a server that is stopped waits for the
        requests that are being answered.
    """

    name: str
    title: str = ""
    store: str = "sqlite:///office.db"
    listen: str = "127.0.0.1:8800"
    certificate: str = ""
    key: str = ""
    behind_proxy: str = ""
    approval: Annotated[str, one_of(*APPROVALS)] = "always"
    approve_above: float = 0.5
    workers: Annotated[int, at_least(1)] = 1
    requests_per_minute: Annotated[int, at_least(1)] = 600
    requests_per_day: Annotated[int, at_least(1)] = 1000
    sign_ins_per_minute: Annotated[int, at_least(1)] = 10
    session_hours: float = 12.0
    token_days: float = 90.0
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        with refused(PolicyError):
            SETTINGS.check(self)
            check_name("name", self.name)

    def needs_approval(self, epsilon: float) -> bool:
        """Whether a steward has to approve a request of this cost."""
        return self.approval == "always" or (
            self.approval == "above" and epsilon > self.approve_above
        )


class OfficeFolder:
    """The folder of an office."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        if not (self.path / "office.toml").is_file():
            raise OptionError(f"{path} is no office; dpeffects office init makes one")
        given = self._read("office.toml")
        with refused(PolicyError, "office.toml: "):
            SETTINGS.names(OfficeSettings, given, "an office")
        self.settings = OfficeSettings(**given)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_toml(documents.read(path, _MOST_BYTES, PolicyError), str(path), PolicyError)

    @property
    def policy_file(self) -> Path:
        """The file of the policy, which workers read for each request."""
        return self.path / "policy.toml"

    def policy(self) -> Policy:
        """Read the policy, which may change while a server runs."""
        return Policy.read(self.policy_file)

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """What the codebook says about each column."""
        return self._read("codebook.toml")

    @property
    def store(self) -> str:
        """URL of the database; a file is in the folder."""
        url = self.settings.store
        file = url.removeprefix("sqlite:///")
        return url if file == url else f"sqlite:///{self.path / file}"

    def lock(self, wait: float = 60.0) -> int:
        """Take the lock, and return its file descriptor; wait for workers of an earlier server."""
        held = os.open(self.path / "office.lock", os.O_RDWR | os.O_CREAT, 0o600)
        last = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return held
            except OSError:
                if time.monotonic() > last:
                    os.close(held)
                    raise OptionError(f"another server of {self.path} is running") from None
                time.sleep(0.1)


# --- a new office


def make_folder(
    path: Path,
    data: Path,
    codebook: Path,
    epsilon: float,
    delta: float,
    *,
    settings: Mapping[str, Any],
    ledger: str = "",
    anchor: str | None = None,
) -> OfficeFolder:
    """Make the folder of an office, with its ledger; refuse one that has something."""
    if path.exists() and any(path.iterdir()):
        raise OptionError(f"{path} holds something already; give a new folder")
    made, columns = OfficeSettings(**settings), _columns(codebook, data)
    kinds, totals = ("range", "levels"), {"epsilon": float(epsilon), "delta": float(delta)}
    written = {
        **{"site": made.name, "dataset": made.name, "data": str(data.resolve())},
        **{f"{most}_{x}": total for most in ("max", "total") for x, total in totals.items()},
        "ledger": ledger or "ledger.db",
        "methods": sorted({*proved(), STUDY, *CALLS} - {"dp_ate", "dp_study"}),
        "estimands": list(AVERAGES),
        "columns": _roles(columns),
        "bounds": {x: {k: c[k] for k in kinds if k in c} for x, c in columns.items()},
    }
    Policy.from_dict(written, path).check()
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    place = ledger or path / "ledger.db"
    written["ledger_id"] = create_ledger(
        place, made.name, epsilon=epsilon, delta=delta, anchor=anchor
    ).id
    for name, values in (("codebook", columns), ("policy", written), ("office", asdict(made))):
        _write(path / f"{name}.toml", values)
    return OfficeFolder(path)


def _columns(codebook: Path, data: Path) -> dict[str, dict[str, Any]]:
    """What a codebook declares of the columns that the data has, in one form."""
    declared, told = read_bounds(codebook), {}
    if codebook.suffix == ".toml":
        told = read_toml(documents.read(codebook), str(codebook), PolicyError)
        told = told.get("bounds", told)
    names = [name for name in column_names(str(data)) if name in declared]
    found = {x: entry for x in names if (entry := _column(declared[x], told.get(x)))}
    if not _roles(found)["treatment"]:
        raise PolicyError(
            f"{codebook} declares no treatment of {data}: fill in a range or levels of each column "
            'that may be asked about, such as drug = {levels = ["no", "yes"]}'
        )
    return found


def _column(declared: Any, told: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    factor = isinstance(declared, list | RangeOrLevels) and list(declared) == [0, 1]  # or bools
    if isinstance(declared, range) or factor:
        entry = {"range": [int(declared[0]), int(declared[-1])], "whole": True}
    elif isinstance(declared, list | tuple):
        entry = {"levels" if isinstance(declared, list) else "range": list(declared)}
    if entry and isinstance(told, Mapping):
        entry |= {name: str(told[name]) for name in ("label", "unit") if name in told}
    return entry


def _roles(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Every column in every role that fits what it holds."""
    arms = [x for x, c in columns.items() if (c.get("range") == [0, 1] and "whole" in c)]
    arms += [x for x, c in columns.items() if len(c.get("levels", ())) > 1]
    names = list(columns)
    return {"outcome": names, "treatment": arms, "covariates": names, "subgroups": names}


def _write(path: Path, values: Mapping[str, Any]) -> None:
    file_output.write(path, toml_document(values))
    path.chmod(0o600)
