"""What operations mean: each written once, for every front end.

A function here takes a builder and values in the source's order of axes, for static and symbolic
sizes, and knows no framework's names: front ends (keras, tf, torch) say how their framework spells
it. `converter.lower.legalize` sees to dtypes, `converter.lower.known_values` to numbers that are
known while lowering or else computed.

To add an operation, as `hypot` was added:

1. the function, in the module of its family: `ops.elementwise.hypot`;
2. a line in the table of each front end that has it: ``("Hypot", hypot, ("float",))`` in
   keras/operations/elementwise.py, a handler of three lines under ``@aten("hypot")`` in
   torch/elementwise.py;
3. a row in tests/converter/lower/ops/, in the test of its family or test_one_meaning.py: inputs
   with zeros, infinities and NaN, a reference in NumPy, and how each front end spells it; no
   framework is needed.
"""
