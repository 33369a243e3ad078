"""The frameworks that the matrix tests run, and the cells of the matrix."""
