"""Make pages of evidence: all of them, or some (`make evidence`).

python benchmarks                              # all tables; stops each at its time, and resumes
python benchmarks rates --runs 1000            # one, larger
python benchmarks rates did --minutes 30       # with more time
python benchmarks rates --small --folder /tmp/pages    # a few runs of a few cells, kept nowhere
python benchmarks how_good                     # the page of pictures anew, of what is on file
python benchmarks --list                       # the tables, and the minutes that each may take
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from harness import evidence, find, names
from report import RESULTS, ROOT


def main() -> int:
    asks = argparse.ArgumentParser(prog="benchmarks", description=__doc__.partition("\n")[0])
    asks.add_argument("tables", nargs="*", help="all of them by default")
    asks.add_argument("--runs", type=int, help="of each cell that has more than one")
    asks.add_argument("--minutes", type=float, help="that each table may take")
    asks.add_argument("--workers", type=int, default=2)
    asks.add_argument("--folder", type=Path, help="of the pages")
    asks.add_argument("--small", action="store_true", help="a quick look, kept nowhere")
    asks.add_argument("--list", action="store_true", help="the tables there are")
    given = asks.parse_args()
    tables = given.tables or names()
    left = {x: given.minutes or find(x).minutes for x in tables if x != "how_good"}
    if given.list:
        for name, minutes in left.items():
            print(f"{name:24} {minutes:5g} min  {find(name).title}")
        print(f"{sum(left.values()):30g} min")
        return 0
    late = []
    with tempfile.TemporaryDirectory() as place:
        more = {"small": True, "cache": Path(place), "workers": 0} if given.small else {}
        more = {"workers": given.workers, **more}
        folder = given.folder or (Path(place) if given.small else RESULTS)
        for name in sorted(left, key=lambda name: left[name]):
            rest = f"{sum(left.values()):g} with all that follow"
            print(f"{name}: at most {left[name]:g} minutes, {rest}", flush=True)
            try:
                made = evidence(name, given.runs, given.minutes, folder=folder, **more)
            except KeyboardInterrupt:
                print("Stopped. The same command goes on.")
                return 130
            except Exception:
                made = traceback.print_exc()
            if not made:
                late.append(name)
            del left[name]
    if folder == RESULTS:
        sys.path.append(str(ROOT / "docs"))
        from steps import how_good  # workers need no pictures

        how_good.write()
    if late:
        print(f"Not all runs were made of {', '.join(late)}. The same command goes on.")
    return bool(late)


if __name__ == "__main__":
    raise SystemExit(main())
