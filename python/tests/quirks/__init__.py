"""Behaviours that one framework alone has, tested with that framework; see docs/frameworks.md."""
