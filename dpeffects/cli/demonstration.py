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

from dpeffects.cli.commands import Command
from dpeffects.datasets import load_data
from dpeffects.errors import DPEffectsError, OptionError
from dpeffects.files import toml_key

_COLUMNS = {
    "treatment": "smoked",
    "outcome": "weight",
    "mage": "age",
    "medu": "education",
    "married": "married",
    "first_baby": "first_baby",
    "prenatal_first_trimester": "early_care",
}
"""Columns of the data set `birthweight`, and their names in births.csv."""
_FORMULA = '"weight ~ smoked | age + education + married + first_baby + early_care"'
_ESTIMATE = f"""\
ate {_FORMULA} \\
    births.csv --epsilon 1 --bounds bounds.toml --ledger study.db --dataset births"""


class Step(NamedTuple):
    """A command, and what it is for; ``seeded`` ones can be made reproducible."""

    about: str
    line: str
    seeded: bool = False


STEPS = (
    Step(
        "births.csv has 4,642 births: whether the mother smoked, the baby's weight in grams, and "
        "in what else the mothers differ. Private methods need to know what a value could be. A "
        "template with the names starts the file of bounds; no row is read.",
        "bounds-template births.csv",
    ),
    Step(
        "bounds.toml is that template filled in, from what the variables mean. Before anything is "
        "spent, a plan says what the budget buys. It touches no data: that about a fifth of "
        "mothers smoked, and what babies weigh, is known from elsewhere.",
        f"plan {_FORMULA} \\\n    --n 4642 --epsilon 1 --bounds bounds.toml --method auto "
        "\\\n    --share-treated 0.2 --outcome-mean 3400 --outcome-sd 550",
    ),
    Step(
        "A ledger keeps account of all releases from these data, for good: 1.5 in total.",
        "ledger create study.db --dataset births --epsilon 1.5",
    ),
    Step(
        "Now the effect, for an epsilon of 1, adjusted for what else differs. The ledger is "
        "charged before noise is drawn. Without privacy it would be -231 grams, give or take 46, "
        "and -275 if nothing were adjusted for. The whole summary, with all charges, is in the "
        "record.",
        f"{_ESTIMATE} \\\n    --short --record smoking.html",
        seeded=True,
    ),
    Step("What is left:", "ledger list study.db"),
    Step("Asking again for as much is refused, and costs nothing.", _ESTIMATE),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder and the seed."""
    parser.add_argument("--folder", help="work there and leave the files; default: a new one, gone")
    parser.add_argument("--seed", type=int, help="the same numbers every time")


def run(args: argparse.Namespace) -> None:
    """Run each step in the folder, as a user would type it."""
    if args.seed is not None and args.seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {args.seed}")
    with _folder(args.folder) as folder, contextlib.chdir(folder):
        _write_files()
        for number, step in enumerate(STEPS, 1):
            seed = f" --seed {args.seed}" if step.seeded and args.seed is not None else ""
            line = step.line + seed
            print(textwrap.fill(f"{number}. {step.about}", 80))
            print(f"\n$ dpeffects {line}", flush=True)
            try:
                typed = args.parser.parse_args(shlex.split(line.replace("\\\n", "")))
                typed.run(typed)
            except DPEffectsError as error:
                print(f"dpeffects: {error}")
            print()
    if args.folder is None:
        print("The files are gone. To read smoking.html: dpeffects demo --folder study")
    else:
        print(f"The files are in {args.folder}; smoking.html has everything about the effect.")


@contextlib.contextmanager
def _folder(path: str | None) -> Iterator[str]:
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        is_empty = not any(Path(path).iterdir())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise OptionError(f"--folder: {path} cannot be used: {reason}") from None
    if not is_empty:
        raise OptionError(f"--folder: {path} is not empty")
    yield path


def _write_files() -> None:
    births = load_data("birthweight")
    births.frame[list(_COLUMNS)].rename(columns=_COLUMNS).to_csv("births.csv", index=False)
    ranges = ((new, *births.bounds.interval(old)) for old, new in list(_COLUMNS.items())[1:])
    entries = (f"{toml_key(name)} = {_declared(low, high)}" for name, low, high in ranges)
    Path("bounds.toml").write_text("\n".join(["[bounds]", *entries, ""]), encoding="utf-8")


def _declared(low: float, high: float) -> str:
    flag = (low, high) == (0.0, 1.0)
    return "{levels = [false, true]}" if flag else f"{{range = [{low:g}, {high:g}]}}"


COMMANDS = (
    Command(
        "demo",
        "run a whole study on bundled data, and explain it",
        add_arguments,
        run,
        "  dpeffects demo\n  dpeffects demo --folder study\n",
    ),
)
