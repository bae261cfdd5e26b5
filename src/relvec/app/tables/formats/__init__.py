"""Formats of compressed tables, whose size is known before anything is unpacked."""
