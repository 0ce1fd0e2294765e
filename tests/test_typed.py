"""Checks by type: what is made for a type is whole, or is not kept."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dpeffects.type_checks import FieldError, Types, number


class Unknown:
    """A type that no check is known of."""


@dataclass(frozen=True)
class Tree:
    """A type that is in itself."""

    size: float
    branches: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """A type that holds one which cannot be made."""

    of: Plant | None = None


@dataclass(frozen=True)
class Plant:
    """A type that is in what it holds, and holds a type that is not known."""

    leaves: tuple[Leaf, ...] = ()
    soil: Unknown | None = None


def test_a_type_may_be_in_itself():
    types = Types({float: number})
    document = {"size": 2.0, "branches": [{"size": 1.0, "branches": []}]}
    assert types.of(Tree)(document, "tree") == Tree(2.0, (Tree(1.0),))
    document["branches"][0]["size"] = "x"
    with pytest.raises(FieldError, match=r"tree\.branches\.size must be a number"):
        types.of(Tree)(document, "tree")


@pytest.mark.parametrize("asked", [Plant, Leaf])
def test_nothing_is_kept_of_a_type_that_cannot_be_checked(asked):
    """The second call returned a check that called itself without end."""
    types = Types({float: number})
    for _ in range(2):
        for hint in (asked, Plant, Leaf):
            with pytest.raises(KeyError):
                types.of(hint)
    assert types.of(float)(1.5, "x") == 1.5
