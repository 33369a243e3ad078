"""The findings for a terminal, and as HTML, Markdown and a badge."""
