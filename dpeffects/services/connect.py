"""An office's datasets in the place of frames: the researcher's side of its HTTP interface.

The rows stay in the office. A call with one of its datasets is sent there as plain values, the
office answers it under the policy of its steward, and the result is the one that the call would
give on a frame. Whatever comes back is a stranger's text: of bounded size, read strictly, checked
by types, and nothing in it is run.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any
from urllib.parse import quote

import numpy as np

import dpeffects as dpe
from dpeffects import documents, errors
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.design.frames import require_columns
from dpeffects.errors import OfficeError, OptionError, listed, refusal
from dpeffects.estimators.option_checks import check_between, check_whole, is_number
from dpeffects.formula import parse
from dpeffects.lazy import pd
from dpeffects.privacy.budget import Budget
from dpeffects.progress import bar
from dpeffects.results.export import DAMAGE, frame_of, read
from dpeffects.services.document_checks import at_least, one_of, text
from dpeffects.services.gate.question import CALLS
from dpeffects.services.gate.records import SiteColumns
from dpeffects.services.planning.synthetic_records import fitting
from dpeffects.type_checks import PLAIN, FieldError, Types

_CALLS = tuple(dict.fromkeys((*CALLS, "dp_att", "dp_atc")))
_OFFICES_OWN = ("ledger", "dataset", "seed", "bounds", "budget_split")
"""Arguments that are not sent."""
_ADDRESS = re.compile(
    r"(https://[^/?#@\s]+|http://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?)(/[^?#@\s]*)?"
)
"""With TLS, or on this machine."""
_MOST_BYTES, _MOST_WORDS = 20_000_000, 1000
_PAUSES = 0.5, 1.0, 2.0, 4.0
"""Seconds before a request is sent again that got no answer, or found the office busy."""
_CONNECT, _SILENT, _WHOLE, _WAIT, _LEAST = 10.0, 30.0, 120.0, 5.0, 0.1
"""Seconds to connect, without a byte, for an answer, that the office waits for a change, and
between two questions for one."""


def connect(
    url: str,
    *,
    token: str | None = None,
    certificate: str | os.PathLike[str] | None = None,
    timeout: float = 600.0,
) -> Office:
    """Connect to an office, whose datasets can then stand in the place of frames.

    Parameters
    ----------
    url
        The address of the office, such as ``"https://office.example"``. It begins with https, but
        for an office on the same machine.
    token
        Your token, which the office's steward gave you; by default that in the environment variable
        DPEFFECTS_TOKEN, so that it is not written in a script.
    certificate
        A PEM file with the certificate to trust, where the office's is not signed by a public
        authority.
    timeout
        Seconds that a call waits for its answer. The office goes on beyond that, and the same call
        gets the same answer later.

    Returns
    -------
    Office
        A mapping of names to datasets.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> try:
    ...     dpe.connect("http://office.example", token="secret")
    ... except dpe.DPEffectsError as error:
    ...     print(error)
    the address of an office begins with https://; only http://localhost does without TLS
    """
    check_between("timeout", timeout, 0.1, 1e9)
    return Office(_Link(url, token, certificate), timeout)


# --- what the office sends ----------------------------------------------------------------------


def _words(value: Any, name: str = "") -> str:
    """What somebody wrote, on one line, of bounded length and without control characters."""
    line = " ".join(value[:_MOST_BYTES].split()) if isinstance(value, str) else ""
    return errors.shorten("".join(x for x in line if x.isprintable()), _MOST_WORDS)


_FINAL = ("waiting", "refused", "failed")
"""What a request without a result stays, until a person does something or for ever."""
_Words = Annotated[str, _words]


@dataclass(frozen=True)
class _RequestState:
    """A request, and what has become of it."""

    id: Annotated[str, text]
    status: Annotated[str, one_of("queued", "running", "answered", *_FINAL)]
    call: Annotated[str, one_of(*_CALLS)]
    formula: Annotated[str, text]
    epsilon: float
    delta: float = 0.0
    dataset: _Words = ""
    reason: _Words = ""
    kind: _Words = ""
    asked: _Words = ""
    result: Any = None


_Amounts = Mapping[str, Mapping[str, float | None]] | None
_TYPES = Types(PLAIN, exact=False)


def _checked(kind: Any, values: Any, name: str = "") -> Any:
    """Read what the office sent; a later office may say more than is known here."""
    try:
        return _TYPES.of(kind)(values, name)
    except (FieldError, RecursionError) as error:
        raise OfficeError(refusal("office_damaged", why=_words(str(error)))) from None


# --- the way to it ------------------------------------------------------------------------------


class _Link:
    """The way to one office. Whatever is asked twice is answered once, so that all is repeated."""

    def __init__(self, url: str, token: str | None, certificate: Any) -> None:
        try:
            import httpx
        except ImportError:
            raise errors.MissingExtraError(refusal("office_extra")) from None
        if not (isinstance(url, str) and _ADDRESS.fullmatch(url)):
            raise OptionError(refusal("office_address"))
        token = os.environ.get("DPEFFECTS_TOKEN", "") if token is None else token
        if not (isinstance(token, str) and re.fullmatch(r"[!-~]+", token)):
            raise OptionError(refusal("office_token"))
        self._http, self.url, self._tls = httpx, url.rstrip("/"), url.startswith("https")
        sent = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        self._headers = httpx.Headers(sent | {"Content-Type": "application/json"})
        try:
            self._trusted = ssl.create_default_context(cafile=certificate)
        except (OSError, ValueError, TypeError):
            raise OptionError("certificate must be the path of a PEM file") from None

    def _client(self, wait: float) -> Any:
        """A client that follows no redirect, and without TLS goes through no proxy."""
        limits = self._http.Timeout(_CONNECT, read=_SILENT + wait)
        return self._http.Client(verify=self._trusted, trust_env=self._tls, timeout=limits)

    def ask(self, path: str, body: Mapping[str, Any] | None = None, wait: float = 0.0) -> Any:
        """Return the office's answer to GET, or to POST where there is a body."""
        for pause in (0.0, *_PAUSES):
            time.sleep(pause)
            status, sent = self._once(path, body, wait)
            if status not in (0, 429, 502, 503, 504):
                break
        values = None
        with suppress(FieldError):
            values = documents.parse_json(sent)
        if status // 100 == 2 and isinstance(values, dict):
            return values
        if status // 100 > 3 and isinstance(values, dict) and (said := _words(values.get("error"))):
            raise (OptionError if status == 400 else OfficeError)(f"the office answers: {said}")
        of = {0: "office_silent", 3: "office_moved"}.get(status // 100, "office_strange")
        raise OfficeError(refusal(of, url=self.url, status=status))

    def _once(self, path: str, body: Any, wait: float) -> tuple[int, bytes]:
        sent, until, how = b"", time.monotonic() + _WHOLE + wait, "POST" if body else "GET"
        given = {"headers": self._headers, "content": documents.canonical(body) if body else None}
        try:
            with self._client(wait) as to, to.stream(how, self.url + path, **given) as answer:
                for part in answer.iter_raw():
                    sent += part
                    if len(sent) > _MOST_BYTES or time.monotonic() > until:
                        raise OfficeError(refusal("office_damaged", why="it is too long"))
                return answer.status_code, sent
        except (self._http.TransportError, self._http.InvalidURL) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise OfficeError(refusal("office_certificate", url=self.url)) from None
            return 0, b""


# --- the office and its datasets ----------------------------------------------------------------


class Office(dict[str, "RemoteDataset"]):
    """The datasets of an office by name; made by `connect`."""

    def __init__(self, link: _Link, timeout: float) -> None:
        there = _checked(tuple[Mapping[str, Any], ...], link.ask("/api/datasets").get("datasets"))
        names = [_checked(Annotated[str, text], each.get("name"), "name") for each in there]
        super().__init__({name: RemoteDataset(link, name, timeout) for name in names})
        self._url = link.url

    def __missing__(self, name: object) -> RemoteDataset:
        facts = {"name": errors.quoted(name), "hint": errors.did_you_mean(name, self)}
        raise OptionError(refusal("office_no_dataset", **facts, known=listed(self) or "none"))

    def __repr__(self) -> str:
        return f"<office at {self._url}: {listed(self)}>"

    def answer_call(self, *_: Any) -> Any:
        """Refuse the office itself in the place of a frame."""
        raise OptionError(refusal("office_whole", known=listed(self) or "none"))


class MadeUpRecords(DeclaredFrame):
    """Records that nobody has, with the bounds of a codebook."""

    def __repr__(self) -> str:
        return f"{super().__repr__()}\nMade up from the codebook alone: these are nobody's records"


class RemoteDataset:
    """A dataset of an office: it stands where a frame would, and its rows stay in the office.

    All that it says itself is free and depends on no row.
    """

    def __init__(self, link: _Link, name: str, timeout: float) -> None:
        self.name, self._link, self._timeout = name, link, timeout
        self._path = f"/api/datasets/{quote(name, safe='')}"
        sent = link.ask(self._path)
        self.n = _checked(Annotated[int, at_least(1)], sent.get("n"), "n")
        self.roles = _checked(Mapping[str, tuple[str, ...]], sent.get("roles"), "roles")
        self._about = _checked(Mapping[str, Mapping[str, Any]], sent.get("columns"), "columns")
        self.columns = list(dict.fromkeys([*self._about, *self.roles.get("treatment", ())]))
        known = {k: x for k, x in self._about.items() if "range" in x or "levels" in x}
        try:
            self.bounds = read(Bounds, {k: {**x, "source": "declared"} for k, x in known.items()})
        except DAMAGE:
            raise OfficeError(refusal("office_damaged", why="its codebook")) from None

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, _: object) -> Any:
        raise OptionError(refusal("office_rows"))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name!r}: {refusal('office_rows')}")

    def __repr__(self) -> str:
        return f"<dataset {self.name!r} of the office at {self._link.url}: {self.n:,} records>"

    def codebook(self) -> pd.DataFrame:
        """What the columns may hold and mean, a row for each; `bounds` has it for programs."""
        about, known, roles = self._about, self.bounds, self.roles.items()
        rows = [
            {"column": name, "values": known.describe(name) if name in known else "0, 1"}
            | {word: _words(about.get(name, {}).get(word)) for word in ("label", "unit")}
            | {"roles": ", ".join(role for role, names in roles if name in names)}
            for name in self.columns
        ]
        return frame_of(rows)

    def budget(self) -> pd.DataFrame:
        """Epsilon and delta in total, spent and left: of dataset, project and person."""
        sent = _checked(Mapping[str, _Amounts], self._link.ask(f"{self._path}/budget"))
        columns = ("total", "spent", "left")
        pairs = [(whose, *x) for whose, own in sent.items() for x in (own or {}).items()]
        rows = [(_words(x), _words(what), *map(own.get, columns)) for x, what, own in pairs]
        return frame_of(rows, ["budget", "of", *columns])

    def made_up(self, n: int = 1000) -> MadeUpRecords:
        """Make up n records from the codebook alone, always the same, to try a script on.

        Every column has the whole of its range, or all its levels, evenly, and none has to do with
        another one: effects are about 0.
        """
        check_whole("n", n, 4, 1_000_000)
        bounds: Bounds = self.bounds
        known = {k: list(x) if bounds.is_levels(k) else tuple(x) for k, x in bounds.items()}
        frame = SiteColumns(known, frozenset(self.roles.get("treatment", ()))).made_up(n)
        for k, name in enumerate(
            map(str, frame)
        ):  # each in an order of its own, which looks like none
            order = np.argsort(np.modf(np.arange(n) * (1e4 * math.sin(k + 1.0)))[0])
            frame[name] = fitting(name, frame[name].to_numpy()[order], bounds)
        return MadeUpRecords(frame, bounds)

    def plan(self, formula: str, **assumed: Any) -> dpe.Plan:
        """Predict the accuracy of each method: `dpeffects.plan` with its n and bounds."""
        return dpe.plan(formula, n=self, **assumed)  # type: ignore[arg-type]

    def requests(self) -> pd.DataFrame:
        """What was asked of this dataset, newest first, and what has become of it."""
        sent = _checked(tuple[_RequestState, ...], self._link.ask("/api/requests").get("requests"))
        names = ["id", "call", "formula", "epsilon", "delta", "status", "reason", "asked"]
        own = [[getattr(x, name) for name in names] for x in sent if x.dataset == self.name]
        return frame_of(own, names)

    def request(self, id: str) -> Any:
        """Return the result of a request that was made before, by its id in `requests`."""
        return self._result(self._state(id))

    def answer_call(self, function: Callable[..., Any], given: Any, named: Any) -> Any:
        """Have the office answer a call of a public function in which this stands for the data."""
        name, own = function.__name__, {"n": self.n, "bounds": self.bounds}
        if name in ("plan", "plan_study"):  # they need no rows
            named = {k: x for k, x in named.items() if x is not self and x is not None}
            if twice := named.keys() & own:
                raise OptionError(refusal("office_has", name=min(twice)))
            given = [x for x in given if x is not self]
            if isinstance(text := named.get("formula", *given[:1]), str):
                require_columns(parse(text, self.columns).columns, self.columns, "the formula")
            return getattr(dpe, name)(*given, **named, **own)
        if name not in _CALLS:
            raise OptionError(refusal("office_calls", name=name, known=", ".join(_CALLS)))
        if not any(x is self for x in (*given[1:2], named.get("data"))):
            raise OptionError(refusal("office_for_data"))
        asked = self._asked(function, given, named)
        state = _checked(_RequestState, self._link.ask(f"{self._path}/requests", asked))
        for later in bar(self._changes(state), f"waiting for {self.name}"):
            state = later
        return self._result(state)

    def _asked(self, function: Callable[..., Any], given: Any, named: Any) -> dict[str, Any]:
        """The arguments of a call as plain values, without those that are so by default."""
        signature = inspect.signature(function)
        bind = wraps(function)(lambda *x, **named: signature.bind(*x, **named).arguments)
        named = {k: None if x is self else x for k, x in named.items()}
        sent = errors.checked_call(bind)(*(None if x is self else x for x in given), **named)
        for name in sent.keys() & ("options", "arguments"):
            sent |= sent.pop(name)
        formula = parse(sent.pop("formula"), self.columns)
        require_columns(formula.columns, self.columns, "the formula")
        budget = vars(Budget(sent.pop("epsilon", None), sent.pop("delta", 0.0)))
        usual = {**inspect.signature(dpe.dp_ate).parameters, **signature.parameters}
        usual = {k: _plain("", x.default) for k, x in usual.items() if x.default is not x.empty}
        plain = {name: _plain(name, x) for name, x in sent.items() if x is not None}
        options = {name: x for name, x in plain.items() if name not in usual or x != usual[name]}
        return {"call": function.__name__, "formula": formula.source, "options": options, **budget}

    def _state(self, id: str, wait: float = 0.0) -> Any:
        place = f"/api/requests/{quote(str(id), safe='')}?wait={wait:g}"
        return _checked(_RequestState, self._link.ask(place, wait=wait))

    def _changes(self, state: _RequestState) -> Iterator[_RequestState]:
        """States of a request, until it is final or the time is over."""
        until = time.monotonic() + self._timeout
        while not (state.result or state.status in _FINAL or time.monotonic() > until):
            time.sleep(_LEAST)
            state = self._state(state.id, _WAIT)
            yield state

    def _result(self, state: _RequestState) -> Any:
        """The result of a request, in the class that the call gives; or why there is none."""
        if state.status != "answered":
            kinds = {"refused": errors.RefusalError, "failed": errors.EstimationError}
            said = refusal(f"office_{state.status}", why=state.reason.rstrip("."), id=state.id)
            raise kinds.get(state.status, errors.PendingError)(said)
        call = state.call if state.call not in ("dp_att", "dp_atc") else "dp_ate"
        known = str(inspect.signature(getattr(dpe, call)).return_annotation).split(" | ")
        with suppress(ValueError, TypeError, RecursionError):
            if state.kind in known:
                return getattr(dpe, state.kind).from_json(json.dumps(state.result))
        raise OfficeError(refusal("office_damaged", why=f"no result of {state.call}"))


def _plain(name: str, value: Any) -> Any:
    """An argument as JSON has it."""
    if name in _OFFICES_OWN:
        raise OptionError(refusal("office_has", name=name))
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Mapping):
        return {str(key): _plain("", each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain("", each) for each in value]
    if value is None or isinstance(value, str | int) or (is_number(value) and math.isfinite(value)):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    raise OptionError(refusal("office_takes", name=name or "a value", got=type(value).__name__))
