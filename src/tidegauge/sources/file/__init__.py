"""Files that grow, rotate and appear, read by byte range."""
