"""Read and write files: functions for all other parts of the package."""
