"""Positions of units on a line, from the Laplacian of the graph that their nets make."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def slow_modes(weight: Matrix, count: int) -> Matrix:
    """``[mode, unit]``: at most ``count`` positions in which units that share many bytes lie close
    together.

    ``weight[a, b]`` is what ties two units, zero on the diagonal.  The eigenvectors of the smallest
    eigenvalues of the normalised Laplacian (M. Fiedler, A property of eigenvectors of nonnegative
    symmetric matrices and its application to graph theory, 1975), the first of which is the same
    everywhere.
    """
    degree = weight.sum(axis=1)
    scale = 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0))
    laplacian = np.eye(len(weight)) - scale[:, None] * weight * scale[None, :]
    vectors = np.linalg.eigh(laplacian)[1]
    modes = vectors[:, 1 : 1 + count] * scale[:, None]
    # the largest entry is positive, so that rounding cannot turn an order round
    largest = modes[np.argmax(np.abs(modes), axis=0), np.arange(modes.shape[1])]
    return np.ascontiguousarray((modes * np.where(largest < 0.0, -1.0, 1.0)).T)
