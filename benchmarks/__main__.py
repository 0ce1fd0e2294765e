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
import tempfile
from pathlib import Path

from harness import evidence, find, names
from report import RESULTS


def main() -> None:
    asks = argparse.ArgumentParser(prog="benchmarks", description=__doc__.partition("\n")[0])
    asks.add_argument("tables", nargs="*", help="all of them by default")
    asks.add_argument("--runs", type=int, help="of each cell that has more than one")
    asks.add_argument("--minutes", type=float, help="that each table may take")
    asks.add_argument("--workers", type=int, default=2)
    asks.add_argument("--folder", type=Path, help="of the pages")
    asks.add_argument("--small", action="store_true", help="a quick look, kept nowhere")
    asks.add_argument("--list", action="store_true", help="the tables there are")
    given = asks.parse_args()
    tables = given.tables or sorted(names(), key=lambda name: find(name).minutes)
    tables = [x for x in tables if x != "how_good"]  # it is made of the others, at the end
    if given.list:
        for name in tables:
            print(f"{name:24} {find(name).minutes:5g} min  {find(name).title}")
        print(f"{sum(find(name).minutes for name in tables):30g} min")
        return
    late = []
    with tempfile.TemporaryDirectory() as place:
        more = {"small": True, "cache": Path(place), "workers": 0} if given.small else {}
        more = {"workers": given.workers, **more}
        folder = given.folder or (Path(place) if given.small else RESULTS)
        for name in tables:
            if not evidence(name, given.runs, given.minutes, folder=folder, **more):
                late.append(name)
    if folder == RESULTS:
        from how_good import write  # workers need no pictures

        write()
    if late:
        print(f"Stopped before all runs were made: {', '.join(late)}. The same command goes on.")


if __name__ == "__main__":
    main()
