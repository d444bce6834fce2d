"""MariaDB as a source: its binary log, decoded by our own code, and the first rows that join it."""
