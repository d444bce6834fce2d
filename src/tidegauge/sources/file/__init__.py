"""Files that grow, are rotated, or appear whole, read by byte range."""
