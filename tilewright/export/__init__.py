"""Programs for C: what `tilewright export-c` writes for the host of an FPGA SoC, or for any machine with a C compiler.

The folder holds the kernels as relocatable objects, constants and instructions as data, the program's tables as C
source, the header-only runtime, a Makefile and an example that runs the program on files.
"""

from tilewright.export.c_program import RUNTIME_HEADER, export_c, identifier, runtime_header

__all__ = ["RUNTIME_HEADER", "export_c", "identifier", "runtime_header"]
