"""Official data layouts, and the user's own files: one function for each form of file."""
