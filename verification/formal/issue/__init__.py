"""The way of instructions to the engines, their loops, and that nothing gets stuck."""
