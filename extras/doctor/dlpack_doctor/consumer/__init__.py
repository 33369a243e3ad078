"""Checks of consumers: `from_dlpack` with good, odd and wrong producers."""
