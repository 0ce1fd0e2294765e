"""``python -m dpeffects`` is the command ``dpeffects``."""

import sys

from dpeffects.cli import main

if __name__ == "__main__":
    sys.exit(main())
