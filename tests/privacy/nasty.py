"""Problems that are hard to solve, and what they are checked with: arithmetic in long doubles."""

from __future__ import annotations

import numpy as np

from dpeffects.privacy import losses

KINDS = (
    "plain",
    "separable",
    "nearly separable",
    "two rows",
    "collinear",
    "corners",
    "constant",
    "hardly varying",
    "crowded",
)
SIZES, WIDTHS = (4, 7, 20, 60, 200, 2000), (1, 2, 3, 6, 12, 30)


def treatment_and_rows(rng, kind=None, n=None, d=None):
    """Covariates in [0, 1] with an intercept, and a treatment that they may decide."""
    kind = kind or str(rng.choice(KINDS))
    n = n or int(rng.choice(SIZES, p=[0.2, 0.2, 0.2, 0.2, 0.17, 0.03]))
    d = d or int(rng.choice(WIDTHS))
    x = rng.random((n, d))
    if kind == "two rows":
        x[:] = x[rng.integers(0, 2, n)]
    elif kind == "collinear":
        x[:, 1:] = x[:, -1:]
    elif kind == "corners":
        x = np.rint(x)
    elif kind == "constant":
        x[:] = 0.3
    elif kind == "hardly varying":
        x = 0.5 + rng.integers(-1, 2, (n, d)) * 2.0**-16 * rng.integers(1, 4)
    elif kind == "crowded":
        x **= 20
    t = rng.random(n) < 0.5
    if kind in ("separable", "nearly separable"):
        t = x[:, -1] > 0.5
    if kind == "nearly separable":
        t[rng.integers(n)] ^= True
    x[:, 0] = 1.0
    if rng.random() < 0.2:
        t[:] = False
        t[0] = rng.random() < 0.7
    if rng.random() < 0.1:
        t = ~t
    return t, x


def fitted_rows(x, unit):
    """The rows as they are fitted, in long doubles."""
    norm = np.longdouble(losses.unit_norm(x.shape[1])) if unit else np.longdouble(1.0)
    return losses.whole_rows(x, unit).astype(np.longdouble) / (np.longdouble(2.0**16) * norm)


def fitted_weights(w, unit):
    """Weights as they multiply those rows: on rows of norm 1 they are divided by a float."""
    scale = 2.0**16 * (losses.unit_norm(w.size) if unit else 1.0)
    return (w / scale).astype(np.longdouble) * np.longdouble(scale)


def exact_gradient(rows, t, w, penalty, offset=0.0, tilt=0.0):
    """Gradient of the mean loss, penalised and tilted, and second derivatives."""
    w = np.asarray(w, np.longdouble)
    z = rows @ w + np.longdouble(offset)
    small = np.exp(-np.abs(z))
    chance = np.where(z >= 0, np.longdouble(1.0), small) / (1 + small)
    miss = np.where(t, -np.where(z >= 0, small, np.longdouble(1.0)) / (1 + small), chance)
    gradient = miss @ rows / len(t) + penalty * w + np.asarray(tilt, np.longdouble)
    return gradient, small / (1 + small) ** 2


def exact_minimiser(rows, t, start, penalty, offset=0.0, tilt=0.0):
    """Newton's method in long doubles with slopes by bisection, independent of the package's."""
    w = np.asarray(start, np.longdouble)
    for _ in range(200):
        gradient, bend = exact_gradient(rows, t, w, penalty, offset, tilt)
        hessian = (rows * bend[:, None]).T @ rows / len(t)
        hessian += np.longdouble(penalty) * np.eye(len(w), dtype=np.longdouble)
        step = solve(hessian, gradient)
        low, high = np.longdouble(0.0), np.longdouble(1.0)
        if exact_gradient(rows, t, w - step, penalty, offset, tilt)[0] @ step < 0:
            for _ in range(40):
                middle = (low + high) / 2
                falls = exact_gradient(rows, t, w - middle * step, penalty, offset, tilt)[0] @ step
                low, high = (middle, high) if falls > 0 else (low, middle)
        w = w - high * step
        if np.linalg.norm(step.astype(float)) <= 1e-3 * 1e-9:
            break
    return w


def solve(matrix, vector):
    """Solve by Cholesky's decomposition, in long doubles."""
    d, root = len(vector), np.zeros_like(matrix)
    for j in range(d):
        left = matrix[j:, j] - root[j:, :j] @ root[j, :j]
        root[j:, j] = left / np.sqrt(left[0])
    out = np.array(vector, np.longdouble)
    for j in range(d):
        out[j] = (out[j] - root[j, :j] @ out[:j]) / root[j, j]
    for j in reversed(range(d)):
        out[j] = (out[j] - root[j + 1 :, j] @ out[j + 1 :]) / root[j, j]
    return out


def huber_terms(rng, n, d):
    """Rows of norm at most 1, slopes and targets that are hard to fit."""
    rows = rng.normal(size=(n, d))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9) * (1 + 1e-4)
    kind = rng.integers(6)
    if kind == 0:
        rows[:] = rows[0]
    elif kind == 1:
        rows = np.outer(rng.choice([-1.0, 1.0], n), rows[0])
    slopes, targets = rng.choice([1.0, -1.0, 0.3], n), rng.normal(size=n)
    if kind == 2:
        slopes *= 10.0 ** rng.integers(-4, 1, n)
        targets *= 10.0 ** rng.integers(-6, 7, n)
    elif kind == 3:
        targets = np.sign(targets)
    elif kind == 4:
        targets *= 1e12
    return rows, slopes, targets


def huber_gradient(p, w, noise):
    """Norm of the gradient in long doubles."""
    rows, slopes, targets = p.terms
    rows, w = rows.astype(np.longdouble), w.astype(np.longdouble)
    psi = np.clip(targets - slopes * (rows @ w), -1.0, 1.0)
    return float(np.linalg.norm(p.strength * w + noise - (slopes * psi) @ rows))
