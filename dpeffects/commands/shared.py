"""What commands share: how they are described, common arguments, and how results go out."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dpeffects import writing
from dpeffects.commands.inputs import require_files, settings
from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.files import read_bounds

if TYPE_CHECKING:
    from dpeffects.results.record import Reported
    from dpeffects.summary import Summary


class Command(NamedTuple):
    """A subcommand: name, what it does, arguments, the function that runs it, and examples.

    What ``run`` returns is the exit code; None is 0.
    """

    name: str
    about: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]
    examples: str = ""


class Parser(argparse.ArgumentParser):
    """No abbreviations; errors on one line, without the usage."""

    def __init__(self, **given: Any) -> None:
        given |= {"formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**given, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look."""
        self.exit(2, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def one_line(message: str, most: int = 1000) -> str:
    """Return a message on one line, and not endless."""
    line = " ".join(message.split())
    return line if len(line) <= most else f"{line[:most]} ..."


# --- arguments of a private estimate ----------------------------------------------------------


def data_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the formula and the data."""
    parser.add_argument("formula", help='"outcome ~ treatment | covariates"')
    parser.add_argument("data", help="a .csv, .csv.gz or .parquet file; its rows go nowhere")


def budget_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the price of a release and who keeps account of it."""
    add = parser.add_argument_group("privacy").add_argument
    add("--epsilon", required=True, type=float, help="the whole price of this call")
    add("--delta", type=float, default=0.0, help="default 0: pure differential privacy")
    add("--bounds", metavar="FILE", help="TOML; dpeffects bounds-template starts one")
    add("--share", action="append", default=[], metavar="NAME=VALUE", help="of the budget")
    add("--ledger", metavar="FILE", help="charge this ledger too (file or URL); it may refuse")
    add("--dataset", metavar="NAME", help="which dataset's budget in the ledger")
    add("--seed", type=int, help="reproducible noise; the result is not private then")


def method_arguments(
    parser: argparse.ArgumentParser, default: str = "private_aipw", *, level: bool = True
) -> None:
    """Add the method and its options."""
    add = parser.add_argument_group("method").add_argument
    add("--method", default=default, help=f"default {default}; see dpeffects methods")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the method")
    add("--no-variance", action="store_true", help="spend nothing on the variance; no interval")
    if level:
        add("--level", choices=["sample", "label"], help="what is private; default the method's")


def call_arguments(given: argparse.Namespace, *functions: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword arguments for functions like `dp_ate`, beside formula and data.

    What they have as parameters of their own is no option of a method.
    """
    taken = {name for function in functions for name in inspect.signature(function).parameters}
    wanted = settings(given.option, "option", taken)
    wanted |= budgeted(given) | {"method": given.method, "variance": not given.no_variance}
    return wanted if getattr(given, "level", None) is None else wanted | {"level": given.level}


def budgeted(given: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments that say what is paid, by whom, and what is declared."""
    names = ("epsilon", "delta", "ledger", "dataset", "seed")
    wanted = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if given.share:
        wanted["shares"] = settings(given.share, "share")
    if given.bounds is not None:
        wanted["bounds"] = read_bounds(given.bounds)
    return wanted


def conf_level(text: str) -> float:
    """Read a confidence level; argparse says what is wrong with it."""
    value = float(text)
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"it must be between 0 and 1, got {text}")
    return value


# --- what goes out ----------------------------------------------------------------------------

RENDERERS: dict[str, Callable[[Summary], str]] = {
    "text": lambda summary: summary.as_text(),
    "html": lambda summary: summary.as_html(standalone=True),
    "latex": lambda summary: summary.as_latex(),
    "markdown": lambda summary: summary.as_markdown(),
}
FORMATS = ("text", "json", "html", "latex", "markdown")
_PLOTS = (".png", ".pdf", ".svg")
_ENDINGS = {".json": "json", ".html": "html", ".tex": "latex", ".md": "markdown"}


def output_arguments(
    parser: argparse.ArgumentParser, formats: tuple[str, ...] = FORMATS, *, level: bool = True
) -> Callable[..., argparse.Action]:
    """Add format and file; return the function that adds more of their kind."""
    add = parser.add_argument_group("output").add_argument
    about = "default: by the ending of --out, else text"
    add("--format", choices=formats, help=about)
    add("--out", metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="overwrite files")
    if level:
        add("--conf-level", type=conf_level, default=0.95, metavar="LEVEL", help="default 0.95")
    return add


_INPUTS = ("data", "bounds", "ledger", "at", "sign", "path", "trust", "releases")
"""Arguments that name files to read."""


def check_files(given: argparse.Namespace, *paths: str | None) -> None:
    """Refuse inputs that are no files, and outputs that exist, are inputs or cannot be written."""
    require_files(_inputs(given))
    wanted = [path for path in paths if path is not None]
    for path in wanted:
        writing.check(path, overwrite=given.force, inputs=_inputs(given), force="--force")
    writing.check_apart(wanted)


def _inputs(given: argparse.Namespace) -> list[str]:
    found: list[str] = []
    for name in _INPUTS:
        value = getattr(given, name, None)
        found += value if isinstance(value, list) else [] if value is None else [value]
    folder = getattr(given, "trust", None)
    return found + ([] if folder is None else [str(Path(folder) / "*.pem")])


def _write(given: argparse.Namespace, path: str, content: str | bytes) -> None:
    writing.write(path, content, overwrite=given.force, inputs=_inputs(given), force="--force")


def record_argument(add: Callable[..., argparse.Action]) -> None:
    """Add the record for a review board."""
    add("--record", metavar="FILE.html", help="write the record for a review board, and its JSON")


def record_files(path: str | None) -> tuple[str, ...]:
    """Return the files of a record: the page, and its JSON twin."""
    if path is None:
        return ()
    if Path(path).suffix.lower() != ".html":
        raise OptionError(f"--record takes the name of an .html file, got {path!r}")
    from dpeffects.report.review_record import twin_of

    return path, str(twin_of(Path(path)))


def put_record(given: argparse.Namespace, fit: Reported) -> None:
    """Write the record of a result where it is asked for."""
    if given.record is not None:
        check_files(given, *record_files(given.record))
        level = getattr(given, "conf_level", 0.95)
        fit.report(given.record, conf_level=level, overwrite=given.force)


def plot_files(path: str | None) -> tuple[str, ...]:
    """Return the file of a plot, if one is asked for and can be drawn."""
    if path is None:
        return ()
    if Path(path).suffix.lower() not in _PLOTS:
        raise OptionError(f"--plot takes a file that ends in {', '.join(_PLOTS)}, got {path!r}")
    if find_spec("matplotlib") is None:
        raise MissingExtraError('plots need matplotlib: pip install "dpeffects[plot]"')
    return (path,)


def put_plot(given: argparse.Namespace, draw: Callable[[], Any]) -> None:
    """Write the figure of the axes that ``draw`` returns where it is asked for."""
    if given.plot is not None:
        drawn, kind = BytesIO(), Path(given.plot).suffix.lower().lstrip(".")
        draw().figure.savefig(drawn, format=kind, dpi=150, bbox_inches="tight")
        _write(given, given.plot, drawn.getvalue())
        print(f"plot written to {given.plot}")


def render(given: argparse.Namespace, summary: Callable[[], Summary], plain: Any) -> str:
    """Return a result in the format asked for; ``plain`` gives what JSON is made of."""
    ending = "" if given.out is None else Path(given.out).suffix.lower()
    kind = given.format or _ENDINGS.get(ending, "text")
    if kind == "json":
        return json.dumps(plain(), indent=2, allow_nan=False, ensure_ascii=False)
    return RENDERERS[kind](summary())


def put(given: argparse.Namespace, text: str, what: str) -> None:
    """Print a text, or write it to the file asked for; what was paid for is never lost."""
    if given.out is None:
        print(text)
        return
    try:
        _write(given, given.out, text.rstrip("\n") + "\n")
    except OptionError as error:
        print(text)
        raise OptionError(f"{error}; printed instead") from None
    print(f"{what} written to {given.out}")
