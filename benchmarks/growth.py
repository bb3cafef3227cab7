"""Growth of a cost with size: the exponent of the power law fitted to the measured points."""

import math
import statistics
from collections.abc import Sequence

LEAST = 1e-6  # below the resolution of the clock; zero has no logarithm


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Exponent of the best power law, by least squares of the logarithms: 0 is constant, 1 is linear."""
    if len(points) < 2:
        return 0.0
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, LEAST)) for _, y in points]
    return statistics.linear_regression(xs, ys).slope
