"""What was found, as a terminal table, JSON, Markdown and one HTML page."""
