"""The doctor's own tests: planted faults, real frameworks, reports."""
