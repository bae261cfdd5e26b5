"""Formats that unpack to more than they take: how much is known before it is unpacked."""
