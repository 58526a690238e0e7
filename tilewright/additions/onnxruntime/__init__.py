"""The execution provider for onnxruntime: parts of a model run as compiled programs, the rest stays with onnxruntime.

`library.py` builds the shared library (`native/`) that onnxruntime loads; it starts one compiler process (`worker.py`)
for all sessions of a program. That process decides which nodes to take (`claims.py`), compiles them, and runs them on
the device that the session names (`programs.py`).
"""
