"""Checks of producers: the answers of `__dlpack__`, and the descriptor in the capsule."""
