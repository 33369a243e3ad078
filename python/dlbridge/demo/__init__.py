"""The main job on real arrays: `python -m dlbridge.demo`."""
