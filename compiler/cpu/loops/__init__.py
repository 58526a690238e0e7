"""Loop nests over expressions: vectors, reductions, transposed blocks, rows."""
