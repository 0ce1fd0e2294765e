"""The papers with a verdict on each claim, their methods, baselines, blocks and folds.

Methods are registered as a plugin's are, by entry points of the group "dpeffects.methods" (in
`pyproject.toml`): the core imports nothing from here.
"""
