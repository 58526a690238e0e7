"""Object code: compiled by LLVM, kept, joined, loaded."""
