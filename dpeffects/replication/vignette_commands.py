"""The commands synthetic-setup and vignette."""

from __future__ import annotations

from collections.abc import Sequence

from dpeffects.cli.arguments import in_a_shell
from dpeffects.cli.commands import Command
from dpeffects.replication.unproved.generators import environment as generators
from dpeffects.replication.vignettes import list_vignettes, run_vignette, vignette_path


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
    Command("synthetic-setup", synthetic_setup, output=None),
    Command("vignette", vignette, output=None, **in_a_shell("vignette")),
)
