"""What one framework does in its own way, shown with the framework itself; docs/frameworks.md."""
