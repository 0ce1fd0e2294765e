"""Row functions that are declared as functions."""

from __future__ import annotations

import pickle

import numpy as np

from dpeffects.estimators.row_functions import row
from dpeffects.privacy.rows import Block


@row("outcome")
def above(rows, level):
    return rows.outcome - level


@row("treated")
def signed(rows, residual, factor=2.0):
    return factor * np.where(rows.treated, 1.0, -1.0) * residual(rows)


ROWS = Block(outcome=np.array([1.0, 2.0]), treated=np.array([True, False]))


def test_it_reads_what_its_numbers_read():
    assert above(1.0).reads == ("outcome",)
    assert signed(above(1.0)).reads == ("treated", "outcome")


def test_numbers_by_place_by_name_or_by_default():
    assert signed(above(0.5))(ROWS).tolist() == [1.0, -3.0]
    assert signed(residual=above(0.5), factor=1.0)(ROWS).tolist() == [0.5, -1.5]


def test_it_travels_to_other_processes():
    there = pickle.loads(pickle.dumps(signed(above(0.5), 1.0)))
    assert there.reads == ("treated", "outcome")
    assert there(ROWS).tolist() == [0.5, -1.5]
