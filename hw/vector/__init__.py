"""The VECTOR engine: steps, lanes, operands, requantisers, and the row unit for softmax and normalisation."""
