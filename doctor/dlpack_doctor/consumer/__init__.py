"""Checks of consumers: what `from_dlpack` makes of good, odd and wrong producers."""
