"""The command line, as ``python -m relvec``."""

import sys

from relvec.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
