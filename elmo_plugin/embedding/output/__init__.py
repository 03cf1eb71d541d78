"""Files and folders of vectors, kept whole whatever happens while they are written."""
