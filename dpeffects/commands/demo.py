"""``dpeffects demo``: a whole study on bundled data, command by command."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dpeffects.commands.shared import Command
from dpeffects.datasets import load_data
from dpeffects.errors import DPEffectsError, OptionError
from dpeffects.files import toml_key

_FORMULA = '"earnings_1978 ~ treatment | age + education + no_degree"'
_ESTIMATE = f"""\
ate {_FORMULA} lalonde.csv \\
    --epsilon 1 --bounds bounds.toml --ledger study.db --dataset nsw"""


class Step(NamedTuple):
    """A command, and what it is for; ``seeded`` ones can be made reproducible."""

    about: str
    line: str
    seeded: bool = False


STEPS = (
    Step(
        "lalonde.csv has 445 people: some were drawn by lot for a training programme (treatment), "
        "and we know what they earned later (earnings_1978). Private methods need to know what a "
        "value could be. A template with the names starts the file of bounds; no row is read.",
        "bounds-template lalonde.csv",
    ),
    Step(
        "bounds.toml is that template filled in, from what the variables mean. Before anything is "
        "spent, a plan says what the budget buys. It touches no data.",
        f"plan {_FORMULA} \\\n    --n 445 --epsilon 1 --bounds bounds.toml --method private_aipw",
    ),
    Step(
        "A ledger keeps account of all releases from these data, for good: 1.5 in total.",
        "ledger create study.db --dataset nsw --epsilon 1.5",
    ),
    Step(
        "Now the effect, for an epsilon of 1. The ledger is charged before noise is drawn.",
        _ESTIMATE,
        seeded=True,
    ),
    Step("What is left:", "ledger list study.db"),
    Step("Asking again for as much is refused, and costs nothing.", _ESTIMATE),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--folder", help="work there and leave the files; default: a new one, gone")
    parser.add_argument("--seed", type=int, help="the same numbers every time")


def run(given: argparse.Namespace) -> None:
    """Run each step in the folder, as a user would type it."""
    from dpeffects.commands import parser

    if given.seed is not None and given.seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {given.seed}")
    with _folder(given.folder) as folder, contextlib.chdir(folder):
        _write_files()
        for number, step in enumerate(STEPS, 1):
            seed = f" --seed {given.seed}" if step.seeded and given.seed is not None else ""
            line = step.line + seed
            print(textwrap.fill(f"{number}. {step.about}", 80))
            print(f"\n$ dpeffects {line}", flush=True)
            try:
                asked = parser().parse_args(shlex.split(line.replace("\\\n", "")))
                asked.run(asked)
            except DPEffectsError as error:
                print(f"dpeffects: {error}")
            print()
    if given.folder is not None:
        print(f"The files are in {given.folder}.")


@contextlib.contextmanager
def _folder(wanted: str | None) -> Iterator[str]:
    if wanted is None:
        with tempfile.TemporaryDirectory() as made:
            yield made
        return
    folder = Path(wanted)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a path"
        raise OptionError(f"--folder: {wanted} cannot be used: {why}") from None
    if taken:
        raise OptionError(f"--folder: {wanted} is not empty")
    yield wanted


def _write_files() -> None:
    nsw = load_data("lalonde")
    nsw.frame.to_csv("lalonde.csv", index=False)
    entries = (
        f"{toml_key(name)} = {{range = [{low:g}, {high:g}]}}"
        for name in nsw.bounds
        for low, high in [nsw.bounds.interval(name)]
        if name != "treatment"
    )
    Path("bounds.toml").write_text("\n".join(["[bounds]", *entries, ""]), encoding="utf-8")


COMMAND = Command(
    "demo",
    "run a whole study on bundled data, and explain it",
    arguments,
    run,
    "  dpeffects demo\n  dpeffects demo --folder study\n",
)
