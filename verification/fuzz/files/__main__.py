"""`python -m verification.fuzz.files`: see the package."""

import sys

from verification.fuzz.files.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
