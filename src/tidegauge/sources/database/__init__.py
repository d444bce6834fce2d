"""What sources that follow the log of a database share: the folder of first rows, and values from texts."""
