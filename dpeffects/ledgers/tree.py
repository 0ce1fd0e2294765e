"""Which entry is the newest of a call or a request: a tree whose nodes are kept in the entries.

A node leads from the next letter of a key to the number of the entry that holds the node below; the
lowest nodes lead from whole keys to the entries that are looked for. An entry that changes the tree
holds the nodes on the way down in their new form, and the others stay where they are. So entries
are small however many calls are open and requests were made. The newest entry has the number of the
topmost node under its digest: damage cannot hide what the tree holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

Node = Mapping[str, int]
Nodes = Mapping[str, Node]
"""Nodes by their places: the letters that lead there."""
Read = Callable[[int, str], Node]
"""Returns the node of a place from the entry with a number."""

DEPTH = 3
"""Letters before the lowest nodes: 4,096 of them, with 2 or 3 keys each at 10,000 requests."""


def key_of(dataset: str, name: int | str) -> str:
    """Return the key of a call or a request of a dataset."""
    return hashlib.sha256(json.dumps([dataset, name]).encode()).hexdigest()[:32]


def find(read: Read, top: int, key: str) -> int:
    """Return the number of the entry that a key leads to, or 0."""
    for place, step in _path(key):
        top = read(top, place).get(step, 0) if top else 0
    return top


def leaves(read: Read, top: int, place: str = "") -> Iterator[int]:
    """Return the numbers of all entries that keys lead to."""
    for step, number in read(top, place).items() if top else ():
        yield from leaves(read, number, place + step) if len(place) < DEPTH else (number,)


def changed(read: Read, top: int, key: str, number: int, keep: bool) -> tuple[Nodes, int]:
    """Let a key lead to the new entry ``number``, or nowhere; return its nodes and the new top."""
    nodes: dict[str, dict[str, int]] = {}
    path = _path(key)
    for place, step in path:
        nodes[place] = dict(read(top, place)) if top else {}
        top = nodes[place].pop(step, 0)
    below = number if keep else 0
    for place, step in reversed(path):
        if below:
            nodes[place][step] = below
        below = number if nodes[place] else 0
    return {place: node for place, node in nodes.items() if node}, below


def _path(key: str) -> list[tuple[str, str]]:
    steps = [(key[:depth], key[depth]) for depth in range(DEPTH)]
    return [*steps, (key[:DEPTH], key)]
