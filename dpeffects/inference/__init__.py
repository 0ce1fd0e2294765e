"""From released numbers to intervals and tests."""
