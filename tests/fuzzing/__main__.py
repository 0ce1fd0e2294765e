"""One case, with what it was and how it ended: `python -m tests.fuzzing 1234`."""

import sys

from tests.fuzzing.limits import outcomes

number = int(sys.argv[1])
found = outcomes(range(number, number + 1))[0]
print(f"{found.call}\n\n{found.end}\n{found.detail}")
sys.exit(not found.good)
