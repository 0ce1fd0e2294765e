"""Numbers that were set by hand, each with what it was set by.

What data can tell is read from released numbers; these are what is left: the resolution of what
is released, strengths that are usual over studies, and how much a stated bound allows for.
"""

# --- lengths of residuals (`tails`) ---------------------------------------------------------------

LEVELS = 14
"""Lengths of residuals that are told apart, from the longest to a ninetieth of it: outcomes whose
range is 20 times too wide are still told from shorter ones."""
TYPICAL_SCALE, SPREAD_OF_SCALES = 0.2, 1.2
"""Scale of residuals, over the longest, before anything is seen, and the standard deviation of its
logarithm: two of them reach from .02 to all of the range. It matters below 1,000 records / epsilon
only."""
FAR_OUT = ((0.0, 1.0), (0.0, 0.35), (0.0, 0.12), (0.7, 1.0)), (0.003, 0.01, 0.025, 0.06, 0.14, 0.3)
"""Between which lengths records lie that are further out than others, and how many of all those may
be. The last are all at the end, with a gap: a rare outcome of 0 and 1 that is declared by its range
lost half of an effect to a clip without them."""
SOME_FAR = 0.45
"""How likely it is that there are any: about even."""
MISFIT = 0.03
"""A class of lengths may hold this part more or less than any member of the family says."""
ONE_SIDED = 0.3
"""Part of what a clip cuts off that may become bias; the rest cancels between arms and signs."""

# --- curves of the score (`curves`) ---------------------------------------------------------------

USUAL_CURVES = 0.0032
"""Variance of the log odds of treatment by curves, against that along lines, over studies that the
default was first tuned on: what the interval allows for before a check can tell."""
CURVE = 0.1
"""Variance of the log odds by one curve, where there is one: a U of .3 in the log odds."""
BENT_OUTCOME = 0.5
"""How much of what covariates explain of the outcome may be along a curve that nobody saw."""
NAMED = 0.5
"""A term is named where it is likelier than this to bend."""
SKEWED = 0.1
"""Squared covariance of a bent term with its line: by skewness, and tails that are not normal."""
SLOPES_OFF = 0.15
"""Relative error of the score's slopes that is not noise: they come from moments."""
