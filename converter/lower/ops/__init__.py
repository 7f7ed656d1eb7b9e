"""What operations mean: each written once, for every front end.

A function here takes a builder and values in the source's order of axes, for static and symbolic
sizes, and knows no framework's names: front ends (keras, tf, torch) say how their framework spells
it. `converter.lower.legalize` sees to dtypes.

To add an operation: write it in the family's module, add a row to
tests/converter/lower/ops/test_FAMILY.py with a NumPy reference and the spelling of each front end
that has it, and a line to the table of each of those front ends.
"""
