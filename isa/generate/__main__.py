"""python -m isa.generate [--check]: writes what is derived from the tables; --check exits with 1 where one is stale."""

import sys

from isa.generate import files
from isa.generate.outputs import COMMAND, OUTPUTS

sys.exit(files.main(OUTPUTS, COMMAND, sys.argv[1:]))
