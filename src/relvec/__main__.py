"""The command line, as ``python -m relvec``."""

import sys

from relvec.cli import main

if __name__ == "__main__":
    sys.exit(main())
