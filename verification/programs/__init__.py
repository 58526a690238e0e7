"""Programs of the NPU for tests: random ones, and ones that reach corners which random ones seldom reach."""
