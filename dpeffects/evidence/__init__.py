"""What shows how far the package can be trusted: audits, the leaderboard and simulations."""
