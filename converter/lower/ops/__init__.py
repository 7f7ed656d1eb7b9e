"""Semantics of operations, each implemented once for all front ends.

A function here takes a builder and values in the source's order of axes, of static or symbolic
shape. It does not use the names of any framework: the front ends (keras, tf, torch) map those to
it. `converter.lower.legalize` handles dtypes, `converter.lower.known_values` values that are known
while lowering or else computed.

To add an operation, as `hypot` was added:

1. the function, in the module of its family: `ops.elementwise.hypot`;
2. a row in the table of each front end that has it: ``("Hypot", hypot, ("float",))`` in
   keras/operations/elementwise.py, a handler of three lines under ``@aten("hypot")`` in
   torch/elementwise.py;
3. a row in tests/converter/lower/ops/, in the test of its family or test_one_meaning.py: inputs
   with zeros, infinities and NaN, a reference in NumPy, and its name in each front end; no
   framework is needed.
"""
