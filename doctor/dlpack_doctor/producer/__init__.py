"""Checks of producers: what `__dlpack__` answers, and what is in the capsule."""
