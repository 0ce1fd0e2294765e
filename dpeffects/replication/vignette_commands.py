"""The commands demo, synthetic-setup and vignette.

``dpeffects demo``: a whole study on bundled data, command by command, as demo.toml has them.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpeffects.cli.arguments import in_a_shell
from dpeffects.cli.commands import Command
from dpeffects.datasets import load_data
from dpeffects.errors import DPEffectsError, OptionError
from dpeffects.files import toml_key
from dpeffects.replication.unproved.generators import environment as generators
from dpeffects.replication.vignettes import list_vignettes, run_vignette, vignette_path

_DEMO = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))


def demo(parser: Any, *, folder: str | None = None, seed: int | None = None) -> None:
    """Run a whole study on bundled data, and explain it.

    Parameters
    ----------
    folder
        Work there and leave the files; default: a new one, gone.
    seed
        The same numbers every time.

    In a shell::

        dpeffects demo
        dpeffects demo --folder study
    """
    if seed is not None and seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {seed}")
    with _folder(folder) as place, contextlib.chdir(place):
        _write_files(_DEMO["columns"])
        for number, step in enumerate(_DEMO["steps"], 1):
            line = step["line"] + (
                f" --seed {seed}" if "seeded" in step and seed is not None else ""
            )
            print(textwrap.fill(f"{number}. {step['about']}", 80))
            print(f"\n$ dpeffects {line}", flush=True)
            try:
                typed = parser.parse_args(shlex.split(line.replace("\\\n", "")))
                typed.run(typed)
            except DPEffectsError as error:
                print(f"dpeffects: {error}")
            print()
    if folder is None:
        print("The files are gone. To read smoking.html: dpeffects demo --folder study")
    else:
        print(f"The files are in {folder}; smoking.html has everything about the effect.")


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


def _write_files(names: Mapping[str, str]) -> None:
    births = load_data("birthweight")
    births.frame[list(names)].rename(columns=names).to_csv("births.csv", index=False)
    entries = ["[bounds]"]
    for old, new in list(names.items())[1:]:
        low, high = births.bounds.interval(old)
        flag = (low, high) == (0.0, 1.0)
        declared = "{levels = [false, true]}" if flag else f"{{range = [{low:g}, {high:g}]}}"
        entries.append(f"{toml_key(new)} = {declared}")
    Path("bounds.toml").write_text("\n".join([*entries, ""]), encoding="utf-8")


def synthetic_setup() -> str:
    """Make the environment that method synthetic needs.

    In a shell::

        dpeffects synthetic-setup
        DPEFFECTS_GENERATORS=/opt/dpmm dpeffects synthetic-setup
    """
    place = f"{generators.LIBRARY} in {generators.folder()}"
    print(f"Installing {place} (about 500 MB) ...", flush=True)
    generators.make()
    return 'Ready: dp_ate(..., method="synthetic", accept_library=True)'


def vignette(
    name: str | None = None,
    *,
    source: bool = False,
    figures: str = ".",
    full: Sequence[str] | None = None,
) -> str | None:
    """List the vignettes, run one and save its figures, or print its script.

    Parameters
    ----------
    name
        The vignette to run; none: list them.
    source
        Print the script, do not run it.
    figures
        Where to save figures.
    full
        Make the tables on file anew, which takes long: all, or those named.

    In a shell::

        dpeffects vignette
        dpeffects vignette weighting --figures pictures
        dpeffects vignette weighting --source > weighting.py
    """
    if name is None:
        titles = list_vignettes()["title"]
        width = max(map(len, titles.index))
        return "\n".join(f"{name:{width}}  {title}" for name, title in titles.items())
    if source:
        return vignette_path(name).read_text(encoding="utf-8").removesuffix("\n")
    run_vignette(name, figures, None if full is None else tuple(full))
    return None


COMMANDS = (
    Command("demo", demo, output=None, **in_a_shell("demo")),
    Command("synthetic-setup", synthetic_setup, output=None),
    Command("vignette", vignette, output=None, **in_a_shell("vignette")),
)
