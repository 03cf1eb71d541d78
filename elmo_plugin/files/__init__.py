"""Reading and writing files, for all other parts of the package."""
