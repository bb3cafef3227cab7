"""Chance without a sequence: each answer is a function of the seed and of what is asked.

So a fault can be left out, and everything that does not follow from it stays as it was.
"""

from collections.abc import Sequence
from hashlib import blake2b
from math import log
from typing import TypeVar

T = TypeVar("T")
WHOLE = 2.0**64


class Dice:
    def __init__(self, seed: int) -> None:
        self._seed = blake2b(f"{seed}".encode(), digest_size=16).digest()

    def roll(self, question: str) -> float:
        """From 0 to 1."""
        answer = blake2b(question.encode(), digest_size=8, key=self._seed).digest()
        return int.from_bytes(answer, "big") / WHOLE

    def between(self, question: str, least: float, most: float) -> float:
        return least + self.roll(question) * (most - least)

    def about(self, question: str, mean: float) -> float:
        """Mostly little, sometimes much: exponential."""
        return -mean * log(1.0 - self.roll(question))

    def one_of(self, question: str, choices: Sequence[T]) -> T:
        return choices[int(self.roll(question) * len(choices))]
