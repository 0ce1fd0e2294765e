"""The command line: ``dpeffects release``, ``combine``, ``keygen``. One function a command.

A command is a pair of functions, one that adds its arguments and one that runs; `COMMANDS` lists
them. What can go wrong is one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dpeffects import ledger_commands
from dpeffects.errors import BoundsError, DataError, DPEffectsError, OptionError, ReleaseError
from dpeffects.sites import combine, site_release
from dpeffects.sites.release import ESTIMATORS
from dpeffects.sites.rules import RULES

if TYPE_CHECKING:
    import pandas as pd


class Command(NamedTuple):
    """A subcommand: its name, what it does, its arguments, and the function that runs it."""

    name: str
    about: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


class _Parser(argparse.ArgumentParser):
    """Errors on one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = _Parser(prog="dpeffects", description="Differentially private treatment effects.")
    commands = parser.add_subparsers(metavar="command", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(command.name, help=command.about, description=command.about)
        command.arguments(sub)
        sub.set_defaults(run=command.run)
    ledger_commands.add_commands(commands)
    try:
        given = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    return _guarded(given)


def _guarded(given: argparse.Namespace) -> int:
    try:
        given.run(given)
        sys.stdout.flush()
    except DPEffectsError as error:
        return _fail(str(error))
    except BrokenPipeError:  # the reader of a pipe left early, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted") or 130
    except Exception as error:
        return _fail(f"unexpected {type(error).__name__}: {error}")
    return 0


def _fail(message: str) -> int:
    print(f"dpeffects: {' '.join(message.split())}", file=sys.stderr)
    return 2


# --- release ----------------------------------------------------------------------------------


def _release_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("formula", help='"outcome ~ treatment | covariates"')
    add("data", help="a CSV or Parquet file; it is read here and goes nowhere")
    add("--site", required=True, help="name of this site")
    add("--epsilon", required=True, type=float, help="privacy budget of this release")
    add("--delta", type=float, default=0.0)
    add("--method", help="one of dpeffects.methods(); default private_aipw")
    add("--estimand", choices=list(ESTIMATORS), default="ATE")
    add("--level", choices=["sample", "label"], help="what is private; default the method's")
    add("--bounds", metavar="FILE", help="TOML: [bounds], y = {range = [0, 1]}, g = {levels = []}")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the method")
    add("--share", action="append", default=[], metavar="NAME=VALUE", help="of the budget")
    add("--no-variance", action="store_true", help="spend nothing on the variance")
    add("--seed", type=int, help="reproducible noise; the release is not private then")
    add("--request", default="", help="identifier of the request that this answers")
    add("--sign", metavar="KEY", help="private key of this site (PEM)")
    add("--out", metavar="FILE", help="where to write the release; default: print it")
    add("--force", action="store_true", help="overwrite FILE")


def _release(given: argparse.Namespace) -> None:
    """Check everything that can fail before the budget is spent; then release, sign and save."""
    sign = _signer(given.sign)
    _check_out(given.out, given.force)
    arguments = _settings(given.option, "option")
    for name, value in (("method", given.method), ("level", given.level), ("seed", given.seed)):
        if value is not None:
            arguments[name] = value
    if given.share:
        arguments["shares"] = _settings(given.share, "share")
    if given.no_variance:
        arguments["variance"] = False
    release = sign(
        site_release(
            given.formula,
            _read_data(given.data),
            site=given.site,
            estimand=given.estimand,
            request=given.request,
            epsilon=given.epsilon,
            delta=given.delta,
            bounds=None if given.bounds is None else read_bounds(given.bounds),
            **arguments,
        )
    )
    if given.out is None:
        print(release.to_json())
    else:
        release.save(given.out)
        print(f"{release!r} written to {given.out}")


def _signer(key: str | None) -> Callable[[Any], Any]:
    """Return what signs a release; a key that cannot be read is an error now."""
    if key is None:
        return lambda release: release
    from dpeffects.sites.signing import read_private, sign

    private = read_private(key)
    return lambda release: sign(release, private)


def _check_out(path: str | None, force: bool) -> None:
    if path is None:
        return
    if not Path(path).absolute().parent.is_dir():
        raise OptionError(f"--out: the folder of {path} does not exist")
    if Path(path).exists() and not force:
        raise OptionError(f"--out: {path} exists; another name, or --force to overwrite it")


def _settings(pairs: Sequence[str], what: str) -> dict[str, Any]:
    """Read NAME=VALUE pairs; values are written as in TOML, or as plain words."""
    import tomllib

    made = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"--{what} takes NAME=VALUE, got {pair!r}")
        try:
            made[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            made[name.strip()] = text.strip()
    return made


def read_bounds(path: str) -> dict[str, Any]:
    """Read declared bounds from a TOML file.

    ``[bounds]`` holds ``age = {range = [18, 90]}`` for a range and
    ``region = {levels = ["N", "S"]}`` for levels.
    """
    import tomllib

    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BoundsError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BoundsError(f"{path} is not TOML: {error}") from None
    table = found.get("bounds")
    if set(found) != {"bounds"} or not isinstance(table, dict):
        raise BoundsError(f"{path} must hold one table, [bounds]")
    return {name: _bound(name, entry) for name, entry in table.items()}


def _bound(name: str, entry: Any) -> Any:
    kinds = {"range": tuple, "levels": list}
    if isinstance(entry, dict) and len(entry) == 1:
        kind, values = next(iter(entry.items()))
        if kind in kinds and isinstance(values, list):
            return kinds[kind](values)
    raise BoundsError(
        f'bounds of {name!r}: write {name} = {{range = [0, 1]}} or {name} = {{levels = ["a", "b"]}}'
    )


def _read_data(path: str) -> pd.DataFrame:
    import pandas as pd

    name = path.lower()
    try:
        if name.endswith((".parquet", ".pq")):
            return pd.read_parquet(path)
        if name.endswith((".csv", ".csv.gz")):
            return pd.read_csv(path)
    except ImportError:
        raise DataError("reading Parquet needs pyarrow: pip install pyarrow") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # of the parser, about the file
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    raise DataError(f"{path}: data is a .csv, .csv.gz or .parquet file")


# --- combine ----------------------------------------------------------------------------------


def _combine_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("releases", nargs="+", metavar="FILE", help="site releases")
    add("--rule", choices=list(RULES), default="mvagg")
    add("--conf-level", type=float, default=0.95)
    add("--trust", metavar="FOLDER", help="public keys, SITE.pem: refuse what they did not sign")
    add("--left-out", action="append", default=[], metavar="SITE=REASON", help="did not answer")
    add("--json", action="store_true", help="print JSON instead of the summary")
    add("--out", metavar="FILE", help="also write there: JSON if it ends in .json, else text")


def _combine(given: argparse.Namespace) -> None:
    absent = dict(pair.partition("=")[::2] for pair in given.left_out)
    fit = combine(
        given.releases,
        given.rule,
        conf_level=given.conf_level,
        trust=given.trust,
        left_out=absent,
    )
    if given.out is not None:
        text = fit.to_json() if given.out.lower().endswith(".json") else str(fit.summary())
        try:
            Path(given.out).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise ReleaseError(f"{given.out} cannot be written: {error.strerror}") from None
    print(fit.to_json() if given.json else fit.summary())


# --- keygen -----------------------------------------------------------------------------------


def _keygen_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", help="name of the site")
    parser.add_argument("--folder", default=".", help="where to write the two files")


def _keygen(given: argparse.Namespace) -> None:
    from dpeffects.sites.signing import make_keys

    private, public = make_keys(given.site, given.folder)
    print(f"{private}: keep it here, it signs releases (dpeffects release --sign)")
    print(f"{public}: send it to the centre (dpeffects combine --trust)")


COMMANDS = (
    Command("release", "release a site's effect, without its data", _release_arguments, _release),
    Command("combine", "combine the releases of several sites", _combine_arguments, _combine),
    Command("keygen", "make a key pair for a site", _keygen_arguments, _keygen),
)


if __name__ == "__main__":
    sys.exit(main())
