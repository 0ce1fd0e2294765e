"""Runs scripts in processes of their own that need not load libraries again.

It is a program: it loads what most scripts load, reads a script and a folder from each line of its
input, runs the script in a fork of itself, in that folder, and answers with a line that has the
exit code. What a script prints is in a file beside the folder, with the suffix ``.printed``. The
package itself is loaded by each script anew, as by a user's.
"""

import json
import os
import runpy
import sys
import traceback
from importlib import import_module
from pathlib import Path

LIBRARIES = ["formulaic", "matplotlib.pyplot", "narwhals", "opendp.prelude", "pandas"]
LIBRARIES += ["scipy.optimize", "scipy.stats"]


def run(script: str, folder: str) -> None:
    """Run a script in a folder, as ``python script`` would."""
    printed = os.open(Path(folder).with_suffix(".printed"), os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.chdir(folder)
    sys.argv, sys.path[0] = [script], str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def forked(script: str, folder: str) -> int:
    """Return the exit code of a script that runs in a fork."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        run(script, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in LIBRARIES:
        import_module(name)
    for line in sys.stdin:
        print(forked(*json.loads(line)), flush=True)
