"""Ops beside inference with neural networks: training, gradients, classical machine learning, signals, previews."""
