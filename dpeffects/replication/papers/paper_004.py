"""Verdicts on PP-IPW (paper 004)."""

from __future__ import annotations

import numpy as np

from dpeffects.lazy import pd
from dpeffects.replication.papers.claim_checks import ClaimCheck
from dpeffects.replication.papers.stored_tables import table

PRINTED = {
    "004_table_2": {
        "without noise": [4.80],
        "model noise: mean": [-237487.30, 32.34, 8.37, 5.22, 5.31],
        "model noise: wrong signs": [0.515, 0.425, 0.344, 0.287, 0.229],
        "both noises: mean": [-237477.13, 32.20, 8.50, 5.09, 5.40],
        "both noises: wrong signs": [0.517, 0.425, 0.347, 0.301, 0.228],
    },
    "004_table_3": {
        "without noise": [902.11],
        "model noise: mean": [872.21, 899.15, 895.26, 906.70, 904.17],
        "model noise: wrong signs": [0.143, 0.072, 0.049, 0.027, 0.035],
        "both noises: mean": [876.83, 897.75, 893.37, 903.95, 900.25],
        "both noises: wrong signs": [0.154, 0.071, 0.05, 0.039, 0.034],
    },
}
"""Tables 2 and 3 as printed, by epsilon: the mean without noise, with noise in the model only
(tau-hat_n), and with both noises (what is released), and shares of wrong signs."""


def _cells(name: str, setting: str, n: int = 200) -> pd.DataFrame:
    """The rows of a table for one way of computing it, by epsilon."""
    frame = table(name)
    return frame[(frame["setting"] == setting) & (frame["n"] == n)]


def _each(values: pd.Series, form: str = "{:.3f}") -> str:
    return ", ".join(form.format(value) for value in values)


# --- the algorithm and what is proved of it ----------------------------------------------------


def _the_algorithm_is_in_the_package() -> ClaimCheck:
    z = table("004_algorithm_1")["z"]
    return ClaimCheck(
        f"private_ipw(as_printed=True) against the paper's lines, {len(z)} cases: differences over "
        f"their standard errors have sd {z.std():.2f}, largest {z.abs().max():.1f}",
        z.abs().max() < 3.5 and z.std() < 1.4,
    )


def _the_sign_in_the_bias() -> ClaimCheck:
    frame = table("004_figure_1")
    off = {
        which: int(((frame[f"g {which}"] - frame["simulated"]).abs() > 3 * frame["se"]).sum())
        for which in ("printed", "proved")
    }
    at = frame[(frame["epsilon"] == 0.4) & (frame["m"] == 500)].iloc[0]
    return ClaimCheck(
        f"off by more than 3 se in {off['printed']} of {len(frame)} cells as printed, in "
        f"{off['proved']} with +1; at epsilon 0.4, m = 500: printed {at['g printed']:.3f}, with +1 "
        f"{at['g proved']:.3f}, simulated {at['simulated']:.3f} (se {at['se']:.4f})",
        off["printed"] == 0,
    )


def _the_bias_by_n() -> ClaimCheck:
    frame = table("004_lemma_3")
    first, last = frame.iloc[0], frame.iloc[-1]
    return ClaimCheck(
        f"m = 500, epsilon 0.4: g is {first['mean']:.3f} (se {first['se']:.3f}) at n = "
        f"{first['n']:,.0f} and {last['mean']:.3f} (se {last['se']:.3f}) at n = {last['n']:,.0f}",
        abs(last["mean"]) < 0.5 * abs(first["mean"]),
    )


def _lemma_6() -> ClaimCheck:
    frame = table("004_lemma_6")
    printed = frame[frame["version"] == "printed"]
    right = frame[frame["version"] == "corrected"]
    worst = printed.iloc[int((printed["beyond eta"] - printed["gamma"]).to_numpy().argmax())]
    return ClaimCheck(
        f"outcomes {worst['outcomes']}, gamma {worst['gamma']:g}: eta {worst['eta']:.2f}, beyond "
        f"it {worst['beyond eta']:.3f} (se {worst['se']:.3f}) of the pairs; corrected at most "
        f"{right['beyond eta'].max():.3f}",
        printed["beyond eta"] <= printed["gamma"] + 2 * printed["se"],
    )


def _corollary_7() -> ClaimCheck:
    frame = table("004_corollary_7")
    low = frame["happens"] - 3 * frame["se"]
    broken = {b: int((low > frame[b]).sum()) for b in ("printed", "with the right g", "corrected")}
    worst = frame.iloc[int((frame["happens"] - frame["with the right g"]).to_numpy().argmax())]
    return ClaimCheck(
        f"broken in {broken['printed']} of {len(frame)} cells, in {broken['with the right g']} "
        f"with the right g; worst: P = {worst['happens']:.3f} (se {worst['se']:.3f}) against "
        f"{worst['with the right g']:.3f}. Chebyshev's bound: broken in {broken['corrected']}",
        broken["printed"] == 0,
    )


def _theorem(number: int, both: bool) -> ClaimCheck:
    frame = table("004_theorems")
    frame = frame[frame["theorem"] == number]
    drawn = frame[frame["data"] == "random"]
    turned = frame[frame["data"] != "random"].iloc[0]
    broken = int((drawn["happens"] - 3 * drawn["se"] > drawn["printed, most"]).sum())
    fails = bool(turned["happens"] - 3 * turned["se"] > turned["printed, most"])
    return ClaimCheck(
        f"random data: broken in {broken} of {len(drawn)} cases; data whose bias turns the "
        f"sign: happens {turned['happens']:.3f}, bound {turned['printed, most']:.3f}",
        not (broken or fails),
        why="The bound squares tau + g, so it is false where the bias turns the sign, and true "
        "where it does not" + ("; it also has the random estimate tau_n in it." if both else "."),
    )


def _divided_by_n() -> ClaimCheck:
    frame = table("004_appendix_f")
    att = frame[frame["estimand"] == "ATT"].set_index("way")
    said, ours = att.loc["as printed"], att.loc["private_ipw"]
    return ClaimCheck(
        f"ATT of {said['effect']:.3f}: printed {said['mean']:.3f} (se {said['se']:.3f}), divided "
        f"by a released count {ours['mean']:.3f} (se {ours['se']:.3f})",
        abs(said["mean"] - said["effect"]) < 2 * said["se"],
    )


# --- figures ------------------------------------------------------------------------------------


def _the_bias_falls() -> ClaimCheck:
    frame = table("004_figure_1")
    ordered = frame.sort_values(["epsilon", "m"])
    grid = ordered["g proved"].abs().to_numpy().reshape(ordered["epsilon"].nunique(), -1)
    first, last = ordered.iloc[0], ordered.iloc[-1]
    return ClaimCheck(
        f"from {grid[0, 0]:.3f} (epsilon {first['epsilon']:g}, m = {first['m']:,.0f}) to "
        f"{grid[-1, -1]:.5f} (epsilon {last['epsilon']:g}, m = {last['m']:,.0f}), at every step",
        (np.diff(grid, axis=0) < 0).all() and (np.diff(grid, axis=1) < 0).all(),
    )


def _signs(setting: str, effect: float) -> pd.DataFrame:
    frame = table("004_figure_2_signs")
    return frame[(frame["setting"] == setting) & (frame["effect"] == effect)]


def _fewer(first: pd.Series, last: pd.Series) -> bool:
    """Whether a share falls by more than two standard errors."""
    error = float(np.hypot(first["se"], last["se"]))
    return bool(first["wrong signs"] - last["wrong signs"] > 2 * error)


def _fewer_wrong_signs() -> ClaimCheck:
    both, model = _signs("printed, both noises", 0.1), _signs("printed, model noise", 0.1)
    return ClaimCheck(
        f"effect 0.1, epsilon 0.2 to 0.99: {both['wrong signs'].iloc[0]:.2f} to "
        f"{both['wrong signs'].iloc[-1]:.2f} (se {both['se'].max():.2f}); noise in the model alone "
        f"{model['wrong signs'].iloc[0]:.2f} to {model['wrong signs'].iloc[-1]:.2f}",
        _fewer(both.iloc[0], both.iloc[-1]),
    )


def _fewer_for_the_larger() -> ClaimCheck:
    small, large = (_signs("printed, both noises", effect).iloc[0] for effect in (0.1, 2.0))
    return ClaimCheck(
        f"epsilon 0.2: {small['wrong signs']:.2f} (se {small['se']:.2f}) for effect 0.1, "
        f"{large['wrong signs']:.2f} for effect 2",
        _fewer(small, large),
    )


def _converges_with_m() -> ClaimCheck:
    frame = table("004_figure_2_means").query("effect == 2.0")
    model = frame[frame["setting"] == "model noise"].set_index("m")
    both = frame[frame["setting"] == "both noises"].set_index("m")
    first, last = model.iloc[0], model.iloc[-1]
    away = f"{both['distance'].iloc[0]:.2f} to {both['distance'].iloc[-1]:.2f}"
    return ClaimCheck(
        f"effect 2, epsilon 0.4, m = 500 to 2,500: noise in the model moves the mean by "
        f"{first['moved']:.3f} (se {first['moved se']:.3f}) to {last['moved']:.4f} (se "
        f"{last['moved se']:.4f}); with both noises single estimates are {away} away",
        first["moved"] - 2 * first["moved se"] > last["moved"],
    )


def _linear_in_the_effect() -> ClaimCheck:
    frame = table("004_figure_2_means").query("setting == 'model noise' and m == 500")
    low, middle, high = frame.sort_values("effect")["mean"]
    return ClaimCheck(
        f"m = 500: {low:.2f}, {middle:.2f} and {high:.2f} at effects 0.1, 1.05 and 2; half-way is "
        f"{(low + high) / 2:.2f}",
        abs(middle - (low + high) / 2) > 2 * float(frame["se"].max()),
    )


# --- tables -------------------------------------------------------------------------------------


def _without_noise(name: str) -> tuple[str, float, float]:
    own = _cells(name, "printed, model noise").iloc[0]
    mean, se = float(own["without noise"]), float(own["without noise se"])
    return f"{mean:,.2f} (se {se:,.2f}, {own['runs']:,.0f} runs)", mean, se


def _average_on_ihdp() -> ClaimCheck:
    return ClaimCheck(_without_noise("004_table_2")[0], None)


def _two_sizes() -> ClaimCheck:
    few, many = (
        _cells("004_table_2", "printed, model noise, rows not scaled", n)["wrong signs"]
        for n in (200, 500)
    )
    return ClaimCheck(
        f"wrong signs, rows not scaled, with n = 200: {_each(few)}; with n = 500: {_each(many)}",
        None,
    )


def _means_on_ihdp() -> ClaimCheck:
    own = _cells("004_table_2", "printed, model noise")
    return ClaimCheck(
        f"{_each(own['mean'], '{:.2f}')} (se at most {own['se'].max():.2f}); rows not scaled: "
        + _each(_cells("004_table_2", "printed, model noise, rows not scaled")["mean"], "{:,.1f}"),
        own["mean"].abs().max() > 30,
    )


def _shares(name: str, noise: str, setting: str, others: str = "") -> ClaimCheck:
    """Compare shares of wrong signs with the printed ones, each within three standard errors."""
    printed = np.array(PRINTED[name][f"{noise}: wrong signs"])
    own = _cells(name, setting)
    runs = float(own["runs"].iloc[0])
    error = np.sqrt(own["wrong se"].to_numpy() ** 2 + printed * (1 - printed) / runs)
    near = np.abs(own["wrong signs"].to_numpy() - printed) < 3 * np.maximum(error, 0.01)
    more = f"; {others[9:]}: {_each(_cells(name, others)['wrong signs'])}" if others else ""
    return ClaimCheck(
        f"{_each(own['wrong signs'])} (se at most {own['wrong se'].max():.3f}){more}", near
    )


def _falls(name: str, setting: str) -> tuple[bool, str]:
    own = _cells(name, setting)
    first, last = own.iloc[0], own.iloc[-1]
    error = float(np.hypot(first["wrong se"], last["wrong se"]))
    text = f"wrong signs {first['wrong signs']:.3f} to {last['wrong signs']:.3f}"
    return bool(first["wrong signs"] - last["wrong signs"] > 2 * error), text


def _larger_epsilon_on_ihdp() -> ClaimCheck:
    holds, text = _falls("004_table_2", "printed, both noises")
    return ClaimCheck(f"both noises, epsilon 0.2 to 0.99: {text}", holds)


def _average_on_lalonde() -> ClaimCheck:
    text, mean, se = _without_noise("004_table_3")
    return ClaimCheck(text, abs(mean - float(PRINTED["004_table_3"]["without noise"][0])) < 3 * se)


def _means_on_lalonde() -> ClaimCheck:
    own = _cells("004_table_3", "printed, model noise")
    printed = np.array(PRINTED["004_table_3"]["model noise: mean"])
    near = np.abs(own["mean"].to_numpy() - printed) < 3 * np.sqrt(2) * own["se"].to_numpy()
    return ClaimCheck(f"{_each(own['mean'], '{:.0f}')} (se at most {own['se'].max():.0f})", near)


def _larger_epsilon_on_lalonde() -> ClaimCheck:
    model, text = _falls("004_table_3", "printed, model noise")
    both, other = _falls("004_table_3", "printed, both noises")
    return ClaimCheck(f"noise in the model: {text}; both noises: {other}", model and both)
