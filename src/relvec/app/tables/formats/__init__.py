"""From the bytes of a file, within limits, to columns."""
