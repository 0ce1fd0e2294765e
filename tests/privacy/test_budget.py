import contextlib
import json
import threading
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpeffects.errors import BudgetError, OptionError
from dpeffects.flow import merge_split
from dpeffects.guarantee import column_of, rows_of
from dpeffects.ledgers.memory import Ledger
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import CallLedger, Terms


def charge(epsilon, delta=0.0):
    return Charge("x", "estimate", epsilon, delta, "discrete Laplace", (1.0,), (1.0,), 2)


@given(
    st.floats(0.01, 1e3),
    st.lists(st.floats(0.1, 100), min_size=1, max_size=12),
)
def test_shares_never_sum_above_the_budget(epsilon, proportions):
    shares = Budget(epsilon).shares({str(i): p for i, p in enumerate(proportions)})
    total = sum(Fraction(s.epsilon) for s in shares.values())
    assert total <= as_written(epsilon)
    assert float(total) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0, -1, float("inf"), float("nan"), "1", None, True])
def test_bad_epsilon(epsilon):
    with pytest.raises(BudgetError):
        Budget(epsilon)


@pytest.mark.parametrize("delta", [-0.1, 1, 2.0, float("nan"), "0"])
def test_bad_delta(delta):
    with pytest.raises(BudgetError):
        Budget(1.0, delta)


def test_overspending_is_refused_and_says_what_is_left():
    ledger = Ledger(1.0)
    ledger.charge(charge(0.75))
    with pytest.raises(BudgetError, match=r"0\.25"):
        ledger.charge(charge(0.5))
    assert ledger.remaining == (0.25, 0.0)
    assert len(ledger.charges) == 1


def test_a_tiny_charge_does_not_round_away():
    ledger = Ledger(1.0)
    ledger.charge(charge(1.0))
    with pytest.raises(BudgetError):
        ledger.charge(charge(1e-300))  # 1.0 + 1e-300 == 1.0 in floats
    half = Ledger(1.0)
    for _ in range(10):
        half.charge(charge(0.1)) if half.remaining[0] >= 0.1 else None
    assert sum(Fraction(s.epsilon) for s in half.charges) <= 1


def test_decimals_mean_what_they_say():
    """Three times 0.1 is 0.3 for a user, although not in binary floats."""
    ledger = Ledger(0.3)
    for _ in range(3):
        ledger.require(0.1)
        ledger.charge(charge(Budget(0.1).shares({"a": 1})["a"].epsilon))
    assert ledger.remaining == (0.0, 0.0)
    with pytest.raises(BudgetError):
        ledger.require(1e-6)


def test_zero_or_negative_charges_are_refused():
    for epsilon in (0.0, -0.5):
        with pytest.raises(BudgetError):
            Ledger(1.0).charge(charge(epsilon))


def test_the_parent_is_charged_first_and_can_refuse():
    parent = Ledger(0.5)
    child = Ledger(1.0, parent=parent)
    with pytest.raises(BudgetError):
        child.charge(charge(0.75))
    assert child.charges == parent.charges == ()
    child.charge(charge(0.5))
    assert len(parent.charges) == 1


def test_a_call_reserves_no_more_of_another_than_is_left():
    whole, terms = CallLedger(Budget(1.0, 1e-6)), Terms("record")
    for more in (Budget(1.25, 1e-6), Budget(1.0, 2e-6)):
        with pytest.raises(BudgetError, match="left of the call's budget"):
            whole.reserve(more, terms, {})
    whole.reserve(Budget(1.0, 1e-6), terms, {}).charge(charge(0.5), terms)
    with pytest.raises(BudgetError, match="left of the call's budget"):
        whole.reserve(Budget(0.75), terms, {})
    assert whole.spent == (Fraction(1, 2), 0)


def test_threads_cannot_overspend_together():
    for _ in range(50):
        ledger = Ledger(1.0)

        def draw(ledger=ledger):
            with contextlib.suppress(BudgetError):
                ledger.charge(charge(0.6))

        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ledger.charges) == 1


def test_only_like_charges_add_up():
    """An outcome-level epsilon and a record-level epsilon have no sum; a seeded call is marked."""
    parent = Ledger(2.0)
    Ledger(1.0, parent=parent, terms=Terms("record")).charge(charge(0.5))
    with pytest.raises(BudgetError, match="ledger of its own"):
        Ledger(1.0, parent=parent, terms=Terms("outcome", ("covariates",))).charge(charge(0.5))
    assert "VOID" not in repr(parent)
    Ledger(1.0, parent=parent, terms=Terms("record", void=("seeded",))).charge(charge(0.5))
    assert "VOID: seeded" in repr(parent)


RECORD, PATIENT, CLINIC = (Terms(x) for x in ("record", rows_of("patient_id"), rows_of("clinic")))
OUTCOME = Terms("outcome", ("covariates", "treatment"))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (RECORD, PATIENT, "one patient_id with k rows at k times its epsilon"),
        (PATIENT, RECORD, "one patient_id with k rows at k times its epsilon"),
        (OUTCOME, PATIENT, "spent to protect an outcome protects one patient_id"),
        (PATIENT, CLINIC, "rows of one patient_id may be of several clinic"),
    ],
)
def test_a_ledger_does_not_mix_units(first, second, said):
    ledger = Ledger(2.0)
    ledger.charge(charge(0.5), first)
    for refused in (ledger.charge, lambda s, t: ledger.reserve(Budget(0.1), t, {})):
        with pytest.raises(BudgetError, match=said) as caught:
            refused(charge(0.5), second)
        assert "promise for neither" in str(caught.value)
        assert "ledger of its own" in str(caught.value)
    assert ledger.remaining == (1.5, 0.0)
    ledger.charge(charge(0.5), first)


def test_a_ledger_for_a_unit_refuses_calls_that_protect_less():
    ledger = Ledger(1.0, unit="patient_id")
    with pytest.raises(BudgetError, match="everything about one patient_id, in however many rows"):
        ledger.charge(charge(0.5), RECORD)
    ledger.charge(charge(0.5), PATIENT)
    for nothing in ("", 3, ["patient_id"]):
        with pytest.raises(OptionError, match="name of a column"):
            Ledger(1.0, unit=nothing)


NAMES = [
    "patient_id",
    "record",
    "outcome",
    "Patient number",
    'a "quoted" name',
    "two\nlines",
    "two\\nlines",
    "x" * 500,
    "x" * 499 + "y",
    "Größe",
    "\u202eright to left",
    "\ud800 alone",
    " ",
    "_{x} & 50 % \\ <b>",
]


def test_every_column_has_words_of_its_own():
    units = [rows_of(name) for name in NAMES]
    assert len({*units, "record", "outcome"}) == len(NAMES) + 2
    for unit in units:
        assert unit.isprintable()
        assert len(unit) < 90
        assert unit == f"all rows of one {column_of(unit)}"
        json.dumps(unit).encode()
    assert column_of("record") == column_of("outcome") == ""


def test_a_share_too_small_to_use_is_refused_before_anything_is_drawn():
    with pytest.raises(BudgetError, match="too small"):
        Budget(1e-9).shares({"a": 1})
    with pytest.raises(BudgetError, match="too small"):
        Budget(1.0).shares({"a": 1, "b": 1e-9})


def test_delta_is_counted_separately():
    ledger = Ledger(1.0, 1e-5)
    with pytest.raises(BudgetError):
        ledger.charge(charge(0.1, 1e-4))
    ledger.charge(charge(0.1, 0.9e-5))


@pytest.mark.parametrize("given_shares", [{"nope": 1}, {"a": 0}, {"a": -1}, {"a": "x"}, 3])
def test_bad_shares(given_shares):
    with pytest.raises(OptionError):
        merge_split({"a": 1.0}, given_shares)
