"""Passes on data movement: through quantisation, into operators, out of the way."""
