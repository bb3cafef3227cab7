"""How a cost grows with a size: the exponent of the power law that fits the measured points."""

import math
import statistics
from collections.abc import Sequence

LEAST = 1e-6  # what the clock cannot tell from nothing has no logarithm


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Of the power law that fits best, by least squares of the logarithms: 0 is constant, 1 is linear."""
    if len(points) < 2:
        return 0.0
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, LEAST)) for _, y in points]
    return statistics.linear_regression(xs, ys).slope
