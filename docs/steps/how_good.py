"""The page "How good is it?": six pictures, and what they say, of the results on file.

`write` is called at the end of `make evidence`. The words are in how_good.md, and what is
read of which page in how_good.toml. A result or a column that is not on file is named on the page.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpeffects.report.plots import style
from steps.pages import ROOT, made_by, on_age

HERE, RESULTS = Path(__file__).parent, ROOT / "benchmarks/results"
PAGE, PICTURES = ROOT / "docs/guide/how_good.md", ROOT / "docs/_static/how_good"
DECLARED = tomllib.loads((HERE / "how_good.toml").read_text(encoding="utf-8"))
OURS, THEIRS, PLAIN = ("o", style.BLUE), ("s", style.RED), ("D", style.INK)
DESIGNS = ("trial", "observational")
Drawn = tuple[Figure, dict[str, Any]]


def read(name: str) -> Any:
    """The text of a page, or the frame of a CSV file."""
    if not (RESULTS / name).exists():
        raise LookupError(f"{name} is not on file")
    csv = name.endswith(".csv")
    return pd.read_csv(RESULTS / name) if csv else (RESULTS / name).read_text(encoding="utf-8")


def table(page: str, heading: str = "", rows: str = "", turn: bool = False) -> pd.DataFrame:
    """The first table of a page below some words; rows that have others; or rows as columns."""
    text = re.sub(r"## Promises\n\n(\|.*\n)+", "", read(f"{page}.md"))
    _, *below = re.split(rf"^#.*{heading}.*$", text, maxsplit=1, flags=re.MULTILINE)
    lines = re.search(r"(^\|.*\n)+", "".join(below), re.MULTILINE)
    if not lines:
        raise LookupError(f"no table {heading!r}")
    found = [[x.strip() for x in y.strip("|").split("|")] for y in lines[0].splitlines()]
    frame = pd.DataFrame(found[2:], columns=found[0])
    frame = frame[frame.agg(" | ".join, axis=1).str.contains(rows)]
    if frame.empty:
        raise LookupError(f"no row {rows!r}")
    return frame.set_index(frame.columns[0]).T if turn else frame


def numbers(frame: pd.DataFrame, words: str) -> pd.DataFrame:
    """The columns whose names have some words; of each cell the number that it begins with."""
    if not (kept := [x for x in frame if re.search(words, x)]):
        raise LookupError(f"no column {words!r}")
    found = frame[kept].replace(r",(?=\d{3})", "", regex=True)
    return found.apply(lambda x: x.str.extract(r"^(-?[\d.]+)")[0]).astype(float)


def covered(page: str, columns: str, **where: str) -> dict[str, Any]:
    """Coverage in %, that of the least cell, and two standard errors of so many runs."""
    frame = table(page, **where)
    cells = numbers(frame, columns)
    cells *= 100 if cells.max(axis=None) <= 1 else 1
    said = re.search(r"Runs a cell: .*?: (\d+)|(\d+) (?:runs|draws)", read(f"{page}.md"))
    if not said and "runs" not in frame:
        raise LookupError("how many runs is not said")
    each = cells.iloc[:, 0] * 0 + float(said[1] or said[2]) if said else 0
    runs = numbers(frame, "^runs$")["runs"] if "runs" in frame else each
    mark, half = np.average(cells.mean(axis=1), weights=runs), 200 * (0.0475 / runs.sum()) ** 0.5
    worst = numbers(frame, "^least") if "least" in " ".join(frame) else cells
    look = THEIRS if mark < 95 - half else OURS
    ends = (mark - half, mark + half)
    return {"mark": mark, "least": worst.min(axis=None), "look": look, "ends": ends}


def tried(page: str, tried: str, failed: str = "", held: str = "", **where: Any) -> dict[str, Any]:
    """How much was tried, and how much of it failed, or did not hold."""
    frame = table(page, **where)
    many = numbers(frame, tried).sum(axis=1)
    few = numbers(frame, failed or held).sum(axis=1)
    few = (few if failed else many - few)[many > 0].sum()
    return {"mark": many.sum(), "failed": int(few), "look": OURS, "ends": (1, many.sum())}


def each(kind: str) -> tuple[pd.DataFrame, str]:
    """A row for every entry that is declared, and a sentence on those that are not on file."""
    found, lacks = {}, []
    for name, given in DECLARED[kind].items():
        try:
            found[name] = {"covered": covered, "tried": tried}[kind](**given)
        except LookupError as missing:
            lacks.append(f"{name} ({given['page']}: {missing.args[0]})")
    return pd.DataFrame.from_dict(found, "index"), f" Missing: {'; '.join(lacks)}." * bool(lacks)


def in_rows(rows: pd.DataFrame, said: str, scale: str = "log") -> tuple[Figure, Any]:
    """A mark for each row, in its look, on a line between its ends."""
    figure = Figure((4.6, 0.9 + 0.19 * len(rows)), layout="constrained")
    ax = figure.add_subplot()
    style.rows(ax, list(rows.index))
    for y, row in enumerate(rows.itertuples()):
        ax.plot(row.ends, [y, y], color=style.FILL, zorder=0)
        ax.plot(row.mark, y, row.look[0], color=row.look[1], mfc=row.look[-1])
    ax.set(xscale=scale, xlabel=said)
    style.plain_numbers(ax.xaxis)
    return figure, ax


def in_panels(parts: dict[str, pd.DataFrame], looks: list[Any], x: str, y: str) -> Figure:
    """Lines of the columns of each part, against its index."""
    down = (len(parts) + 1) // 2
    figure = Figure((4.6, 1.2 + (1.2 if down > 1 else 2.0) * down), layout="constrained")
    across = {"squeeze": False, "sharex": True, "sharey": True}
    axes = figure.subplots(down, min(len(parts), 2), **across).ravel()
    for ax, (title, part) in zip(axes, parts.items(), strict=False):
        for column, (marker, colour) in zip(part, looks, strict=True):
            own = part[column].dropna()
            ax.plot(own.index, own, marker, color=colour, label=column)
        ax.set(xscale="log", yscale="log", title=title)
        ax.minorticks_off()
    for axis in (axes[0].xaxis, axes[0].yaxis):
        style.plain_numbers(axis)
    axes[len(parts) - 1].legend()
    for ax in axes[len(parts) :]:
        ax.set_axis_off()
    figure.supxlabel(x, fontsize=9)
    figure.supylabel(y, fontsize=9)
    return figure


def prices() -> pd.DataFrame:
    """Errors over all populations, widths over those without noise, and what is no effect."""
    groups = read("price.csv").groupby(["design", "n", "epsilon"], sort=False)
    found = groups[["error", "without privacy"]].agg(lambda x: np.sqrt(np.mean(x**2)))
    found = found.join(groups[["width", "associated"]].mean()).reset_index()
    found["size"], found["hollow"] = found["n"] * found["epsilon"], found["associated"] > 50
    return found.assign(ratio=found["error"] / found["without privacy"])


def error() -> Drawn:
    """Errors against epsilon, by n."""
    found = prices()
    wide = found.pivot(index=["design", "epsilon"], columns="n")[["error", "without privacy"]]
    wide.columns = [f"n = {n:,}" if x == "error" else f"_{n}" for x, n in wide.columns]
    parts = {x: wide.loc[x] for x in DESIGNS}
    colours = (style.RED, style.BLUE, style.INK)
    looks = [*zip(("s-", "o-", "^-"), colours, strict=True), *((":", x) for x in colours)]
    said = "root mean squared error,\nstandard deviations of the outcome"
    figure = in_panels(parts, looks, "epsilon (dotted: without privacy)", said)
    for ax, design in zip(figure.axes, DESIGNS, strict=True):
        ax.plot("epsilon", "error", "w.", data=found[found["hollow"] & (found["design"] == design)])
    one = found[found["epsilon"] == 1].groupby("design")["ratio"]
    ratios = {x: ", ".join(f"{y:.1f}" for y in own) for x, own in one}
    sizes = ", ".join(f"{x:,}" for x in found["n"].unique())
    return figure, ratios | {"sizes": sizes, "worst": top(found, "ratio")}


def coverage() -> Drawn:
    """How many intervals cover, by ability and shape of the world."""
    rows, lacks = each("covered")
    figure, ax = in_rows(rows, "95 % intervals that cover, %", "linear")
    ax.plot(rows["least"], range(len(rows)), "|", color=style.SOFT)
    ax.axvline(95, color=style.SOFT, ls=":")
    below = rows[rows["look"] == THEIRS].sort_values("mark")
    low = ", ".join(f"{x} ({y:.1f} %)" for x, y in below["mark"].items()) or "none"
    silent, cells = (
        int(numbers(table("bent", "Held out"), x).sum().iloc[0])
        for x in ("not warned", "^populations$")
    )
    said = {"rows": len(rows), "fine": len(rows) - len(below), "low": low, "lacks": lacks}
    said |= {"worst": rows["mark"].idxmin(), "least": rows.loc[rows["mark"].idxmin(), "least"]}
    said |= {"cells": cells, "silent": silent, "first": rows["mark"]["default: trials"]}
    return figure, said


def width() -> Drawn:
    """Widths over those without privacy, against n times epsilon."""
    found, near = prices().sort_values(["size", "width"]), DECLARED["near"]
    wide = pd.DataFrame({x: found["width"].where(found["design"] == x) for x in DESIGNS})
    wide.index = found["size"]
    said = "width of 95 % intervals\nover that without privacy"
    looks = [("o", style.BLUE), ("s", style.RED)]
    figure = in_panels({"": wide}, looks, "n times epsilon", said)
    figure.axes[0].axhline(1.0, color=style.SOFT, ls=":")
    figure.axes[0].plot("size", "width", "w.", data=found[found["hollow"]])
    sizes = {}
    for design, own in wide.items():
        enough = own.dropna()[::-1].cummax()[::-1] <= near
        sizes[design] = f"from {enough.idxmax():,.0f} on" if enough.any() else "at no size"
    return figure, sizes | {"near": near, "worst": top(found, "width")}


def peers() -> Drawn:
    """The leaderboard: errors over that of the best."""
    cells = read("leaderboard.csv").query("epsilon in (1, inf) and error < inf")
    cells["proved"] = (cells["guarantee"] == "exact") & (cells["level"] == "sample")
    best = cells[cells["proved"]].groupby("data")["error"].min()
    cells["ratio"] = cells["error"] / cells["data"].map(best)
    groups = cells.groupby("fit")
    rows = groups[["by", "proved"]].first()
    rows["mark"] = np.exp(np.log(cells["ratio"]).groupby(cells["fit"]).mean())
    rows["ends"] = groups["ratio"].agg(lambda x: (x.min(), x.max()))
    looks = {"dpeffects": OURS, "baseline": THEIRS, "reference": PLAIN}
    rows["look"] = [looks[x.by] if x.proved else (*looks[x.by], "white") for x in rows.itertuples()]
    rows = rows.sort_values("mark")
    figure, ax = in_rows(rows, "error over that of the best, epsilon 1")
    ax.axvline(1.0, color=style.SOFT, ls=":")
    near = (cells.query("by == 'dpeffects' and proved").groupby("data")["ratio"].min() <= 1.1).sum()
    said = {"entries": len(rows), "places": len(best), "near": near, "auto": rows["mark"]["auto"]}
    other, plain = (
        rows.query(x)["mark"] for x in ("by == 'baseline' and proved", "by == 'reference'")
    )
    said |= {"other": other.idxmin(), "theirs": other.min(), "plain": plain.min()}
    return figure, said | {"worst": top(cells[cells["fit"] == "auto"], "ratio")}


def cost() -> Drawn:
    """Processor seconds against rows, beside those of plain peers."""
    found = read("scale.csv").rename(columns={"CPU s": "private", "peer, CPU s": "plain"})
    paired = found.dropna(subset="plain").assign(ratio=lambda x: x["private"] / x["plain"])
    wide = paired.set_index(paired["records"] / 1e6)[["private", "plain"]]
    parts = {x: wide[(paired["method"] == x).to_numpy()] for x in paired["method"].unique()}
    looks = [("o-", style.BLUE), ("s--", style.INK)]
    figure = in_panels(parts, looks, "rows, millions", "processor seconds")
    large = paired[paired["records"] == paired["records"].max()]
    said = {"least": large["ratio"].min(), "median": large["ratio"].median()}
    said["peers"] = "; ".join(f"{x.method}: {x.peer}" for x in large.itertuples())
    said["alone"] = "; ".join(sorted(set(found["method"]) - set(parts))) or "none"
    return figure, said | {"worst": top(large, "ratio")}


def faults() -> Drawn:
    """What was tried to break it, and what did."""
    rows, lacks = each("tried")
    audit = read("audit.csv").query("not case.str.startswith('paper')")  # others' claims
    many, few = len(audit), int((audit["lower"] > audit["epsilon"]).sum())
    rows.loc["audits: lower bounds on epsilon"] = [many, few, OURS, (1, many)]
    rows = rows.sort_values("mark")
    figure, ax = in_rows(rows, "tried (circle), failed (square)")
    for y, (many, few) in enumerate(zip(rows["mark"], rows["failed"], strict=True)):
        ax.plot([few] * bool(few), [y] * bool(few), THEIRS[0], color=THEIRS[1])
        style.beside(ax, y, f"{few:,} of {many:,.0f}")
    bad = rows[rows["failed"] > 0]
    low = "; ".join(f"{x.failed:,} of {x.mark:,.0f}, {x.Index}" for x in bad.itertuples()) or "none"
    said = {"tried": rows["mark"].sum(), "kinds": len(rows), "fine": len(rows) - len(bad)}
    return figure, said | {"low": low, "lacks": lacks}


def top(frame: pd.DataFrame, column: str) -> dict[str, Any]:
    """The row in which a number is largest."""
    return frame.loc[frame[column].idxmax()].to_dict()


MAKERS = {make.__name__: make for make in (error, coverage, width, peers, cost, faults)}


def section(words: str, folder: Path) -> str:
    """Words with their numbers, and the picture that they show in a folder; or what is missing."""
    shown = re.search(r"(\w+)\.svg", words)
    if not shown:
        return words
    try:
        with matplotlib.style.context(["dpeffects.report.plots.pictures", {"svg.hashsalt": "1"}]):
            figure, said = MAKERS[shown[1]]()
            figure.savefig(folder / shown[0], metadata={"Date": None})
    except (LookupError, NameError) as missing:
        heading = words.splitlines()[0]
        return f"{heading}\n\n**No picture**: {missing.args[0]}.\n"
    svg = (folder / shown[0]).read_text(encoding="utf-8")
    (folder / shown[0]).write_text(re.sub(r"<!--.*?-->\n|(?<=\n) +", "", svg), encoding="utf-8")
    return words.format(**said)


def sources(text: str) -> str:
    """The page with what it was drawn from, and which of it is of earlier code."""
    pages = {x["page"] for kind in ("covered", "tried") for x in DECLARED[kind].values()}
    lines = []
    for name in sorted(pages | set(DECLARED["read"])):
        there = (RESULTS / f"{name}.md").exists()
        found = read(f"{name}.md") if there else ""
        said = {"version": "", "commit": ""} | made_by(found)
        date = (re.findall(r"\d{4}-\d\d-\d\d", found) or ["not on file"])[0]
        link = f"[{name}](../../benchmarks/results/{name}.md)" if there else name
        age = "**earlier**" if on_age(found) else "as it is now"
        lines.append(f"| {link} | {date} | {said['version']} | `{said['commit']}` | {age} |\n")
    told = f"{sum('earlier' in x for x in lines)} of {len(lines)} tables are of earlier code.\n\n"
    told += "| table | made | version | commit | code |\n| --- | --- | --- | --- | --- |\n"
    block = r"(?<=<!-- sources -->\n).*(?=<!-- end -->)"
    return re.sub(block, lambda _: told + "".join(lines), text, flags=re.DOTALL)


def write() -> None:
    """Make the page and its pictures."""
    PICTURES.mkdir(exist_ok=True)
    words = (HERE / "how_good.md").read_text(encoding="utf-8").split("\n## ")
    made = sources("\n## ".join(section(x, PICTURES) for x in words))
    PAGE.write_text(made, encoding="utf-8")
