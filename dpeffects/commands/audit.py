"""``dpeffects audit``: attack a method and bound its true epsilon from below."""

from __future__ import annotations

import argparse
import inspect

from dpeffects.auditing import audit
from dpeffects.commands.inputs import settings
from dpeffects.commands.shared import Command, check_files, output_arguments, put, render


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("method", help="one of dpeffects methods, r_learner or dr_learner")
    add("--epsilon", required=True, type=float, help="what is promised")
    add("--delta", type=float, default=0.0, help="default 0")
    add("--level", choices=["sample", "label"], help="what is private; default the method's")
    add("--estimand", choices=["ATE", "ATT", "ATC", "CATE"], default="ATE", help="default ATE")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the method")
    add("--share", action="append", default=[], metavar="NAME=VALUE", help="of the budget")
    add("--no-variance", action="store_true", help="spend nothing on the variance")
    add = parser.add_argument_group("attack").add_argument
    add("--runs", type=int, default=20_000, help="default 20000; shows 0.93 of an epsilon of 1")
    add("--workers", type=int, default=1, help="processes; default 1")
    names = ("--conf-level", "--confidence")
    add(*names, type=float, default=0.95, metavar="LEVEL", help="of the bound; default 0.95")
    add("--watch", choices=["releases", "returned"], default="releases", help="what is seen")
    add("--noise", choices=["seeded", "secure"], default="seeded", help="seeded is faster")
    add("--seed", type=int, help="makes the audit reproducible")
    output_arguments(parser, level=False)


def run(given: argparse.Namespace) -> int:
    """Attack, show, and return 1 where the promise is broken."""
    check_files(given, given.out)
    names = ["epsilon", "delta", "level", "estimand"]
    names += ["runs", "workers", "conf_level", "watch", "noise", "seed"]
    wanted = settings(given.option, "option", inspect.signature(audit).parameters)
    wanted |= {name: getattr(given, name) for name in names}
    if given.share:
        wanted["shares"] = settings(given.share, "share")
    found = audit(given.method, variance=not given.no_variance, **wanted)
    put(given, render(given, found.summary, found.to_dict), repr(found))
    return 1 if found.violated else 0


COMMAND = Command(
    "audit",
    "attack a method on neighbouring data and bound its true epsilon from below",
    arguments,
    run,
    """\
  dpeffects audit private_psm --level sample --epsilon 1 --workers 2
  dpeffects audit diff_in_means --epsilon 1 --format json --seed 1

exit code: 0 the bound is at most epsilon, 1 VIOLATED, 2 it could not be run
""",
)
