"""Objects of a store as the files of a source: whole at once, known by key and ETag, read by ranges."""
