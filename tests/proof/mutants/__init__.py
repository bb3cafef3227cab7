"""Mutants: the product with one of its defences taken away, each caught by a named test.

`table.py` lists them by the promise that each one breaks. `sampling.py` draws further ones at random. `workshop.py`
makes a mutant in a copy of the tree and runs its test there. `python -m tests.proof.mutants --help`.
"""
