"""Graphs and tile programs as MLIR text of the dialect `tilewright`, for other tools (`docs/guide/mlir.md`).

The compiler does not compute with it: `graph_text` writes a `Graph`, `tilewright.compiler.importer.mlir_graph` reads it
again, as it was, and `tilewright.compiler.npu.emit.mlir_listing` writes tile programs.
"""
