"""Methods of the papers, what they compare with, and learners in blocks and folds.

They are registered as a plugin's methods are, by entry points of the group "dpeffects.methods" (in
`pyproject.toml`): no other folder imports from here.
"""
