"""What every public call holds to, whatever it releases.

The same seed gives the same bits wherever the rows are and in any order, all of the budget is paid
and no more, and a result is read from its JSON as it was. Bounds are no round numbers in binary,
and clip some values.
"""

from __future__ import annotations

from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest

import dpeffects as dpe
from dpeffects.design import engines, table
from dpeffects.errors import OptionError
from dpeffects.privacy import rows as private_rows
from dpeffects.privacy.budget import as_written
from tests.calls import CALLS, KINDS
from tests.neighbours import Pair, frame
from tests.replay import Frozen

PROOFS = Path(dpe.__file__).with_name("privacy").joinpath("PROOFS.md").read_text()
CLIPPED = {"y": (0.03, 0.87), "x1": (0.03, 0.93), "x2": (-0.97, 0.87), "z": (0.03, 0.93)}
OTHERWISE = {
    "compliers, weights": "too few records count",
    "private_psm, label, public ranges": "levels of a file are declared",
    "site_release, private_psm": "what was released says where rows were",
}
SITES = ("answer", "asked", "dp_multisite")
ONE = {k: call for k, call in CALLS.items() if call.function not in SITES and k not in OTHERWISE}
"""Calls of one table, but for those that go otherwise by it."""


def run(call, data):
    """A result, and the noise that was drawn for it."""
    noise = Frozen(1)
    bounds = {**CLIPPED, "g": ["a", "b", "c"], "t": [False, True]}
    fit = call.run(data, noise, Pair("clipped", data, data, 0, bounds))
    return fit, noise


def shown(fit):
    """All that it says, but for how its rows came into memory."""
    said = fit.to_dict()
    said["notes"] = [note for note in said.get("notes", ()) if not note.startswith("Collected")]
    return said


@contextmanager
def lazily_refused():
    """Some calls need rows in memory, and say so."""
    try:
        yield
    except OptionError as refused:
        if "lazy frame" not in str(refused):
            raise


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", ONE)
def test_it_gives_the_same_bits_wherever_the_rows_are_and_is_paid_for(name):
    call = ONE[name]
    data = frame(call.n, 4)
    fit, noise = run(call, data)
    (ledger,) = noise.ledgers
    expected = shown(fit)
    epsilon = call.given.get("epsilon", 1.0)
    paid = sum(Fraction(charge.epsilon) for charge in fit.charges if not charge.covered)
    assert paid <= as_written(epsilon) == ledger.spent[0]
    assert ledger.spent[1] <= as_written(call.given.get("delta", 0.0))
    assert all(f"## Claim {charge.claim}." in PROOFS for charge in fit.charges)
    again = type(fit).from_json(fit.to_json())
    assert again.to_json() == fit.to_json()
    if hasattr(fit, "summary"):
        assert str(again.summary()) == (text := str(fit.summary()))
        assert all(len(line) <= 80 for line in text.splitlines())
    if not noise.permutations:  # what goes by the places of rows draws a secret order of them
        data = data.sample(frac=1, random_state=3).reset_index(drop=True)
    for kind in KINDS:
        with lazily_refused():
            assert shown(run(call, KINDS[kind](data))[0]) == expected, kind
    with (
        mock.patch.object(private_rows, "ROWS", 100),
        mock.patch.object(table, "ROWS", 70),
        mock.patch.object(engines, "_BATCH", 300),
    ):
        for kind in ("", "polars"):
            with lazily_refused():
                assert shown(run(call, KINDS[kind](data))[0]) == expected, kind
