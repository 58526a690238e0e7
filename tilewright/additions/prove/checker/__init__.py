"""The checker: evaluates a quantised graph and a program on names, and compares these.

It imports `isa` and numpy, and nothing of the compiler, simulators and runtime. `compare` is where it begins. `graph`
is what it is given; `fields`, `cells`, `functions` and `names` are the names of values; `rules`, `evaluate`,
`products`, `elements`, `norms` and `wide` evaluate operators, `memories`, `machine` and `order` instructions.
"""
