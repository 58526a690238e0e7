"""python -m tilewright.isa.generate [--check]: writes the files derived from the tables; --check exits with 1 where one
is stale.
"""

import sys

from tilewright.isa.generate import files
from tilewright.isa.generate.outputs import COMMAND, OUTPUTS

sys.exit(files.main(OUTPUTS, COMMAND, sys.argv[1:]))
