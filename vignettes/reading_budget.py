"""
Reading the budget
==================

Every number in a result was bought. This vignette follows the money: how a call divides its
epsilon, what each draw cost and which proof stands behind it, and how a ledger keeps several
calls, or several years, within one total.
"""

# %%
# One call
# --------
# The budget table of a summary has one line for each draw; as a frame it is ``charges_frame()``.

import tempfile
from pathlib import Path

import pandas as pd

import dpeffects as dpe
from dpeffects import plots

nsw = dpe.load_data("lalonde")
fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
charges = fit.charges_frame()
shown = ["label", "share", "mechanism", "sensitivity", "scale", "epsilon", "claim"]
print(charges[shown].to_string(index=False))

# %%
# *Sensitivity* is the most that one record can change the value, *scale* the size of the noise that
# hides it: for Laplace noise, sensitivity over epsilon. *Claim* is the number of the proof in
# :doc:`PROOFS.md </generated/proofs>`. The charges never sum to more than what you asked for:

print(f"asked {fit.epsilon_requested:g}, spent {charges['epsilon'].sum():g}")
for charge in fit.charges:
    print(
        f"{charge.label}: {charge.sensitivity[0]:g} / {charge.epsilon:.3g} = {charge.scale[0]:,.1f}"
    )

# %%
# The same as a picture:

ax = plots.budget(fit)

# %%
# Shares
# ------
# A method divides epsilon among what it has to release. Its description has the proportions:

print(dpe.methods("diff_in_means").split("budget split")[1].splitlines()[0].strip())

# %%
# Give other proportions by name; names left out keep their own, and all are divided by their sum.
# More for the estimate means a better estimate and a vaguer interval. Without an interval the part
# of the variance goes to the others.

cases = {
    "default": {},
    "more for the estimate": {"budget_split": {"estimate": 0.8, "variance": 0.05}},
    "no variance": {"variance": False},
}
rows = []
for name, case in cases.items():
    one = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, **case)
    parts = one.charges_frame().groupby("share")["epsilon"].sum()
    rows.append({"case": name, **parts, "noise sd": one.noise_variance**0.5})
print(pd.DataFrame(rows).round(3).to_string(index=False))

# %%
# Is it noise or is it sampling?
# ------------------------------
# The standard error has two parts. Only one of them can be bought down with epsilon; the other
# needs more people.

for epsilon in (0.5, 1, 2, 8):
    one = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=epsilon)
    print(f"epsilon {epsilon:>3}: {100 * one.noise_share:5.1f} % of the variance is privacy noise")

# %%
# Several calls: a ledger
# -----------------------
# Epsilons add up over everything that is released from the same people. A ledger holds the total
# and is charged before each draw. A call that does not fit is refused before the data is read.

ledger = dpe.Ledger(epsilon=2)
dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1.5, ledger=ledger)
print(ledger)
try:
    dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, ledger=ledger)
except dpe.DPEffectsError as error:
    print(error)

# %%
# What failed before its first draw cost nothing. What was drawn is paid for, whether you publish it
# or not.
#
# A budget that outlives the process
# ----------------------------------
# A study runs for months and from several machines. Its ledger is a file (or a PostgreSQL server),
# made once with the total that the board approved.

path = Path(tempfile.mkdtemp()) / "study.db"
dpe.create_ledger(path, "nsw", epsilon=3, delta=1e-5)
for formula in ("earnings_1978 ~ treatment", "earnings_1975 ~ treatment"):
    dpe.dp_ate(formula, nsw, "diff_in_means", epsilon=1, ledger=path, dataset="nsw")
book = dpe.open_ledger(path, "nsw")
print(book.to_frame()[["method", "label", "mechanism", "epsilon", "delta"]].to_string(index=False))
print(f"left: epsilon {book.remaining[0]:.3g}, delta {book.remaining[1]:.3g}")

# %%
# Each row carries a hash of those before it, so that edited or missing rows are noticed:

print(book.verify().partition(": ")[2])

# %%
# The same from a terminal::
#
#     dpeffects ledger create study.db --dataset nsw --epsilon 3 --delta 1e-5
#     dpeffects ledger show study.db
#     dpeffects ledger verify study.db
#
# A call reserves its whole budget before it starts and gives back what it did not spend. If its
# process is killed, the reservation stays until the curator releases it: crashes can lose budget,
# never privacy.
#
# What the total means
# --------------------
# Two results at epsilon 1 from the same people are one at epsilon 2. For everything that was
# charged here:

spent = sum(charge.epsilon for charge in book.charges)
together = dpe.Guarantee(epsilon=spent)
print(together.sentence())

# %%
# Next: :doc:`study`, where plan, ledger, estimate and record come together.

# %%
# References
# ----------
#
# - Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006). Calibrating noise to sensitivity
#   in private data analysis. Theory of Cryptography, 265-284. doi:10.1007/11681878_14
# - Kairouz, P., Oh, S. and Viswanath, P. (2017). The composition theorem for differential
#   privacy. IEEE Transactions on Information Theory 63, 4037-4049. doi:10.1109/TIT.2017.2685505
# - Dehejia, R. H. and Wahba, S. (1999). Causal effects in nonexperimental studies: reevaluating
#   the evaluation of training programs. Journal of the American Statistical Association 94,
#   1053-1062. doi:10.1080/01621459.1999.10473858
