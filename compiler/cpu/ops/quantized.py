"""quantized"""
