"""Object code: compiled by LLVM, cached, joined, loaded."""
