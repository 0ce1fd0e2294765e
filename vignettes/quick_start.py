"""Quick start: one line to a private treatment effect.

Run with ``make demo``. Every run draws fresh noise, so the numbers differ from run to run.
"""

import dpeffects as dpe

nsw = dpe.load_data("lalonde")
fit = dpe.dp_ate(
    "earnings_1978 ~ treatment | age + education + black + hispanic + married + no_degree"
    " + earnings_1974 + earnings_1975",
    nsw,
    method="private_psm",
    epsilon=1,
)
print(fit.summary())
