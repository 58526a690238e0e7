"""Passes that turn DequantizeLinear -> op -> QuantizeLinear into integer operators."""
