"""LLVM IR as text: functions written instruction by instruction, and expressions over them."""
