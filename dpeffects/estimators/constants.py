"""Numbers that were set by hand, of all methods, each with what it was set by.

What data can tell is read from released numbers, and what is mathematics is computed; these are
what is left: what studies are usually like, how a budget is divided, and what is worth a word.
Where no measurement is named, a number is a judgement. Methods of the papers use these too, and
keep beside them what is theirs alone.
"""

import math

# --- what studies are like: outcomes -------------------------------------------------------------

TYPICAL_SD, TWO_VALUED_SD = 0.13, 0.39
"""Standard deviation of a typical number within arms, and of one with two values, in ranges.
Records beyond a clip of weights are one off the mean."""
EVENLY = pow(12.0, -1)
"""Variance of a number that spreads evenly over its range, as means may that nobody knows."""
LONGEST = 0.6
"""The longest residual from means near the middle of the range, in ranges."""
MEAN_SD = 0.1
"""How far means of the arms lie from the mean of all, in ranges of the outcome, over studies."""
MEAN_VARIANCE = 0.05
"""Variance over studies of a mean in [0, 1], of a column or of who is treated: noisy ones are
pulled to 1/2 by it."""
EFFECT_SD = MEAN_SD * 2.0
"""Standard deviation of effects, and of mean outcomes along covariates, in ranges of outcomes."""
EXPLAINED, SELECTION, ALIGNED = 0.3, 0.5, 0.8
"""Strength of typical confounding (see `posterior`): the part of the variance of outcomes that
covariates explain, the variance of the log odds of treatment, more noise than which leaves nothing
of a model, and how far both go together."""
TWO_VALUED_EXPLAINED = 0.08
"""What covariates explain of an outcome with two values."""
CONFOUNDED = 0.3
"""What a difference of means is off by, over studies, in standard deviations of the outcome; in
ranges of it where it is the one that is confounded most, among several of a study."""
CONFOUNDED_MEAN, CONFOUNDED_RISK = CONFOUNDED * TYPICAL_SD, CONFOUNDED * TWO_VALUED_SD
"""The same in its ranges, and as a risk: what a propensity model may cost goes by these, and half
of the latter is how far from the quantiles of the arms those after weighting may be."""
VARYING = 0.5
"""How much effects vary against outcomes, over studies: variances of their slopes, and, where
nothing is known of these, effects on treated and control records against what they would differ by
if they were proportional to outcomes without treatment."""
VARIANCE_SD = 0.5
"""Relative standard deviation of a variance that is not known: over arms, of that of outcomes, and
of the information of a model, since products of covariates are not known: a judgement. Where
variances are 70 times apart, intervals still cover (benchmarks/results/three_arms.md)."""
ROUGH = 0.3
"""Relative standard deviation over studies of a variance, against one that takes residuals as
independent of weights, a column as normal (it is a third less in even ones), or covariates to
explain as much, and be as uneven, as they usually do and are; of what a clip cuts off on one side
of an arm, against what a family of tails says (.2 to .3 where residuals have two humps, n 40,000);
and of how much more records of an arm are above its mean than below."""
LOG_SPREAD = 1.2
"""Standard deviation over studies of the logarithm of a size that nobody knows: the scale of
residuals around a typical one, and the number of clusters around the root of n. Two of them reach
from .02 to all of the range. It matters below 1,000 records / epsilon only."""
ALIKE = 0.2
"""Usual correlation: of rows of one cluster, and of what is not known of the chances to have an
outcome with what records add."""

# --- what studies are like: covariates and arms --------------------------------------------------

COLUMN_VARIANCE = 0.0625
"""Variance of a typical covariate, in ranges."""
WIDE_SD = 2.0 * math.sqrt(COLUMN_VARIANCE)
"""Its standard deviation on [-1, 1]."""
LEAST_COLUMN_VARIANCE = 0.03
"""Variance of a covariate, in ranges, to be on the safe side of shrinkage."""
SKEWNESS = 1.0
"""Standard deviation over studies of the skewness of columns."""
SLOPE = TYPICAL_SD * math.sqrt(EXPLAINED / COLUMN_VARIANCE)
"""Slope of outcomes along the one covariate that explains them, in ranges, that the price of a
propensity model goes by."""
CORRELATED = 1.2
"""Standard deviation of a sum of columns over that of uncorrelated ones: of log odds, and of those
once more where a clip is chosen, since one that is too low costs less than one too high; and of
noise through the moments."""
MATTER = 0.25
"""Part of the columns that matter for confounding."""
TREATED_VARIANCE = pow(0.5, 2) - MEAN_VARIANCE
"""Mean of e(1 - e) over chances e of treatment that vary as such means do: a public stand-in."""
LONGEST_WEIGHT = 0.75 / 0.425
"""Largest weight 1 - e of treated or e of control records, over the mean of all, for a score whose
mean e(1 - e) is .85 of that of a flat one."""
INVERSE = 1.2
"""The largest inverse propensity, against the largest overlap weight."""
RARE = 0.1
"""An arm is rare below this share, and so are records with scores below it or above 1 less it; no
arm is taken as smaller than this over the number of arms, or, but for matching, than the noise in
its share if that is less. A plan of tables takes their clip to be it."""
UNEVEN_BINS = 0.25
"""How far shares of bins are from even ones for a skewed covariate."""
UNEVEN_GROUPS = 0.7
"""Standard deviation over studies of the sizes of groups, over what they would be if even."""

# --- what is cut, and what that leaves -----------------------------------------------------------

CUT, LEAST_SD = 2.5, 0.1
"""Standardised columns and indices of scores are cut at this many standard deviations, which of an
index are no less than the latter. So are weights, towards rare records of an arm; and hazards that
change by more of them are not proportional. About 1 % of a normal number is beyond."""
LONG_SDS = 3.0
"""Outcomes are cut at this many standard deviations from the mean of their arm, and counts of
lengths that are off by as many of their noise are seen, whatever tails say (of Laplace noise alone
1 in 70 is)."""
LEAST_CLIP = 0.15
"""The least clip of scores, over the share of the arm. A plan takes one that is yet to be chosen to
be it in arms of one size."""
LEAST_DEPTH = 1.0
"""How close to the mean of the log odds a clip of tables can be, in standard deviations: noise in
many cells is worth truncated weights."""
TRUNCATED = 2.2
"""Part of the confounding that truncated weights leave, for each part of the weight that they lack:
records beyond a clip are those that differ most."""
CELLS = 4.0
"""Noise of a number that is made of many cells, or of moments, over that of one weighted sum. For
moments, half-widths on 4,642 births were 112, 96 and 88 g with 1, 4 and 10, the last with effects
of overlap weights in place of averages."""
USUAL_WEIGHT = 0.4
"""Mean inverse weight over the largest: no record stands for more than 2.5 times as many as usual.
Chances to have an outcome are kept above this part of their mean, since the largest weight
multiplies all noise."""
UNDO = 1.25
"""Shrinkage of a model is undone up to this factor; beyond, undoing adds more noise than it removes
bias."""

# --- clusters ------------------------------------------------------------------------------------

CLUSTER_SDS = 3.5
"""A sum of a cluster is kept within so many standard deviations."""
CLUSTERS_CUT = 2.0
"""Sums whose root mean square is above the bound over this are cut noticeably."""
MOST_LOST = 8.0
"""Squares of cut rows say by which factor that makes the variance smaller, up to this one."""
FEW_CLUSTERS, FREEDOM_LOST = 20, 3.0
"""Below so many clusters the result says that they are few. Sums around means of two arms of
unequal clusters have about as many degrees of freedom less."""

# --- what is worth a word ------------------------------------------------------------------------

APART = 0.1
"""Standardised differences above it are said to matter, those that noise moves by less are worth
their release, and variances are known if noise is less than this part of them."""
WORTH_A_WORD = 0.05
"""Records beyond a clip, noise in a variance of scores or in what covariates explain of that of
outcomes, and of a range in a mean that is not known: parts that a warning is for."""
HARDLY, NOTHING = 0.5, 0.1
"""Where less of the slopes of a model is kept, or of their variance the square of it is known, the
result says that it hardly adjusts; and that it is an association. Standardised differences that
noise would move by more than the former are refused."""
ARMS_APART = 0.6
"""Where the score explains more than this part of who is treated, the arms hardly overlap."""
SURE = 2.0
"""What is below this many standard deviations of its noise is no denominator."""

# --- how a budget is divided ---------------------------------------------------------------------

SHARES = (0.14, 0.2, 0.28, 0.36, 0.44, 0.52, 0.6, 0.68, 0.74)
"""Shares that are compared for the moments, some of the smaller ones for a first stage (the fewer
records, the more it needs) and for a propensity model that weights tables."""
SPREAD_SHARE = 0.12
"""Share of where covariates lie and how far they spread: with .08 errors were 3 to 11 % larger in
16 populations, n 5,000 to 40,000, epsilon 1."""
COUNT = 0.3
"""Part of the share of means by arm for the number of treated records."""
ARM_SQUARES = 0.4
"""Size of squares beside sums by arm, whose noise they add to: a sampling variance may be rough. In
trials half-widths with .3 and with .5 were within 1 % of each other."""
BY_ARM = ARM_SQUARES / 4.0 + 1.0
"""What a record moves sums by arm with their squares by, against one sum with its squares."""
WEIGHED, COUNTED = 0.1, 0.05
"""How far a record moves the sum of the weights of its group and arm, and their count, against its
residual."""
BY_GROUP = (WEIGHED + COUNTED) * 2.0 + 1.5
"""What it moves all sums of its group by: these, its residual and, half as far, the square."""
MARGIN_SQUARES = 0.1, 5.0, 0.03, 0.12
"""Part of pure noise's price that goes to squares where columns need them: 0.1 with 5 columns at
epsilon 1, and by the third root of how many there are for each unit of epsilon; least and largest.
It makes intervals shortest within 3 % for 1 to 100 outcomes, 2,000 and 10,000 records, epsilon 0.5
to 4, and standard deviations of a sixth and a twentieth of the range."""
MANY_MARGINS = 30
"""From this many columns on, pure noise has counts of their own beside the cube: a record moves
them by less than a column of it would."""
BALANCE_SQUARES = 0.15, 0.4
"""Least and largest part of the share "balance" that squares get, where a column needs one."""
TIME = 0.25
"""What time counts beside events in the noise: it is known far better where events are rare."""
STEEPEST = 16.0
"""Largest rate of squares, in largest counts per largest time."""
SQUARES = 0.18
"""Proportion of a budget for what is asked beside: the sampling variance of rates, and where the
bins of quantiles are."""
OUTCOMES = 0.7
"""Proportion of the outcomes of a study as a whole; the rest is for those in subgroups."""
BASELINE = 0.1, 0.05, 0.25
"""Proportion of the baseline variables, where there are as many as outcomes; least and largest."""
EIGHTH = math.sqrt(COLUMN_VARIANCE) / 2.0
"""Standard deviation of a number over its range in moments, as their words say: half of a typical
covariate's. With `TYPICAL_SD` regressions on products were off by more than 1 % at huge epsilon."""
CONSTANT = 2.0
"""What the constant counts beside an indicator in moments: means that are not in the middle need
it."""
VOLUME = 0.1
"""Largest part of epsilon that is planned for the change of volume from noise to weights."""
SAFEGUARD = 1e-3
"""Strength of a penalty where a model costs nothing: a numerical safeguard."""


# --- which method --------------------------------------------------------------------------------

GAIN, TRIAL_GAIN = 0.75, 0.92
"""Using the covariates has to reduce the error to expect to this part, in an observational study
and in a trial: where nothing confounds, or they explain nothing, its noise is for nothing. So has a
delta, to be spoken of."""
RECORDS, LARGE_GAIN = 75, 0.2
"""With fewer records for each covariate, it has to reduce the error to this part."""
LEAST_RECORDS = 1000.0
"""Records times epsilon that an adjustment takes: with less, noise in it can widen the interval."""
NARROW, NARROWER = 2.0, 3.0
"""An adjustment must not widen the interval where outcomes spread so many times less than usual;
nor, in a trial, where they spread the latter times less and covariates explain nothing, by more
than it has to gain. With the former in trials, too, it would widen some by .1 at n epsilon
2,000."""
BENT_RECORDS, BENT_RECORDS_WITH_DELTA = 110.0, 33.0
"""Records times epsilon that k columns take, over k to the power 1.5, where a product counts for
two columns. Where records just carry them (n 20,000, seeds 12 to 38 of the benchmark's
populations), squares make intervals 1.7 times as long (with a delta 1.1 times) and mend 2 bent
populations of 3. Products that count for one column make them 1.7 times as long, too, and mend 2 of
8; with three times the records it is 1.2 times."""
MOST_COLUMNS, MOST_POOLED = 450, 250
"""Covariates that the noise of a matrix is proved for, and those that can have Gaussian noise."""

# --- scales of columns (`standard`) --------------------------------------------------------------

POINT = 0.98
"""A column with this part of its records closer to its mean than a ninetieth of its range spreads
less than can be told: its standard deviation is below .005 of the range if it is normal. The same
is said where logarithms of distances alone are released, and their mean is this part of that of a
ninetieth."""
CODE = 0.75
"""A column is taken for a code of two values where this part of its records is in one class of
lengths on either side: its square is a line, and products of codes may be none at all. Of normal
columns a half is."""
CLEAR = 12.0
"""Records are so many times the noise of a class at least where distances from means are counted by
class: otherwise the largest of all classes is noise in some columns, n 4,000, epsilon 1, 11
columns, and the budget is better spent on scales. At n epsilon 2,000, ten columns, the error of the
effect was .039 with counts and is .015 without."""

# --- models out of moments (`moment_models`, `posterior`) ----------------------------------------

BESIDE, ONE = 0.7, 0.25
"""Sizes of outcome and treatment in z, each, and of the constant, against that of the
covariates."""
OUTCOMES_LONG = 0.35
"""Further outcomes are so long for their part of a row, over the clip, that it is rarely cut."""
LENGTH = 0.8
"""What each covariate adds to the largest squared length of a row: the size of all the rest. Noise
of the regression was within 10 % from .5 to 1. Their mean variance after shortening is about that,
give or take as much."""
WEIGHT = 0.92
"""Mean over studies of the mean weight of rows after shortening; 1 is a standard deviation away."""
LEAST_DIRECTION = 0.02
"""Least variance of a direction, against the mean of all."""
VAGUE = 4.0
"""How many times the variance of confounding is larger where nothing is known, and once more."""
TRUST = 0.3
"""Power of the likelihood in the interval: what moments say about the grid is trusted less."""
SLOPES_MISS, STRAIGHT_SLOPES_MISS, HIGHER = 0.05, 0.3, 0.6
"""Of what slopes explain, they are taken to miss this part at least: lines may be curves. The
latter is what they miss where the score bends and they do not: bent populations have .3 to .9 of it
in curves and products, others none. The last is confounding by curves that no column is for, over
that by squares and products: .6 over 25 bent populations, steps among them, but 0 where all that
bends is a U."""
BENT_VARIANCE = 0.64
"""Variance of squares and products that are cut, over that of a column: .77 of normal columns, .4
of the squares of uniform ones."""

# --- what `one_step` allows for ------------------------------------------------------------------

WEIGHTS_OFF = 0.04
"""Relative error of the sum of the weights of an arm, and how far weights of an estimand leave its
records off along the score, in its standard deviations: .01 to .02 at epsilon 1000 and .03 to .05
at 1, n 40,000, variance of the log odds .5."""
GROUP_OFF = 0.15
"""Standard deviation over studies of the relative error of the weights of an arm in a group,"""
GROUP_FAR = pow(0.375, 2) / EVENLY
"""and, where the score is not known, squared distance of a group from the others along a covariate,
in its variances: a quarter at one end of a uniform one."""
WRONG_SCORE = 0.15
"""Relative error of the score's slopes that is not noise: they come from moments, by the shape
which normal covariates in each arm would give the score. It meets what is not known of the
outcome's slopes, and what a check for curves sees of lines."""
SECOND_ORDER = 1.5
"""Variance of what noise in the models does, over what it does to first order."""

# --- regressions by one draw (`regression`) ------------------------------------------------------

REGRESSION_RECORDS, USEFUL_EPSILON = 650.0, 4.0
"""Records of the smaller arm times epsilon that each column takes: with less, noise can explode.
More epsilon than the latter does not stand for records: the first stair of a ladder, a sixteenth of
what a record could do, is .6 of the sampling error with 90 records of each arm."""
ROOM = 40.0
"""Room times the epsilon of the draw that it takes: below, noise grows faster than room falls."""
SURELY = 8.0
"""Scales of its noise by which a room must exceed that: 2 in 10,000 calls are misled by noise.
With 5 scales 3 in 1,000 are, whose errors are tens of standard errors."""
REACH = 4.0
"""How many times as long rows may be, before they are shortened, that the mean is taken of."""
LEVERAGE, PULL = 1.5, 0.5
"""Bound on |c'S^-1 w| times the records of the smaller arm, for the constant and for each root of a
column; and the largest of these over what leverage and room allow: .34 to .66 in 40 designs."""
FIT = 1.5
"""Bound on what a regression predicts, in clips."""
UNEVEN = 1.25
"""Mean over studies of leverage, over that of arms that are alike."""
GAP = 0.2
"""How far the predictions of the arms differ at most, over the longest residual: .07 to .32."""

# --- weights at label level (`balancing`) --------------------------------------------------------

RIDGE = 3.0
"""Variance of a residual over that of a slope along an imbalance, by which both are weighed; slopes
of squares and products are believed to have so many times less once more."""
BASIS_RECORDS = 12
"""Records of the smaller arm for each function of the basis, before curves are added to it."""
DENSE = 0.15
"""Steps along a column, over the root of the smaller arm's records: .15 and .3 left the same bias,
.005, where both models step at n 10,000; quantiles alone .024 and .018."""
FUNCTIONS = 100
"""Functions of the basis, before curves are added to it: time goes by its square."""
LOOKS = 8
"""Looks at the rows for each cap, at most; what imbalance they leave is measured, not assumed."""
STOP = 0.01
"""Imbalance, over the standard deviation that chance gives a mean, at which nothing is gained."""
TIGHTEST = 1.25
"""The tightest cap is this many times an even weight in the smaller arm."""

# --- learners of conditional effects -------------------------------------------------------------

THRESHOLD = 0.2
"""Least threshold of Huber's loss for outcomes and effects, as a share of the outcome's range."""
THROUGH = 0.2
"""Part of the noise in an outcome function that gets into effects (measured 0.12 to 0.29, for 1,000
to 5,000 records): where propensities are right it would average out."""
INSIDE = math.erf(THRESHOLD / TYPICAL_SD / math.sqrt(2.0))
"""Part of the records whose residuals are below the threshold of Huber's loss, where that is not
released: of typical, normal ones."""
CORNER = 8.0
"""A histogram with noise of less than 1/8 of an even bin is taken nearly as it is."""

# --- lengths of residuals (`tails`) --------------------------------------------------------------

LEVELS = 14
"""Lengths of residuals that are told apart, from the longest to a ninetieth of it: outcomes whose
range is 20 times too wide are still told from shorter ones."""
FAR_OUT = (
    ((0.0, 1.0), (0.0, 0.35), (0.0, 0.12), (0.35, 0.7), (0.7, 1.0)),
    (0.003, 0.01, 0.025, 0.06, 0.15, 0.4, 1.0),
)
"""Between which lengths records lie that are further out than others, and how many of all those may
be. The last are all at the end, with a gap: a rare outcome of 0 and 1 that is declared by its range
lost half of an effect to a clip without them. On one side of an arm all can be."""
SOME_FAR = 0.45
"""How likely it is that there are any: about even."""
MISFIT = 0.03
"""A class of lengths may hold this part more or less than any member of the family says."""
UNSEEN = 0.02
"""Part of the variance of noise in counts of lengths that stands, in trials, for records that they
do not show. An effect of .6 on a fiftieth, n 50,000, a tenth treated, was covered in .5, .75, .92
and .96 of 24 runs with 0, .003, .008 and .02, half-widths being 6 to 12 % longer, or shorter at
4,000. In studies the last made half-widths a third longer where an effect is the same for all."""
SHARED = 0.5
"""How far lengths of residuals of an arm, on one side, are taken for those of all records before
they are seen. With .8 intervals were a twentieth shorter where effects are the same for all, and
missed a tenth more of those on few records; n 4,000 to 40,000."""
ONE_END = 0.01, 0.1, 0.4, 8000.0
"""More terms are cut at one end than at the other: by this part of the records, as a standard
deviation, and with this chance. They exceed the cut by as much again, give or take this part of it.
Effects with a U along the score, as strong as the noise in outcomes or half, had .1 to 2.3 % of the
records there, which exceeded it by .4 to 1.6 of it. Noise tells so many from none where n epsilon
is as large as the last; on 4,642 births asking for it made intervals 1.3 times as long."""

# --- curves of the score (`curves`) --------------------------------------------------------------

USUAL_CURVES = 0.0032
"""Variance of the log odds of treatment by curves, against that along lines, over studies that the
default was first tuned on: what the interval allows for before a check can tell."""
CURVE = 0.1
"""Variance of the log odds by one curve, where there is one: a U of .3 in the log odds."""
BENT_OUTCOME = 0.5
"""How much of what covariates explain of the outcome may be along a curve that nobody saw."""
SKEWED = 0.1
"""Squared covariance of a bent term with its line: by skewness, and tails that are not normal."""
