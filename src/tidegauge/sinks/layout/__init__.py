"""How rows lie in the files of a table: parted by values, sorted, and in files of a size. Of no format."""
