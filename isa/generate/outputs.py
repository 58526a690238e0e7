"""The files derived from the tables of `isa`, each with the function that makes its text."""

from pathlib import Path

from tilewright.isa.generate import c_header, driver_header, files, page

COMMAND = "python -m tilewright.isa.generate"
OUTPUTS: files.Outputs = {
    Path("isa/include/tilewright_isa.h"): c_header.header,
    Path("docs/isa.md"): page.page,
    Path("driver/c/tilewright_npu_registers.h"): driver_header.header,
}
