"""`python -m tests.file_fuzz`: see the package."""

import sys

from tests.file_fuzz.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
